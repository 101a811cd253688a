"""Who may move or rewrite what at a time, and which reads a move must wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from a2m_protocol.types import Record
from a2m_server.values import Entry

Clock = Callable[[], int]
"""Microseconds since 1970."""


class Locks:
    """Named locks in one process; a set of names is taken in one order, so that no two wait in a ring."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                await stack.enter_async_context(self._one(name))
            yield

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncGenerator[bool]:
        """Hold one lock if nobody has it; yields whether it is held."""
        if name in self._held:
            yield False
        else:
            async with self._one(name):
                yield True

    @asynccontextmanager
    async def _one(self, name: str) -> AsyncGenerator[None]:
        lock, users = self._held.get(name, (asyncio.Lock(), 0))
        self._held[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._held[name]
            if users == 1:
                del self._held[name]
            else:
                self._held[name] = (lock, users - 1)


def key_lock(owner: str | None, key: str) -> str:
    return f"key\n{owner!r}\n{key}"


def id_lock(record_id: str) -> str:
    return f"id\n{record_id}"


def group_lock(owner: str | None, group: str) -> str:
    return f"group\n{owner!r}\n{group}"


def entry_locks(entry: Entry | Record) -> Iterator[str]:
    """The locks of a record: of its group, or of itself, and of its key."""
    yield id_lock(entry.id) if entry.group is None else group_lock(entry.owner, entry.group)
    if entry.key is not None:
        yield key_lock(entry.owner, entry.key)


class Readers:
    """The reads that are under way, so that a move deletes only when those that began before its copy ended.

    A read over several tiers may look at the target before the copy and at the source after the delete; it
    would then miss the record.
    """

    def __init__(self, patience: float = 30.0) -> None:
        """`patience` in seconds bounds the wait: no read outlives its timeouts."""
        self._patience = patience
        self._reading: set[asyncio.Event] = set()

    @property
    def cut_off(self) -> str | None:
        """Why a read may miss what is being moved, or None."""
        return None

    async def others(self) -> int:
        """How many other routers there are over the same tiers."""
        return 0

    @contextmanager
    def reading(self) -> Generator[None]:
        ended = asyncio.Event()
        self._reading.add(ended)
        try:
            yield
        finally:
            self._reading.discard(ended)
            ended.set()

    async def drained(self) -> bool:
        """Wait until every read of this moment has ended; False when one outlasted the patience."""
        waiting = [asyncio.ensure_future(ended.wait()) for ended in self._reading]
        if not waiting:
            return True
        _, late = await asyncio.wait(waiting, timeout=self._patience)
        for task in late:
            task.cancel()
        return not late
