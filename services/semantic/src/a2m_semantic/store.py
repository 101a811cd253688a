"""The semantic tier's store: `TierStore` over the engine port."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from a2m_protocol.clock import SEQ_PER_MS
from a2m_protocol.errors import embedding_mismatch, unavailable
from a2m_protocol.types import Draft, Record
from a2m_retrieval.metric import Metric
from a2m_retrieval.text import index_terms, said
from a2m_semantic import filters, reading, remnants, sessions
from a2m_semantic.batch import Batch
from a2m_semantic.engine import (
    DENSE,
    All,
    AnyOf,
    Between,
    Clause,
    ConflictError,
    Engine,
    HasVector,
    Not,
    Some,
    point_id,
)
from a2m_semantic.points import (
    BRIEF,
    GRAVE,
    LIVE,
    WHOLE,
    Held,
    address_token,
    decode,
    encode,
    grave_of,
    origin_token,
    record_of,
)
from a2m_semantic.ranking import Ranking
from a2m_semantic.shape import Shape
from a2m_semantic.tombs import Sweeper
from a2m_server.memory import SEARCHING, TIER_CAPABILITIES
from a2m_server.sequence import with_seq
from a2m_server.store import (
    Buried,
    Deleted,
    Entry,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Named,
    Page,
    Reason,
    Scope,
    Search,
    Seen,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)

NAME = "semantic"
DAY_MS = 86_400_000
CHUNK = 256
ATTEMPTS = 8

Result = TypeVar("Result")


class SemanticStore:
    """A `TierStore` on Qdrant.

    All that is kept of an id, live record or tombstone, is one point, and every method writes all its points
    in one operation of the engine: a crash leaves a write whole or absent, and a delete never without its
    tombstone. Writes are one at a time in this process. Over a shared server an overwrite of a point that
    another service changed meanwhile is tried again; two services that write one new key at once are not told
    apart (the router's leases do that).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        metric: Metric = "cosine",
        dimensions: int | None = None,
        tombstone_days: float = 30,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._engine = engine
        self._metric: Metric = metric
        self._clock = clock
        self._last: int | None = None
        self._lock = asyncio.Lock()
        self._shape = Shape(engine, metric, dimensions)
        self._ranking = Ranking(engine, metric)
        self._age = int(tombstone_days * DAY_MS) * SEQ_PER_MS
        self._sweeper = Sweeper(engine, int(tombstone_days * DAY_MS))

    async def open(self) -> None:
        await self._engine.open()
        try:
            await self._shape.open()
            if self._shape.clearing:
                await self._alone(self._clear)
        except BaseException:
            await self._engine.close()
            raise

    async def close(self) -> None:
        async with self._lock:
            await self._engine.close()

    async def ready(self) -> None:
        await self._engine.retrieve([point_id("record", "")], [])

    async def info(self) -> StoreInfo:
        return StoreInfo(
            name=NAME,
            kind=NAME,
            capabilities=TIER_CAPABILITIES,
            extensions=SEARCHING,
            dimensions=self._shape.width,
            metric=self._metric,
            metrics=("cosine", "dot", "l2"),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        return {NAME: await self._engine.count(self._clause(Filter(scope)))}

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        async def work() -> list[Written]:
            batch = await self._load_for(drafts)
            batch.check_scope(drafts, scope)
            await self._shape.fit(drafts)
            written = [batch.write(draft) for draft in drafts]
            await self._store(batch)
            return written

        return await self._alone(work)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        async def work() -> list[Written]:
            batch = await self._load_for(drafts)
            await self._shape.fit(drafts)
            written = [batch.transfer(draft) for draft in with_seq(drafts, self._clock())]
            await self._store(batch)
            return written

        return await self._alone(work)

    async def search(self, search: Search) -> Found:
        if search.embedding is not None:
            width = await self._shape.known_width(len(search.embedding))
            if width is not None and len(search.embedding) != width:
                raise embedding_mismatch(width, len(search.embedding))
        where = All((self._clause(search.filter), AnyOf("state", ("active",))))
        return Found(await self._ranking.search(search, where, with_vectors=self._shape.width is not None))

    async def timeline(self, page: Page) -> Found:
        where = self._clause(page.filter)
        fields = [*BRIEF, "embedding"] if page.vectors else BRIEF
        if page.limit is None:
            found = await reading.everything(self._engine, where, fields)
        else:
            found = (await reading.newest(self._engine, where, fields, page.limit))[-page.limit :]
        return Found(
            [record_of(one) for one in found],
            elsewhere=await sessions.has_elsewhere(self._engine, page.filter),
        )

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        if scope.readable is None:
            where = All((self._clause(Filter(scope)), filters.key_clause(key)))
        else:
            where = AnyOf("address", tuple(address_token(owner, key) for owner in scope.readable))
        fields = [*BRIEF, "embedding"] if vectors else BRIEF
        found = [record_of(one) for one in await reading.everything(self._engine, where, fields)]
        found.sort(key=lambda record: (record.owner != scope.owner, record.owner is not None))
        return Fetched(found[0] if found else None)

    async def forget(self, selected: Filter) -> Forgotten:
        where = self._clause(selected)

        async def work() -> dict[str, str | None]:
            found, _ = await self._engine.scroll(where, WHOLE, CHUNK)
            held = [*map(decode, found)]
            batch = self._batch(held)
            for one in held:
                batch.end(one.id, "forgotten")
            await self._store(batch)
            return {one.id: one.record.owner for one in held if one.record is not None}

        owners: dict[str, str | None] = {}
        while more := await self._alone(work):
            owners |= more
        return Forgotten([*owners], owners=owners)

    async def sessions(self, scope: Scope) -> Sessions:
        return Sessions(await sessions.summaries(self._engine, self._clause(Filter(scope))))

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        async def work() -> int:
            batch = await self._load(ids)
            found = sum([batch.reinforce(one, amount, scope) for one in dict.fromkeys(ids)])
            await self._store(batch)
            return found

        return await self._alone(work)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        async def work() -> None:
            batch = await self._load(ids)
            for record_id, times in Counter(ids).items():
                batch.touch(record_id, times, at)
            await self._store(batch)

        await self._alone(work)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        async def work() -> dict[str, Deleted]:
            batch = await self._load([name.id for name in named])
            outcomes: dict[str, Deleted] = {name.id: batch.standing(name) for name in named}
            if all(outcome == "deleted" for outcome in outcomes.values()):
                for record_id in outcomes:
                    batch.end(record_id, reason, target)
                await self._store(batch)
            return outcomes

        return await self._alone(work)

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return [one.grave for one in await self._held(ids) if one.grave is not None]

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        oldest = float(self._clock() - self._age)
        where = All((AnyOf("state", (GRAVE,)), Between("seq", gte=oldest)))
        found = await reading.following(self._engine, where, ["grave"], limit, after)
        return [grave_of(one) for one in found]

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        async def work() -> dict[str, Buried]:
            batch = await self._load([grave.id for grave in tombstones])
            buried: dict[str, Buried] = {grave.id: batch.bury(grave) for grave in tombstones}
            await self._store(batch)
            return buried

        return await self._alone(work)

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        found = await reading.following(self._engine, self._clause(selected), BRIEF, limit, after)
        return [
            Entry(
                id=record.id,
                seq=record.seq,
                etag=record.etag,
                owner=record.owner,
                session=record.session,
                group=record.group,
                key=record.key,
                moves=record.moves,
                access_count=record.access_count,
                accessed_at=record.accessed_at,
                salience=record.salience,
                arrival=record.arrival,
            )
            for record in map(record_of, found)
        ]

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return [one.record for one in await self._held(ids) if one.record is not None]

    async def _alone(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a read-modify-write with no other of this process beside it, to its end even if cancelled."""

        async def locked() -> Result:
            async with self._lock:
                for _ in range(ATTEMPTS):
                    try:
                        return await work()
                    except ConflictError:
                        self._last = None
                raise unavailable("the semantic store", "other services keep changing the same records")

        return await asyncio.shield(asyncio.create_task(locked()))

    async def settle(self, named: Sequence[Named]) -> None:
        async def work() -> None:
            batch = await self._load([name.id for name in named])
            for name in named:
                batch.settle(name)
            await self._store(batch)

        await self._alone(work)

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        async def work() -> dict[str, bool]:
            batch = await self._load([one.id for one in seen])
            found = [one for one in seen if batch.standing(Named(one.id, one.etag)) == "deleted"]
            if found:
                if await self._make_room([len(one.embedding) for one in seen]):
                    batch = await self._load([one.id for one in found])
                for one in found:
                    batch.embed(one)
                await self._store(batch)
            return {one.id: one in found for one in seen}

        return await self._alone(work)

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        return Inspected(await remnants.find(self._engine, list(dict.fromkeys(ids))), (NAME,))

    async def _make_room(self, widths: Sequence[int]) -> bool:
        """Make the store's width that of vectors to come; whether what models made before was cleared."""
        for width in widths:
            self._shape.check_asked(width)
            if width != widths[0]:
                raise embedding_mismatch(widths[0], width)
        held = await self._shape.known_width(widths[0])
        if held in (None, widths[0]) and not self._shape.clearing:
            await self._shape.fix(widths[0])
            return False
        callers = All((AnyOf("state", LIVE), HasVector(DENSE), AnyOf("origin", (origin_token(None),))))
        if held is not None and await self._engine.count(callers):
            raise embedding_mismatch(held, widths[0])
        await self._shape.change(widths[0])
        await self._clear()
        return True

    async def _clear(self) -> None:
        """Take what models made from every record; begun again from the start, it ends the same."""
        made = All((AnyOf("state", LIVE), Not(AnyOf("origin", (origin_token(None),)))))
        while True:
            found, _ = await self._engine.scroll(made, WHOLE, CHUNK)
            if not found:
                break
            batch = self._batch(map(decode, found))
            batch.clear()
            await self._store(batch)
        await self._shape.changed()

    async def _load_for(self, drafts: Sequence[Draft]) -> Batch:
        """A batch with all that the drafts' ids, keys and aliases lead to."""
        chosen = tuple(draft.id for draft in drafts if draft.chosen)
        addresses = tuple(address_token(d.owner, d.key) for d in drafts if d.key is not None)
        leads: list[Clause] = []
        if chosen:
            leads.append(AnyOf("aliases", chosen))
        if addresses:
            leads.append(AnyOf("address", addresses))
        held = {one.id: one for one in await self._held(chosen)}
        if leads:
            async for page in reading.pages(self._engine, Some(tuple(leads)), WHOLE):
                held |= {one.id: one for one in map(decode, page)}
        if self._last is None or self._engine.shared:
            self._last = await self._highest_seq()
        return self._batch(held.values())

    async def _load(self, ids: Sequence[str]) -> Batch:
        return self._batch(await self._held(ids))

    def _batch(self, held: Iterable[Held]) -> Batch:
        return Batch(held, self._clock(), self._last or 0)

    async def _held(self, ids: Sequence[str]) -> list[Held]:
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

    async def _store(self, batch: Batch) -> None:
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

    def _clause(self, selected: Filter) -> Clause:
        return filters.translate(selected, NAME)
