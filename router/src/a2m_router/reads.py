"""Reads over all tiers at once: each record once, none missed in mid-move, and whoever was silent named."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Capability, Record
from a2m_protocol.where import Scalar
from a2m_retrieval.text import query_terms
from a2m_router import merge
from a2m_router.coordination import Readers
from a2m_router.counts import Counts
from a2m_router.rankers import Query
from a2m_router.ranking import Ranking
from a2m_router.tiers import Member, Tiers, ask, ask_all
from a2m_router.vectors import Vectors
from a2m_server.values import Degraded, Entry, Fetched, Filter, Found, Page, Scope, Search, Sessions

MARKED = 100_000
CANDIDATES = 150
"""How many records each tier gives to be ranked together, where a query is asked in words."""
RECENT = 4
COORDINATION = "coordination"
"""Named like a tier where the database is silent that several routers share."""
EMBEDDER = "embedder"
"""Named like a tier where a query goes without a vector, so that words alone find anything."""


class Reading:
    """What `Federation` answers to those who read."""

    def __init__(
        self, tiers: Tiers, readers: Readers, vectors: Vectors, ranking: Ranking, counts: Counts
    ) -> None:
        self._tiers = tiers
        self._ranking = ranking
        self._readers = readers
        self._vectors = vectors
        self._counts = counts
        self._marked: OrderedDict[Scalar, None] = OrderedDict()

    async def search(self, search: Search) -> Found:
        members, where = self._tiers.readable(search.filter.tier, search.filter.where)
        if search.filter.tier is None:
            members = [member for member in members if member.config.recall]
        if search.filter.keyed:
            members = [member for member in members if member.has(Capability.KEYS)]
        if search.embedding is not None and search.text is None:
            members = [member for member in members if member.has(Capability.EMBEDDINGS)]
        asked = replace(search, filter=replace(search.filter, where=where, tier=None), explain=False)
        by_words = replace(asked, embedding=None)
        query, began = Query(search.text or ""), time.perf_counter()
        telling = False
        unseen: list[Degraded] = []
        if search.text is not None and search.embedding is None:
            # Stop words alone ask for nothing, and every record is somewhere near to them.
            telling = bool(query_terms(search.text))
            if telling:
                try:
                    query = Query(search.text, await self._vectors.query(search.text))
                except A2MError as error:
                    if any(self._vectors.fits(member) for member in members):
                        unseen.append(Degraded(EMBEDDER, f"found by words alone: {error.message}"))
            seen = query.encoded is not None and query.encoded.tokens is not None
            most = max(search.limit, CANDIDATES)
            asked = by_words = replace(by_words, limit=most, least=search.limit, features=seen)
        ours = query.encoded
        if ours is not None:
            asked = replace(asked, embedding=ours.vector, embedding_model=self._vectors.model)

        async def ask_one(member: Member) -> Found:
            able = member.has(Capability.EMBEDDINGS) if ours is None else self._vectors.fits(member)
            try:
                return await member.store.search(asked if able else by_words)
            except A2MError as error:
                if ours is None or error.code != Code.EMBEDDING_MISMATCH:
                    raise
            # Another router changed the width of its vectors.
            await member.learn()
            return await member.store.search(by_words)

        embedded = time.perf_counter()
        with self._readers.reading():
            (answers, silent), recent = await asyncio.gather(
                ask(members, ask_one), self._recent(members, by_words if telling else None)
            )
        asked_all = time.perf_counter()
        found = await self._ranking.merged(search, query, answers, recent)
        self._count(answers, found)
        took = {
            "embed": embedded - began,
            "tiers": asked_all - embedded,
            "rank": time.perf_counter() - asked_all,
        }
        return replace(found, degraded=self._without([*silent, *unseen]), took=took)

    async def _recent(self, members: Sequence[Member], asked: Search | None) -> list[Record]:
        """The newest of where records land, which what is asked may be about without a word in common."""
        if asked is None or self._tiers.read_only or self._tiers.entry not in members:
            return []
        newest = replace(asked, text=None, embedding=None, limit=RECENT, least=None)
        entry = self._tiers.entry
        answers, _ = await ask([entry], lambda member: member.store.search(newest))
        return [*merge.distinct({tier: found.records for tier, found in answers.items()}).values()]

    async def timeline(self, page: Page) -> Found:
        members, where = self._tiers.readable(page.filter.tier, page.filter.where)
        if page.filter.ids is not None or page.filter.words is not None:
            members = [member for member in members if member.movable]
        if page.filter.keyed:
            members = [member for member in members if member.has(Capability.KEYS)]
        asked = replace(page, filter=replace(page.filter, where=where, tier=None))

        async def ask_one(member: Member) -> Found:
            return await member.store.timeline(asked)

        with self._readers.reading():
            first = self._enough(page.filter, members)
            answers, silent = await ask(first, ask_one)
            rest = [member for member in members if member not in first]
            if rest and (silent or any(found.elsewhere for found in answers.values())):
                self.mark(page.filter.where.only("session") or ())
                more, also_silent = await ask(rest, ask_one)
                answers, silent = answers | more, silent + also_silent
        records = {tier: found.records for tier, found in answers.items()}
        return Found(merge.in_order(records, page.limit), degraded=self._without(silent))

    def _enough(self, selected: Filter, members: list[Member]) -> list[Member]:
        """Whom a timeline asks first: of a session that never had records elsewhere, not the tiers below.

        Tiers that have no part in moves keep no such mark, and are asked always.
        """
        sessions = selected.where.only("session")
        if sessions is None or self._tiers.read_only or any(session in self._marked for session in sessions):
            return members
        entry = self._tiers.entry
        return [m for m in members if m is entry or not m.movable] if entry in members else members

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        members = [member for member in self._tiers.members if member.has(Capability.KEYS)]
        # A tier that is told of no owner does not know whose fact comes first.
        own = [Scope.of(scope.owner)] if scope.readable is None and scope.owner is not None else []

        async def ask_one(member: Member) -> list[Record]:
            asked = (member.store.fetch(key, one, vectors=vectors) for one in [*own, scope])
            return [f.record for f in await asyncio.gather(*asked) if f.record is not None]

        with self._readers.reading():
            answers, silent = await ask(members, ask_one)
        found = merge.distinct(answers)
        best = min(
            found.values(),
            key=lambda r: (r.owner != scope.owner, r.owner is not None, -r.revision, -r.moves, r.seq, r.id),
            default=None,
        )
        return Fetched(best, self._without(silent))

    async def sessions(self, scope: Scope) -> Sessions:
        members = [member for member in self._tiers.members if member.has(Capability.SESSIONS)]
        answers, silent = await ask(members, lambda member: member.store.sessions(scope))
        infos = {tier: listed.sessions for tier, listed in answers.items()}
        return Sessions(merge.sessions(infos), self._without(silent))

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        members, where = self._tiers.readable(selected.tier, selected.where)
        if selected.without is not None:
            await self._tiers.learn()
            members = self._tiers.embedding(selected.tier, members)
        asked = replace(selected, where=where, tier=None)
        with self._readers.reading():
            answers = await ask_all(
                [m for m in members if m.movable], lambda member: member.store.entries(asked, limit, after)
            )
        distinct = {entry.id: entry for entries in answers.values() for entry in entries}
        return sorted(distinct.values(), key=lambda entry: (entry.seq, entry.id))[:limit]

    async def read(self, ids: Sequence[str]) -> list[Record]:
        with self._readers.reading():
            answers = await ask_all(self._tiers.movable(), lambda member: member.store.read(ids))
        found = merge.distinct(answers)
        return [found[i] for i in dict.fromkeys(ids) if i in found]

    def mark(self, sessions: Iterable[Scalar]) -> None:
        """Remember that sessions have records elsewhere: their next timeline asks all tiers at once."""
        for session in sessions:
            self._marked[session] = None
        while len(self._marked) > MARKED:
            self._marked.popitem(last=False)

    def _count(self, answers: Mapping[str, Found], found: Found) -> None:
        """How often each tier is of use to those who recall."""
        used = {record.tier for record in found.records}
        for tier, answer in answers.items():
            self._counts.recalled.labels(tier).inc()
            if answer.records:
                self._counts.hit.labels(tier).inc()
            if tier in used:
                self._counts.used.labels(tier).inc()

    def _without(self, silent: Sequence[Degraded]) -> tuple[Degraded, ...]:
        """What an answer has to say of those that had no part in it, each counted."""
        silent = [*silent]
        if self._readers.cut_off is not None:
            silent.append(Degraded(COORDINATION, self._readers.cut_off))
        for degraded in silent:
            self._counts.silent.labels(degraded.tier).inc()
        return tuple(silent)
