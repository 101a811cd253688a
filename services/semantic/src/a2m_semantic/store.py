"""The semantic tier's store: `TierStore` over the engine port."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from a2m_protocol.clock import SEQ_PER_MS
from a2m_protocol.errors import embedding_mismatch
from a2m_protocol.types import Draft, Record
from a2m_retrieval.metric import Metric
from a2m_semantic import filters, reading, remnants, sessions
from a2m_semantic.embedding import Embedding
from a2m_semantic.engine import (
    All,
    AnyOf,
    Between,
    Clause,
    Engine,
    point_id,
)
from a2m_semantic.points import (
    BRIEF,
    GRAVE,
    WHOLE,
    address_token,
    decode,
    grave_of,
    record_of,
)
from a2m_semantic.ranking import Ranking
from a2m_semantic.shape import Shape
from a2m_semantic.tombs import Sweeper
from a2m_semantic.upkeep import Upkeep
from a2m_semantic.writing import Writer
from a2m_server.memory import SEARCHING, TIER_CAPABILITIES
from a2m_server.sequence import with_seq
from a2m_server.sizes import Size
from a2m_server.values import (
    ACTIVE,
    Buried,
    Deleted,
    Entry,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Judged,
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
        self._shape = Shape(engine, metric, dimensions)
        self._ranking = Ranking(engine, metric)
        self._age = int(tombstone_days * DAY_MS) * SEQ_PER_MS
        self._writer = Writer(engine, self._shape, Sweeper(engine, int(tombstone_days * DAY_MS)), clock)
        self._embedding = Embedding(engine, self._shape, self._writer)
        self._upkeep = Upkeep(engine, self._writer)

    async def open(self) -> None:
        await self._engine.open()
        try:
            await self._shape.open()
            await self._embedding.clear()
            await self._upkeep.open()
        except BaseException:
            await self._engine.close()
            raise

    async def close(self) -> None:
        await self._upkeep.close()
        await self._writer.alone(self._engine.close)

    async def ready(self) -> None:
        await self._engine.retrieve([point_id("record", "")], [])

    async def info(self) -> StoreInfo:
        return StoreInfo(
            name=NAME,
            kind=NAME,
            capabilities=TIER_CAPABILITIES,
            extensions=SEARCHING,
            dimensions=await self._shape.look(),
            metric=self._metric,
            metrics=("cosine", "dot", "l2"),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        return {NAME: await self._engine.count(self._clause(Filter(scope)))}

    async def size(self) -> Size:
        taken, limit = await self._engine.space() or (None, None)
        return Size(await self._engine.count(self._clause(Filter())), taken, limit)

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        async def work() -> list[Written]:
            batch = await self._writer.load_for(drafts)
            batch.check_scope(drafts, scope)
            await self._shape.fit(drafts)
            written = [batch.write(draft) for draft in drafts]
            await self._writer.store(batch)
            return written

        return await self._writer.alone(work)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        async def work() -> list[Written]:
            batch = await self._writer.load_for(drafts)
            await self._shape.fit(drafts)
            written = [batch.transfer(draft) for draft in with_seq(drafts, self._clock())]
            await self._writer.store(batch)
            return written

        return await self._writer.alone(work)

    async def search(self, search: Search) -> Found:
        if search.embedding is not None:
            width = await self._shape.known_width(len(search.embedding))
            if width is not None and len(search.embedding) != width:
                raise embedding_mismatch(width, len(search.embedding))
        where = All((self._clause(search.filter), AnyOf("state", ACTIVE)))
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
            where = All((self._clause(Filter(scope, statuses=ACTIVE)), filters.key_clause(key)))
        else:
            address = AnyOf("address", tuple(address_token(owner, key) for owner in scope.readable))
            where = All((address, AnyOf("state", ACTIVE)))
        fields = [*BRIEF, "embedding"] if vectors else BRIEF
        found = [record_of(one) for one in await reading.everything(self._engine, where, fields)]
        found.sort(key=lambda record: (record.owner != scope.owner, record.owner is not None))
        return Fetched(found[0] if found else None)

    async def forget(self, selected: Filter) -> Forgotten:
        where = self._clause(selected)

        async def work() -> dict[str, str | None]:
            found, _ = await self._engine.scroll(where, WHOLE, CHUNK)
            held = [*map(decode, found)]
            batch = self._writer.batch(held)
            for one in held:
                batch.end(one.id, "forgotten")
            await self._writer.store(batch)
            return {one.id: one.record.owner for one in held if one.record is not None}

        owners: dict[str, str | None] = {}
        while more := await self._writer.alone(work):
            owners |= more
        return Forgotten([*owners], owners=owners)

    async def sessions(self, scope: Scope) -> Sessions:
        return Sessions(await sessions.summaries(self._engine, self._clause(Filter(scope))))

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        async def work() -> int:
            batch = await self._writer.load(ids)
            found = sum([batch.reinforce(one, amount, scope) for one in dict.fromkeys(ids)])
            await self._writer.store(batch)
            return found

        return await self._writer.alone(work)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        async def work() -> None:
            batch = await self._writer.load(ids)
            for record_id, times in Counter(ids).items():
                batch.touch(record_id, times, at)
            await self._writer.store(batch)

        await self._writer.alone(work)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        async def work() -> dict[str, Deleted]:
            batch = await self._writer.load([name.id for name in named])
            outcomes: dict[str, Deleted] = {name.id: batch.standing(name) for name in named}
            if all(outcome == "deleted" for outcome in outcomes.values()):
                for record_id in outcomes:
                    batch.end(record_id, reason, target)
                await self._writer.store(batch)
            return outcomes

        return await self._writer.alone(work)

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return [one.grave for one in await self._writer.held(ids) if one.grave is not None]

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        oldest = float(self._clock() - self._age)
        where = All((AnyOf("state", (GRAVE,)), Between("seq", gte=oldest)))
        found = await reading.following(self._engine, where, ["grave"], limit, after)
        return [grave_of(one) for one in found]

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        async def work() -> dict[str, Buried]:
            batch = await self._writer.load([grave.id for grave in tombstones])
            buried: dict[str, Buried] = {grave.id: batch.bury(grave) for grave in tombstones}
            await self._writer.store(batch)
            return buried

        return await self._writer.alone(work)

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
        return [one.record for one in await self._writer.held(ids) if one.record is not None]

    async def settle(self, named: Sequence[Named]) -> None:
        async def work() -> None:
            batch = await self._writer.load([name.id for name in named])
            for name in named:
                batch.settle(name)
            await self._writer.store(batch)

        await self._writer.alone(work)

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        async def work() -> dict[str, bool]:
            batch = await self._writer.load([one.id for one in judged])
            outcomes = {one.id: batch.judge(one) for one in judged}
            await self._writer.store(batch)
            return outcomes

        return await self._writer.alone(work)

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        return await self._embedding.embed(seen)

    async def held(self, owner: str | None) -> dict[str, int]:
        where = self._clause(Filter(Scope(frozenset({owner}))))
        pages = reading.pages(self._engine, where, ["bytes"])
        return {NAME: sum([one.payload.get("bytes", 0) async for page in pages for one in page])}

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        return Inspected(await remnants.find(self._engine, list(dict.fromkeys(ids))), (NAME,))

    def _clause(self, selected: Filter) -> Clause:
        self._upkeep.check(selected.where)
        return filters.translate(selected, NAME)
