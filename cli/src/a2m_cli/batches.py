"""Records in batches for writing: a session each, and no group cut in two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from a2m_cli.formats import Item
from a2m_protocol import jsonrpc

_WAITING = 10_000
"""Records held back while their sessions' batches are not full."""

_TOO_LONG = 4
"""How many times `most_bytes` a batch may grow for the sake of a group."""


@dataclass(frozen=True, slots=True)
class Batch:
    session: str | None
    items: tuple[Item, ...]


def batches(items: Iterable[Item], *, size: int, longest: int, most_bytes: int) -> Iterator[Batch]:
    """Batches of about `size` records of one session each, in their order.

    A batch grows beyond `size` up to `longest` records rather than cut a group in two, and ends early at
    `most_bytes` of JSON.
    """
    open_batches: dict[str | None, _Open] = {}
    waiting = 0
    for item in items:
        held = open_batches.setdefault(item.session, _Open())
        length = len(jsonrpc.encode(item.fields))
        if held.is_full(item, length, size, longest, most_bytes):
            waiting -= len(held.items)
            yield Batch(item.session, tuple(held.items))
            # At the end of the line again, so that the first one is the one that has waited longest.
            del open_batches[item.session]
            held = open_batches[item.session] = _Open()
        held.items.append(item)
        held.length += length
        waiting += 1
        if waiting > _WAITING:
            session = next(iter(open_batches))
            old = open_batches.pop(session)
            waiting -= len(old.items)
            yield Batch(session, tuple(old.items))
    for session, held in open_batches.items():
        yield Batch(session, tuple(held.items))


class _Open:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.length = 0

    def is_full(self, item: Item, length: int, size: int, longest: int, most_bytes: int) -> bool:
        """Whether the batch must go before `item` can be put in one."""
        if not self.items:
            return False
        joined = item.group is not None and item.group == self.items[-1].group
        after = self.length + length
        if len(self.items) >= longest or after > _TOO_LONG * most_bytes:
            return True
        return not joined and (len(self.items) >= size or after > most_bytes)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """A batch of two or more in two."""
    middle = len(batch.items) // 2
    return Batch(batch.session, batch.items[:middle]), Batch(batch.session, batch.items[middle:])
