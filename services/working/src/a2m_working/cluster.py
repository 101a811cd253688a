"""Buckets on a Redis Cluster: each is a root of its own in its slot, found by claims in other slots.

Replays stay one round trip. A write takes two: its claims, then its bucket's script. Atomicity is per bucket.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft
from a2m_server.values import Buried, Deleted, Judged, Named, Reason, Scope, SessionInfo, Tombstone, Written
from a2m_working.buckets import BucketPage, Request
from a2m_working.claims import Claim, Claims
from a2m_working.database import Database
from a2m_working.layout import DAY_MS, bucket_tag, decode, encode
from a2m_working.placement import Placement, segments
from a2m_working.root import Held, Root
from a2m_working.rows import Row
from a2m_working.settings import WorkingSettings

_STEP = 64


class Cluster:
    """`Buckets` over many slots."""

    def __init__(self, database: Database, settings: WorkingSettings) -> None:
        self._database = database
        self._settings = settings
        self._claims = Claims(database, settings.prefix, int(settings.tombstone_days * DAY_MS))
        self._placement = Placement(database, self._claims, self._root, settings.dimensions)

    async def put(self, drafts: Sequence[Draft], scope: Scope, *, transfer: bool) -> list[Written]:
        written: list[Written] = []
        if len({bucket_tag(draft.owner, draft.session) for draft in drafts}) > 1:
            # Each bucket refuses for itself alone.
            await self._placement.check(drafts, scope)
        try:
            for segment in segments(drafts):
                written += await self._placement.put(segment, scope, transfer=transfer)
        except A2MError as error:
            if error.code == Code.SCOPE_DENIED:
                await self._release(await self._claims.ids([draft.id for draft in drafts]), {})
            raise
        away = [answer.id for answer in written if answer.outcome == "moved"]
        if away:
            # Asking for a moved id claimed it, and a claim must not outlive its tombstone.
            await self._release(await self._claims.ids(away), {})
        return written

    async def remove(
        self, named: Sequence[Named], reason: Reason, target: str | None, *, whole: bool
    ) -> dict[str, Deleted]:
        wanted = {name.id: name for name in named}
        claims = await self._claims.ids(list(wanted))
        outcomes: dict[str, Deleted] = dict.fromkeys(wanted, "absent")
        groups = _grouped(claims)
        if whole and (len(groups) > 1 or len(claims) < len(wanted)):
            checks = [self._root(tag).check([wanted[i] for i in ids]) for tag, ids in groups.items()]
            for answer in await self._database.together(checks):
                outcomes |= answer
            if any(outcome != "deleted" for outcome in outcomes.values()):
                return outcomes
        rows = await self.read(list(claims), whole=False)
        removals = [
            self._root(tag).remove([wanted[i] for i in ids], reason, target, whole=whole)
            for tag, ids in groups.items()
        ]
        for answer in await self._database.together(removals):
            outcomes |= answer
        gone = {i: claims[i] for i in claims if outcomes[i] == "deleted"}
        seqs = {row.id: row.seq for row in rows}
        await self._database.together(self._rejoin(i, c, seqs[i]) for i, c in gone.items() if i in seqs)
        if reason == "forgotten":
            await self._claims.list_forgotten(await self.tombstones([*gone]))
        await self._release(gone, {row.id: row for row in rows})
        return outcomes

    async def sweep(self, rows: Sequence[Row]) -> list[Row]:
        claims = await self._claims.ids(list({row.id for row in rows}))
        kept: list[Row] = []
        strays: defaultdict[str, list[Named]] = defaultdict(list)
        for row in rows:
            tag = bucket_tag(row.fields.get("owner"), row.fields.get("session"))
            claim = claims.get(row.id)
            if claim is not None and claim.tag == tag:
                kept.append(row)
            else:
                strays[tag].append(Named(row.id, row.etag))
        await self._database.together(
            self._root(tag).remove(named, "undo", None, whole=False) for tag, named in strays.items()
        )
        return kept

    async def settle(self, named: Sequence[Named]) -> None:
        wanted = {name.id: name for name in named}
        groups = _grouped(await self._claims.ids(list(wanted)))
        await self._database.together(
            self._root(tag).settle([wanted[i] for i in ids]) for tag, ids in groups.items()
        )

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        wanted = {one.id: one for one in judged}
        groups = _grouped(await self._claims.ids(list(wanted)))
        done = await self._database.together(
            self._root(tag).judge([wanted[i] for i in ids]) for tag, ids in groups.items()
        )
        return dict.fromkeys(wanted, False) | {i: kept for part in done for i, kept in part.items()}

    async def arrivals(self) -> AsyncIterator[list[str]]:
        async for tags in self._claims.buckets(None, _STEP):
            for tag in tags:
                async for ids in self._root(tag).arrivals():
                    yield ids

    async def bury(self, stones: Sequence[Tombstone]) -> dict[str, Buried]:
        homes = [bucket_tag(stone.owner, stone.session) for stone in stones]
        takes = [self._claims.take_id(s.id, home) for s, home in zip(stones, homes, strict=True)]
        claims = await self._database.together(takes)
        outcomes: dict[str, Buried] = {}
        for stone, home, claim in zip(stones, homes, claims, strict=True):
            if stone.reason == "moved":
                await self._claims.register_session(home, stone.session)
                if claim.tag != home:
                    await self._root(home).mark(stone)
            elif claim.tag != home:
                # What a crash left there is not what the claim leads to.
                await self._root(home).bury([stone])
            rows = await self._root(claim.tag).read([stone.id], whole=False)
            outcomes |= await self._root(claim.tag).bury([stone])
            if stone.reason == "forgotten":
                await self._rejoin(stone.id, claim, stone.seq)
            if outcomes[stone.id] != "live":
                await self._release({stone.id: claim}, {row.id: row for row in rows})
        await self._claims.list_forgotten([s for s in stones if outcomes[s.id] != "live"])
        return outcomes

    async def count(
        self, ids: Counter[str], scope: Scope, *, amount: float | None = None, at: str | None = None
    ) -> int:
        groups = _grouped(await self._claims.ids(list(ids)))
        counts = [
            self._root(tag).count(Counter({i: ids[i] for i in held}), scope, amount=amount, at=at)
            for tag, held in groups.items()
        ]
        return sum(await self._database.together(counts))

    async def read(self, ids: Sequence[str], *, whole: bool) -> list[Row]:
        groups = _grouped(await self._claims.ids(ids))
        reads = [self._root(tag).read(held, whole=whole) for tag, held in groups.items()]
        rows = {row.id: row for found in await self._database.together(reads) for row in found}
        return [rows[i] for i in ids if i in rows]

    async def fetch(self, key: str, owners: Sequence[str | None], *, others: bool, whole: bool) -> list[Row]:
        for owner in owners:
            rows = await self._at_key(key, [owner], whole)
            if rows:
                return rows
        if not others:
            return []
        return await self._at_key(key, [decode(owner) for owner in await self._claims.owners(key)], whole)

    async def pages(self, requests: Sequence[Request], *, newest: bool, whole: bool) -> list[BucketPage]:
        calls = [self._pages(request, newest=newest, whole=whole) for request in requests]
        pages = [page for found in await self._database.together(calls) for page in found]
        return list({page.tag: page for page in pages}.values())

    async def places(
        self, tags: Sequence[str], limit: int, after: tuple[int, str] | None, highest: int | None
    ) -> list[tuple[int, str]]:
        calls = [self._root(tag).places([tag], limit, after, highest) for tag in tags]
        return [place for found in await self._database.together(calls) for place in found]

    async def weigh(self, tags: Sequence[str]) -> int:
        return sum(await self._database.together(self._root(tag).weigh([tag]) for tag in tags))

    def tags(self, owner: str | None, size: int) -> AsyncIterator[list[str]]:
        return self._claims.buckets(owner, size)

    async def sessions(self, owners: Sequence[str | None] | None) -> list[SessionInfo]:
        found: list[SessionInfo] = []
        async for tags in self._steps(owners):
            listed = await self._database.together(self._root(tag).sessions(None) for tag in tags)
            found += [info for infos in listed for info in infos]
        return found

    async def total(self, owners: Sequence[str | None] | None) -> int:
        total = 0
        async for tags in self._steps(owners):
            total += sum(await self._database.together(self._root(tag).total(None) for tag in tags))
        return total

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        groups = _grouped(await self._claims.ids(ids))
        reads = [self._root(tag).tombstones(held) for tag, held in groups.items()]
        stones = {stone.id: stone for found in await self._database.together(reads) for stone in found}
        return [stones[i] for i in ids if i in stones]

    async def forgotten(self, limit: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        return await self._claims.forgotten(limit, after)

    async def width(self) -> int | None:
        return self._settings.dimensions or await self._claims.width(None)

    async def _pages(self, request: Request, *, newest: bool, whole: bool) -> list[BucketPage]:
        if request.tag is not None:
            return await self._root(request.tag).pages([request], newest=newest, whole=whole)
        session = request.session or ""
        # Most often the pooled bucket is the only one: asked at once, the answer takes one round trip.
        pooled = bucket_tag(None, decode(session.encode()))
        first, tags = await self._pooled_and_others(request, pooled, session, newest=newest, whole=whole)
        rest = [Request(request.count, tag=tag, after=request.after) for tag in tags if tag != pooled]
        return first + (await self.pages(rest, newest=newest, whole=whole) if rest else [])

    async def _pooled_and_others(
        self, request: Request, pooled: str, session: str, *, newest: bool, whole: bool
    ) -> tuple[list[BucketPage], list[str]]:
        own = Request(request.count, tag=pooled, after=request.after)
        pages: list[BucketPage] = []

        async def read() -> list[str]:
            pages.extend(await self._root(pooled).pages([own], newest=newest, whole=whole))
            return []

        _, tags = await self._database.together([read(), self._claims.buckets_of(session)])
        return pages, tags

    async def _at_key(self, key: str, owners: Sequence[str | None], whole: bool) -> list[Row]:
        rows: list[Row] = []
        for owner in owners:
            claim = await self._claims.key(owner, key)
            if claim is not None:
                rows += await self._root(claim.tag).fetch(key, [owner], others=False, whole=whole)
        return rows

    async def _rejoin(self, record_id: str, claim: Claim, seq: int) -> None:
        """Remove what a crash in a journey left in another bucket, unless it is newer than the deletion."""
        for tag in claim.others:
            left = await self._root(tag).read([record_id], whole=False)
            named = [Named(row.id, row.etag) for row in left if row.seq <= seq]
            if named:
                await self._root(tag).remove(named, "undo", None, whole=True)
        for before, home in claim.journeys:
            await self._claims.join(record_id, before, home)

    async def _release(self, gone: dict[str, Claim], rows: dict[str, Row]) -> None:
        """Turn away who claimed these ids and their keys for their buckets, and let the claims expire."""
        for record_id, claim in gone.items():
            fields = rows[record_id].fields if record_id in rows else {}
            owner, key = fields.get("owner"), fields.get("key")
            await self._release_id(record_id, claim, owner)
            for alias in fields.get("aliases", ()):
                held = await self._claims.id(alias)
                if held is not None and held.tag == claim.tag:
                    await self._release_id(alias, held, owner)
            held = None if key is None else await self._claims.key(owner, key)
            if key is None or held is None or held.tag != claim.tag:
                continue
            if not isinstance(await self._root(held.tag).hold("k", key, owner, held.number), Held):
                await self._claims.release_key(owner, key, held)

    async def _release_id(self, record_id: str, held: Claim, owner: str | None) -> None:
        if not isinstance(await self._root(held.tag).hold("i", record_id, owner, held.number), Held):
            await self._claims.release_id(record_id, held)

    async def _steps(self, owners: Sequence[str | None] | None) -> AsyncIterator[list[str]]:
        for owner in [None] if owners is None else [encode(owner) for owner in owners]:
            async for tags in self._claims.buckets(owner, _STEP):
                yield tags

    def _root(self, tag: str) -> Root:
        return Root(self._database, self._settings, tag)


def _grouped(claims: dict[str, Claim]) -> dict[str, list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for record_id, claim in claims.items():
        groups[claim.tag].append(record_id)
    return groups
