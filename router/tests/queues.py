"""Locks and readers that say who waits: the order of a queue is part of the explorer's states."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Hashable, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from turns import ACTOR

from a2m_router.coordination import Locks, Readers

Place = tuple[str, tuple[str, ...], bool]
"""Who, for which locks, and whether they are held."""


@dataclass
class Queue:
    """Who holds or waits for locks, in the order of asking, and which reads each mover waits for."""

    locks: list[tuple[str, tuple[str, ...], bool]] = field(
        default_factory=list[tuple[str, tuple[str, ...], bool]]
    )
    reading: list[str] = field(default_factory=list[str])
    draining: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def __call__(self) -> Hashable:
        return (
            tuple(self.locks),
            tuple(sorted(self.reading)),
            tuple((mover, tuple(reads)) for mover, reads in sorted(self.draining.items())),
        )


class QueuedLocks(Locks):
    """Locks that say who waits, since the order of a queue is part of a state."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    @asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncGenerator[None]:
        wanted = tuple(sorted(set(names)))
        actor = ACTOR.get()
        waits, holds = (actor, wanted, False), (actor, wanted, True)
        self._queue.locks.append(waits)
        held = waits
        try:
            async with super().hold(wanted):
                self._queue.locks[self._queue.locks.index(waits)] = holds
                held = holds
                yield
        finally:
            self._queue.locks.remove(held)


class QueuedReaders(Readers):
    """The same for reads and those that wait for them."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    @contextmanager
    def reading(self) -> Generator[None]:
        actor = ACTOR.get()
        with super().reading():
            self._queue.reading.append(actor)
            try:
                yield
            finally:
                self._queue.reading.remove(actor)
                for reads in self._queue.draining.values():
                    if actor in reads:
                        reads.remove(actor)

    async def drained(self) -> bool:
        actor = ACTOR.get()
        self._queue.draining[actor] = sorted(self._queue.reading)
        try:
            return await super().drained()
        finally:
            self._queue.draining.pop(actor, None)
