"""What a router keeps in its own memory between calls: found by looking, so that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import cast

from pydantic import BaseModel

from a2m_router.federation import Federation

Path = tuple[str, ...]

PLAIN = (str, int, float, type(None), dict, list, set, frozenset)


class Memory:
    """The fields of routers, and of the objects that they are made of, that hold values or collections."""

    def __init__(self, routers: Sequence[Federation]) -> None:
        self._places: list[tuple[dict[str, object], str]] = []
        for router in routers:
            for *path, field in _paths(router):
                part: object = router
                for step in path:
                    part = getattr(part, step)
                self._places.append((vars(part), field))

    def __call__(self) -> Hashable:
        return tuple([_plain(fields[field]) for fields, field in self._places])


def _plain(value: object) -> Hashable:
    """A value as it can be compared; of a lock or an event, that it is there."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, dict):
        return tuple(
            [(_plain(key), _plain(each)) for key, each in cast("dict[object, object]", value).items()]
        )
    if isinstance(value, (list, tuple)):
        return tuple([_plain(each) for each in cast("list[object]", value)])
    if isinstance(value, (set, frozenset)):
        return tuple(sorted([_plain(each) for each in cast("set[object]", value)], key=repr))
    return type(value).__name__


def _paths(router: Federation) -> list[Path]:
    if not _found:
        _found.extend(_walk(router, (), set()))
    return _found


_found: list[Path] = []
"""Where to look: the same in every router."""


def _walk(part: object, path: Path, seen: set[int]) -> Iterator[Path]:
    seen.add(id(part))
    for field, value in vars(part).items():
        if isinstance(value, PLAIN):
            yield (*path, field)
        elif _is_part(value) and id(value) not in seen:
            yield from _walk(value, (*path, field), seen)


def _is_part(value: object) -> bool:
    """Whether a value is an object of the router with a state; a configuration does not change."""
    made_here = type(value).__module__.startswith("a2m_router")
    return made_here and hasattr(value, "__dict__") and not isinstance(value, BaseModel)
