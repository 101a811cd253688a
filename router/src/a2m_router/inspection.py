"""Remnants and erasures of a tier behind the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from a2m_protocol.errors import JsonObject
from a2m_router.listing import PAGE
from a2m_server.values import Degraded, Erased, Erasure, Inspected, Remnant

T = TypeVar("T")

LONG = 30.0
"""Seconds for a tier to walk all that it holds, or to rewrite its history: as long as it answers any call."""


class Ask(Protocol):
    """Calls a method of a tier and reads the answer, within so many seconds where they are given."""

    def __call__(
        self, method: str, params: JsonObject, read: Callable[[JsonObject], T], seconds: float | None = None
    ) -> Coroutine[Any, Any, T]: ...


async def remnants(ask: Ask, ids: Sequence[str]) -> Inspected:
    found: list[Remnant] = []
    checked: dict[str, None] = {}
    unverified: dict[Degraded, None] = {}
    for at in range(0, len(ids), PAGE):
        part = await ask("remnants", {"ids": list(ids[at : at + PAGE])}, _inspected, LONG)
        found += part.remnants
        checked |= dict.fromkeys(part.checked)
        unverified |= dict.fromkeys(part.unverified)
    return Inspected(found, tuple(checked), tuple(unverified))


async def erase(ask: Ask, ids: Sequence[str], *, dry: bool) -> Erased:
    outcomes: dict[str, Erasure] = {}
    counts: Counter[str] = Counter()
    remotes: dict[str, tuple[str, ...]] = {}
    for at in range(0, len(ids), PAGE):
        params: JsonObject = {"ids": list(ids[at : at + PAGE]), "dry": dry}
        part = await ask("erase", params, _erased, None if dry else LONG)
        outcomes |= part.outcomes
        counts.update(part.tiers)
        remotes |= part.remotes
    return Erased(outcomes, counts, remotes)


def _inspected(told: JsonObject) -> Inspected:
    return Inspected(
        _Remnants.validate_python(told["remnants"]),
        tuple(_Names.validate_python(told["checked"])),
        tuple(_Silences.validate_python(told.get("unverified") or [])),
    )


def _erased(told: JsonObject) -> Erased:
    return _Erased.validate_python({name: told.get(name) or {} for name in ("outcomes", "tiers", "remotes")})


_Remnants = TypeAdapter(list[Remnant])
_Names = TypeAdapter(list[str])
_Silences = TypeAdapter(list[Degraded])
_Erased = TypeAdapter(Erased)
