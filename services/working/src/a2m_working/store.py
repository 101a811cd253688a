"""The working tier: live transcripts on Redis or Valkey."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from a2m_protocol.errors import embedding_mismatch
from a2m_protocol.types import Draft, Record
from a2m_server.memory import EXTENSIONS, TIER_CAPABILITIES
from a2m_server.sizes import Size
from a2m_server.values import (
    EVERYONE,
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
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)
from a2m_working import remnants
from a2m_working.buckets import Buckets
from a2m_working.cluster import Cluster
from a2m_working.database import Database
from a2m_working.durability import concerns
from a2m_working.layout import encode
from a2m_working.root import Root
from a2m_working.rows import Row
from a2m_working.search import ranked
from a2m_working.selection import Selection
from a2m_working.settings import WorkingSettings

log = logging.getLogger(__name__)

KIND = "working"
FORGET_ROUNDS = 20
AT_ONCE = 32
"""Buckets that are weighed in one call."""


class WorkingStore:
    """A `TierStore` whose appends and replays are one round trip each on one server."""

    def __init__(self, settings: WorkingSettings) -> None:
        self._settings = settings
        self._database = Database(settings)
        self._opened: Buckets | None = None

    async def open(self) -> None:
        await self._database.open()
        for concern in await concerns(self._database):
            log.warning("%s may lose what it acknowledged: %s", self._settings.name, concern)
        layout = self._settings.layout
        split = self._database.is_cluster if layout == "auto" else layout == "cluster"
        self._opened = (Cluster if split else Root)(self._database, self._settings)

    async def close(self) -> None:
        await self._database.close()

    async def ready(self) -> None:
        await self._database.ping()

    async def info(self) -> StoreInfo:
        return StoreInfo(
            name=self._settings.name,
            kind=KIND,
            capabilities=TIER_CAPABILITIES,
            extensions=EXTENSIONS,
            dimensions=await self._buckets.width(),
            metric=self._settings.metric,
            metrics=("cosine", "dot", "l2"),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        owners = None if scope.readable is None else list(scope.readable)
        return {self._settings.name: await self._buckets.total(owners)}

    async def size(self) -> Size:
        """Of the whole server's memory: what else is kept in it counts as well."""
        taken, limit = await self._database.memory()
        return Size(await self._buckets.total(None), taken, limit)

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        return await self._buckets.put(drafts, scope, transfer=False) if drafts else []

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        return await self._buckets.put(drafts, EVERYONE, transfer=True) if drafts else []

    async def search(self, search: Search) -> Found:
        if search.embedding is not None:
            width = await self._buckets.width()
            if width is not None and width != len(search.embedding):
                raise embedding_mismatch(width, len(search.embedding))
        found = await ranked(self._buckets, self._settings.metric, search)
        return Found([row.record(score) for score, row in found])

    async def timeline(self, page: Page) -> Found:
        selection = Selection(self._buckets, page.filter, whole=page.vectors, enough=page.limit)
        found = await _ordered(selection, page.limit)
        return Found([row.record() for row in found], elsewhere=selection.elsewhere)

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        first = [owner for owner in dict.fromkeys((scope.owner, None)) if scope.sees(owner)]
        rest = sorted(owner for owner in scope.readable or () if owner is not None and owner != scope.owner)
        others = scope.readable is None
        rows = await self._buckets.fetch(key, [*first, *rest], others=others, whole=vectors)
        rows.sort(key=lambda row: (row.seq, row.id))
        return Fetched(rows[0].record() if rows else None)

    async def forget(self, selected: Filter) -> Forgotten:
        gone: dict[str, int] = {}
        selection = Selection(self._buckets, selected, newest=False)
        async for batch in selection.batches():
            rows = await self._buckets.sweep(batch)
            # What changed since it was read is judged again; a record cannot be made to stay by touching it.
            for _ in range(FORGET_ROUNDS):
                if not rows:
                    break
                named = [Named(row.id, row.etag) for row in rows]
                outcomes = await self._buckets.remove(named, "forgotten", None, whole=False)
                gone |= {row.id: row.seq for row in rows if outcomes[row.id] == "deleted"}
                changed = [row.id for row in rows if outcomes[row.id] == "changed"]
                again = await self._buckets.read(changed, whole=False) if changed else []
                rows = [row for row in again if selection.admits(row)]
        return Forgotten(sorted(gone, key=lambda record_id: (gone[record_id], record_id)))

    async def sessions(self, scope: Scope) -> Sessions:
        owners = None if scope.readable is None else list(scope.readable)
        found = await self._buckets.sessions(owners)
        return Sessions(sorted(found, key=lambda info: (info.session, info.owner or "")))

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        once = Counter(set(ids))
        return await self._buckets.count(once, scope, amount=amount) if once else 0

    async def touch(self, ids: Sequence[str], at: str) -> None:
        if ids:
            await self._buckets.count(Counter(ids), EVERYONE, at=at)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        return await self._buckets.remove(named, reason, target, whole=True) if named else {}

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return await self._buckets.tombstones(list(dict.fromkeys(ids))) if ids else []

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        found: list[Tombstone] = []
        while len(found) < limit:
            listed = await self._buckets.forgotten(limit - len(found), after)
            if not listed:
                break
            after = listed[-1]
            # Of what was written anew or forgotten once more meanwhile, the list is no longer true.
            seqs = {record_id: seq for seq, record_id in listed}
            stones = await self._buckets.tombstones([*seqs])
            found += [s for s in stones if s.reason == "forgotten" and s.seq == seqs[s.id]]
        return found

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        return await self._buckets.bury(tombstones) if tombstones else {}

    async def settle(self, named: Sequence[Named]) -> None:
        if named:
            await self._buckets.settle(named)

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        return await self._buckets.judge(judged) if judged else {}

    async def held(self, owner: str | None) -> dict[str, int]:
        """A few buckets a call, so that no turn waits long."""
        found = [await self._buckets.weigh(tags) async for tags in self._buckets.tags(encode(owner), AT_ONCE)]
        return {self._settings.name: sum(found)}

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        found = await remnants.find(self._database, self._settings.prefix, list(dict.fromkeys(ids)))
        return Inspected(found, (self._settings.name,))

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        selection = Selection(self._buckets, selected, newest=False, enough=limit, after=after)
        rows = await (selection.oldest(limit) if selection.everything else _ordered(selection, limit))
        return [_entry(row) for row in rows]

    async def read(self, ids: Sequence[str]) -> list[Record]:
        rows = await self._buckets.read(list(dict.fromkeys(ids)), whole=True) if ids else []
        return [row.record() for row in rows]

    @property
    def _buckets(self) -> Buckets:
        if self._opened is None:
            raise RuntimeError("the store is used before open()")
        return self._opened


async def _ordered(selection: Selection, limit: int | None) -> list[Row]:
    """The newest (or oldest) `limit` rows of a selection, ascending; never many more are held."""
    rows: dict[str, Row] = {}
    async for batch in selection.batches():
        rows |= {row.id: row for row in batch}
        if limit is not None and len(rows) > 2 * limit + 256:
            rows = {row.id: row for row in _outermost(rows, limit, newest=selection.newest)}
    return _outermost(rows, limit, newest=selection.newest)


def _outermost(rows: dict[str, Row], limit: int | None, *, newest: bool) -> list[Row]:
    ordered = sorted(rows.values(), key=lambda row: (row.seq, row.id))
    if limit is None:
        return ordered
    return ordered[max(0, len(ordered) - limit) :] if newest else ordered[:limit]


def _entry(row: Row) -> Entry:
    fields = row.fields
    return Entry(
        id=row.id,
        seq=row.seq,
        etag=row.etag,
        owner=fields.get("owner"),
        session=fields.get("session"),
        group=fields.get("group"),
        key=fields.get("key"),
        moves=fields["moves"],
        access_count=fields["access_count"],
        accessed_at=fields.get("accessed_at"),
        salience=fields["salience"],
        arrival=fields.get("arrival"),
    )
