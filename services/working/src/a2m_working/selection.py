"""Candidates of a filter: ids and pinned sessions directly, everything else by a scan in bounded steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from a2m_protocol.errors import invalid_params
from a2m_protocol.where import Scalar, Where
from a2m_retrieval.text import holds
from a2m_server.records import beneath
from a2m_server.values import Filter
from a2m_working.buckets import BucketPage, Buckets, Request
from a2m_working.layout import bucket_tag, encode
from a2m_working.rows import Row

REPLAY = 512
SCAN_BUCKETS = 16
SCAN_RECORDS = 64
SCAN_TAGS = 64
SCAN_ROWS = 256


@dataclass(slots=True)
class Selection:
    """A walk over the rows that match `selected`, in batches; each bucket in order, buckets in none.

    `enough` stops a bucket once it gave so many, `after` begins each beyond a position, `whole` reads
    vectors and features, `active` leaves out what a recall does not see. After the walk, `elsewhere` says
    whether a pinned session has records in other tiers.
    """

    buckets: Buckets
    selected: Filter
    newest: bool = True
    whole: bool = False
    active: bool = False
    enough: int | None = None
    after: tuple[int, str] | None = None
    elsewhere: bool = False
    _given: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        if self.selected.without is not None:
            raise invalid_params("without: the working tier has no vectors of models, and is never embedded")

    async def batches(self) -> AsyncIterator[list[Row]]:
        self._given.clear()
        if self.selected.words == ():
            return
        ids = self._ids()
        pins = self._pins(0 if ids is not None else self._first_page())
        if ids is not None:
            yield await self._by_id(ids)
        if pins is not None:
            async for batch in self._walk(pins):
                yield batch
        elif ids is None:
            async for batch in self._arrived() if self.selected.arrived else self._scan():
                yield batch

    @property
    def everything(self) -> bool:
        """Whether nothing but the scope narrows it."""
        selected = self.selected
        narrowed = selected.where or selected.arrived
        named = (selected.ids, selected.key_prefix, selected.words, selected.statuses)
        return not narrowed and all(one is None for one in named)

    async def oldest(self, limit: int) -> list[Row]:
        """The oldest `limit` of `everything`, in order; no others are read."""
        rows: list[Row] = []
        after = self.after
        while len(rows) < limit:
            places = await self._places(limit - len(rows), after)
            if not places:
                break
            after = places[-1]
            for at in range(0, len(places), SCAN_ROWS):
                ids = [record_id for _, record_id in places[at : at + SCAN_ROWS]]
                rows += await self.buckets.read(ids, whole=self.whole)
        return rows

    async def _places(self, limit: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        best: list[tuple[int, str]] = []
        owners = self._owners()
        for owner in [None] if owners is None else [encode(owner) for owner in owners]:
            async for tags in self.buckets.tags(owner, SCAN_TAGS):
                highest = best[-1][0] if len(best) == limit else None
                best = nsmallest(limit, [*best, *await self.buckets.places(tags, limit, after, highest)])
        return best

    async def _by_id(self, ids: Sequence[str]) -> list[Row]:
        rows = await self.buckets.read(ids, whole=self.whole) if ids else []
        return [
            row for row in rows if (self.after is None or (row.seq, row.id) > self.after) and self.admits(row)
        ]

    async def _arrived(self) -> AsyncIterator[list[Row]]:
        async for ids in self.buckets.arrivals():
            yield await self._by_id(ids)

    async def _scan(self) -> AsyncIterator[list[Row]]:
        size = min(SCAN_RECORDS, self.enough or SCAN_RECORDS)
        owners = self._owners()
        for owner in [None] if owners is None else [encode(owner) for owner in owners]:
            async for tags in self.buckets.tags(owner, SCAN_BUCKETS):
                async for batch in self._walk([Request(size, tag=tag, after=self.after) for tag in tags]):
                    yield batch

    async def _walk(self, requests: list[Request]) -> AsyncIterator[list[Row]]:
        while requests:
            pages = await self.buckets.pages(requests, newest=self.newest, whole=self.whole)
            batch: list[Row] = []
            following: list[Request] = []
            size = max(request.count for request in requests)
            for page in pages:
                self.elsewhere = self.elsewhere or page.elsewhere
                matching = self._matching(page)
                batch += matching
                if page.more and not self._satisfied(page.tag):
                    following.append(Request(size, tag=page.tag, after=page.last or self.after))
            requests = following
            if batch:
                yield batch

    def _matching(self, page: BucketPage) -> list[Row]:
        found = [row for row in page.rows if self.admits(row)]
        if self.enough is not None:
            found = found[: self.enough - self._given[page.tag]]
        self._given[page.tag] += len(found)
        return found

    def _satisfied(self, tag: str) -> bool:
        return self.enough is not None and self._given[tag] >= self.enough

    def admits(self, row: Row) -> bool:
        selected, fields = self.selected, row.fields
        key = fields.get("key")
        return (
            selected.scope.sees(fields.get("owner"))
            and (not self.active or fields["status"] == "active")
            and (selected.statuses is None or fields["status"] in selected.statuses)
            and (selected.ids is None or row.id in selected.ids)
            and (selected.key_prefix is None or beneath(key, selected.key_prefix))
            and (not selected.arrived or "arrival" in fields)
            and selected.where.matches(fields)
            and (selected.words is None or holds(row.content, selected.words))
        )

    def _ids(self) -> list[str] | None:
        if self.selected.ids is not None:
            return list(dict.fromkeys(self.selected.ids))
        named = self.selected.where.only("id")
        return None if named is None else list(dict.fromkeys(n for n in named if isinstance(n, str)))

    def _owners(self) -> list[str | None] | None:
        """The owners whose records may match, or None when it may be anybody's."""
        readable = self.selected.scope.readable
        named = self.selected.where.only("owner")
        if named is None:
            return None if readable is None else list(readable)
        return [owner for owner in _names(named) if self.selected.scope.sees(owner)]

    def _pins(self, count: int) -> list[Request] | None:
        """A request for each bucket that the filter pins, or None when it pins none."""
        named = self.selected.where.only("session")
        if named is None:
            return None
        owners = self._owners()
        sessions = _names(named)
        if owners is None:
            return [Request(count, session=encode(session), after=self.after) for session in sessions]
        return [
            Request(count, tag=bucket_tag(owner, session), after=self.after)
            for session in sessions
            for owner in owners
        ]

    def _first_page(self) -> int:
        """How many records to ask a pinned bucket for: exactly what is wanted if nothing else filters."""
        selected = self.selected
        bare = selected.where.without("session").without("owner") == Where()
        narrowed = (selected.key_prefix, selected.words, selected.statuses)
        exact = bare and not selected.arrived and all(one is None for one in narrowed)
        return min(REPLAY, self.enough) if exact and self.enough is not None else REPLAY


def _names(values: Sequence[Scalar]) -> list[str | None]:
    return list(dict.fromkeys(v for v in values if v is None or isinstance(v, str)))
