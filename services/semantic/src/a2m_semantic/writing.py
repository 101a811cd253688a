"""One read-modify-write after another: what is held of ids, as a batch, and back in one operation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from a2m_protocol.clock import SEQ_PER_MS
from a2m_protocol.errors import unavailable
from a2m_protocol.types import Draft
from a2m_retrieval.text import index_terms, said
from a2m_semantic import reading, sessions
from a2m_semantic.batch import Batch
from a2m_semantic.engine import AnyOf, Clause, ConflictError, Engine, Some, point_id
from a2m_semantic.points import LIVE, WHOLE, Held, address_token, decode, encode
from a2m_semantic.shape import Shape
from a2m_semantic.tombs import Sweeper

ATTEMPTS = 8
PAUSE = 0.002
"""Seconds that a writer waits at most after a conflict with another service; twice as long each time."""

Result = TypeVar("Result")


class Writer:
    """The only one of this process who writes records; a few old tombstones go with each write."""

    def __init__(self, engine: Engine, shape: Shape, sweeper: Sweeper, clock: Callable[[], int]) -> None:
        """`clock` gives microseconds, the unit of `seq`."""
        self._engine = engine
        self._shape = shape
        self._sweeper = sweeper
        self._clock = clock
        self._last: int | None = None
        self._lock = asyncio.Lock()

    async def alone(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a read-modify-write with no other of this process beside it, to its end even if cancelled."""

        async def locked() -> Result:
            async with self._lock:
                for attempt in range(ATTEMPTS):
                    try:
                        return await work()
                    except ConflictError:
                        self._last = None
                    # Those who met once meet again, unless they wait for different times.
                    await asyncio.sleep(random.uniform(0, PAUSE * 2**attempt))  # noqa: S311 no secret
                raise unavailable("the semantic store", "other services keep changing the same records")

        return await asyncio.shield(asyncio.create_task(locked()))

    async def load_for(self, drafts: Sequence[Draft]) -> Batch:
        """A batch with all that the drafts' ids, keys and aliases lead to."""
        chosen = tuple(draft.id for draft in drafts if draft.chosen)
        addresses = tuple(address_token(d.owner, d.key) for d in drafts if d.key is not None)
        leads: list[Clause] = []
        if chosen:
            leads.append(AnyOf("aliases", chosen))
        if addresses:
            leads.append(AnyOf("address", addresses))
        held = {one.id: one for one in await self.held(chosen)}
        if leads:
            async for page in reading.pages(self._engine, Some(tuple(leads)), WHOLE):
                held |= {one.id: one for one in map(decode, page)}
        if self._last is None or self._engine.shared:
            self._last = await self._highest_seq()
        return self.batch(held.values())

    async def load(self, ids: Sequence[str]) -> Batch:
        return self.batch(await self.held(ids))

    def batch(self, held: Iterable[Held]) -> Batch:
        return Batch(held, self._clock(), self._last or 0)

    async def held(self, ids: Sequence[str]) -> list[Held]:
        """What is kept of ids, in their order."""
        points = {point_id("record", one): one for one in dict.fromkeys(ids)}
        if not points:
            return []
        found = {one.id: decode(one) for one in await self._engine.retrieve([*points], WHOLE)}
        return [found[point] for point, name in points.items() if point in found and found[point].id == name]

    async def _highest_seq(self) -> int:
        live = AnyOf("state", LIVE)
        found = await self._engine.ordered(live, ["seq"], 1, by="seq", descending=True)
        return int(found[0].payload["seq"]) if found else 0

    async def store(self, batch: Batch) -> None:
        """Write what a batch changed, in one operation."""
        changed = batch.changed
        new = [one.record for one in changed if one.record is not None and one.version is None]
        await self._shape.grow(len(index_terms(said(record.content, record.metadata))) for record in new)
        space = self._shape.space
        points = await asyncio.to_thread(lambda: [encode(one, space) for one in changed])
        points += [sessions.mark(owner, session) for owner, session in batch.marks]
        if points:
            await self._engine.upsert(points, batch.expected | {sessions.MARK})
            self._last = batch.last if self._last is not None else None
        await self._sweeper.sweep(self._clock() // SEQ_PER_MS)
