"""The federation: many tiers behind the port of one store."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from a2m_protocol.types import Capability, Draft, Record
from a2m_protocol.where import Scalar
from a2m_router import merge
from a2m_router.coordination import Clock, Locks, Readers, entry_locks
from a2m_router.forgets import Forgetter
from a2m_router.keeper import Keeper
from a2m_router.moves import Moved, Mover, Tier, every_entry
from a2m_router.policy import Unit, newest, units
from a2m_router.repair import Repairer
from a2m_router.tiers import Member, Tiers, ask, ask_all
from a2m_router.writes import Placer
from a2m_server.events import EventLog
from a2m_server.store import (
    Consolidated,
    Entry,
    Filter,
    Forgotten,
    Found,
    Page,
    Scope,
    Search,
    SessionInfo,
    StoreInfo,
    Written,
)

EXTENSIONS = frozenset({"transfer", "list", "touch"})
MARKED = 100_000


class Federation:
    """A `TieredStore` over tiers that are stores themselves, on the wire or in this process.

    `interval` is the pause between sweeps in seconds; `clock` gives microseconds since 1970.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        events: EventLog,
        *,
        locks: Locks | None = None,
        readers: Readers | None = None,
        interval: float = 30.0,
        clock: Clock = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._name = name
        self._tiers = Tiers(members)
        self._locks = locks or Locks()
        self._readers = readers or Readers()
        self._mover = Mover(self._locks, self._readers)
        self._forgetter = Forgetter(self._tiers, self._readers, clock)
        self._repairer = Repairer(self._tiers, self._locks)
        self._placer = Placer(self._tiers, self._locks, self._readers, self._repairer, clock)
        self._keeper = Keeper(
            self._tiers,
            self._mover,
            self._forgetter,
            self._repairer,
            events,
            interval=interval,
            clock=clock,
        )
        self._marked: OrderedDict[Scalar, None] = OrderedDict()
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await asyncio.gather(*(member.store.open() for member in self._tiers.members))
        await self._tiers.learn()
        if not self._tiers.read_only:
            self._keeping = asyncio.create_task(self._keeper.run())

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        await asyncio.gather(*(member.store.close() for member in self._tiers.members))

    async def ready(self) -> None:
        await ask_all(self._tiers.members, lambda member: member.store.ready())

    async def info(self) -> StoreInfo:
        known = [member.info for member in self._tiers.members if member.info is not None]
        metrics = set[str].intersection(*(set(info.metrics) for info in known)) if known else {"cosine"}
        first = known[0] if known else None
        return StoreInfo(
            name=self._name,
            capabilities=frozenset(Capability),
            extensions=EXTENSIONS,
            tiers=tuple(member.config.info() for member in self._tiers.members),
            read_only=self._tiers.read_only,
            dimensions=self._tiers.width,
            metric=first.metric if first else "cosine",
            metrics=tuple(sorted(metrics)),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        answers, _ = await ask(self._tiers.members, lambda member: member.store.counts(scope))
        return {tier: sum(counts.values()) for tier, counts in answers.items()}

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        first_vectors = self._tiers.check_width(drafts)
        entry = self._tiers.entry
        if all(draft.key is None and draft.tier in (None, entry.name) for draft in drafts):
            written = [_settled(w, entry.name) for w in await entry.store.write(drafts, scope)]
        else:
            written = await self._placer.write(drafts, scope)
            written = await self._place_given(drafts, written, scope)
            self._mark_elsewhere(drafts, written)
        self._keeper.wrote(drafts, written)
        if first_vectors:
            await self._learn_width()
        return written

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        """Take records in as they were: an import or a restore."""
        first_vectors = self._tiers.check_width(drafts)
        entry = self._tiers.entry
        if all(draft.key is None and draft.tier in (None, entry.name) for draft in drafts):
            written = [replace(w, tier=w.tier or entry.name) for w in await entry.store.transfer(drafts)]
        else:
            written = await self._placer.transfer(drafts)
            self._mark_elsewhere(drafts, written)
        self._keeper.wrote(drafts, written)
        if first_vectors:
            await self._learn_width()
        return written

    async def search(self, search: Search) -> Found:
        members, where = self._tiers.readable(search.filter.tier, search.filter.where)
        if search.filter.tier is None:
            members = [member for member in members if member.config.recall]
        asked = replace(search, filter=replace(search.filter, where=where, tier=None))
        with self._readers.reading():
            answers, silent = await ask(members, lambda member: member.store.search(asked))
        records = {tier: found.records for tier, found in answers.items()}
        if search.text is None and search.embedding is None:
            return Found(merge.by_recency(records, search.limit), degraded=tuple(silent))
        return Found(merge.by_rank(records, search.limit), degraded=tuple(silent))

    async def timeline(self, page: Page) -> Found:
        members, where = self._tiers.readable(page.filter.tier, page.filter.where)
        asked = replace(page, filter=replace(page.filter, where=where, tier=None))
        sessions = page.filter.where.only("session")
        answers: dict[str, Found] = {}
        with self._readers.reading():
            if sessions is not None and not self._tiers.read_only and self._tiers.entry in members:
                entry = self._tiers.entry
                if entry.movable and not any(session in self._marked for session in sessions):
                    answers, silent = await ask([entry], lambda member: member.store.timeline(asked))
                    if not silent and not answers[entry.name].elsewhere:
                        return Found(_placed(answers[entry.name].records, entry.name))
                    members = [member for member in members if member is not entry or silent]
                    self._mark(sessions)
            more, silent = await ask(members, lambda member: member.store.timeline(asked))
        records = {tier: found.records for tier, found in (answers | more).items()}
        return Found(merge.in_order(records, page.limit), degraded=tuple(silent))

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Record | None:
        with self._readers.reading():
            answers = await ask_all(
                self._tiers.members, lambda member: member.store.fetch(key, scope, vectors=vectors)
            )
        found = merge.distinct({tier: [record] for tier, record in answers.items() if record is not None})
        own = [record for record in found.values() if record.owner == scope.owner]
        best: Record | None = None
        for record in own or found.values():
            best = record if best is None else newest(best, record)
        return best

    async def forget(self, selected: Filter) -> Forgotten:
        return await self._forgetter.forget(selected)

    async def sessions(self, scope: Scope) -> list[SessionInfo]:
        answers, _ = await ask(self._tiers.members, lambda member: member.store.sessions(scope))
        return merge.sessions(answers)

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        """Add to the salience of records wherever they are; no move of them is under way meanwhile."""
        asked = Filter(scope, ids=tuple(dict.fromkeys(ids)))
        await self._repairer.settle(asked.ids or ())
        held = await self._located(asked)
        async with self._locks.hold(name for e in _entries(held) for name in entry_locks(e)):
            held = await self._located(asked)
            members = [self._tiers.get(tier) for tier in held]

            async def add(member: Member) -> int:
                return await member.store.reinforce([e.id for e in held[member.name]], amount, scope)

            return sum((await ask_all(members, add)).values())

    async def touch(self, ids: Sequence[str], at: str) -> None:
        writable = [member for member in self._tiers.members if member.movable]
        await ask(writable, lambda member: member.store.touch(ids, at))

    async def promote(self, ids: Sequence[str], tier: str, salience: float, scope: Scope) -> int:
        wanted = set(ids)
        moved = await self._move(Filter(scope, ids=tuple(dict.fromkeys(ids))), tier, salience)
        return len(wanted.intersection(moved.ids))

    async def consolidate(self) -> Consolidated:
        return (await self._keeper.consolidate())[0]

    async def close_session(self, session: str, scope: Scope) -> tuple[Consolidated, int]:
        flushed = await self._keeper.close_session(session, scope)
        self._mark((session,))
        return Consolidated(moved=flushed), flushed

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        members, where = self._tiers.readable(selected.tier, selected.where)
        asked = replace(selected, where=where, tier=None)
        with self._readers.reading():
            answers = await ask_all(
                [m for m in members if m.movable], lambda member: member.store.entries(asked, limit, after)
            )
        distinct = {entry.id: entry for entry in _entries(answers)}
        return sorted(distinct.values(), key=lambda entry: (entry.seq, entry.id))[:limit]

    async def read(self, ids: Sequence[str]) -> list[Record]:
        with self._readers.reading():
            answers = await ask_all(self._tiers.movable(), lambda member: member.store.read(ids))
        found = merge.distinct(answers)
        return [found[i] for i in dict.fromkeys(ids) if i in found]

    async def _learn_width(self) -> None:
        await ask(self._tiers.members, lambda member: member.learn())

    async def _place_given(
        self, drafts: Sequence[Draft], written: list[Written], scope: Scope
    ) -> list[Written]:
        """Move what a keyed write found in another tier than the one it asked for."""
        placed = list(written)
        for at, (draft, wrote) in enumerate(zip(drafts, written, strict=True)):
            if wrote.outcome == "replaced" and draft.tier is not None and wrote.tier != draft.tier:
                moved = await self._move(Filter(scope, ids=(wrote.id,)), draft.tier, 0.0)
                if wrote.id in moved.ids:
                    placed[at] = replace(wrote, tier=draft.tier)
        return placed

    async def _move(self, selected: Filter, tier: str, salience: float) -> Moved:
        target = self._tiers.get(tier)
        done = Moved()
        for source, entries in (await self._located(selected)).items():
            if source == tier:
                continue
            whole: list[Unit] = units(entries)
            member = self._tiers.get(source)
            done.add(
                await self._mover.move(
                    whole, Tier(source, member.store), Tier(tier, target.store), salience=salience
                )
            )
        return done

    async def _located(self, selected: Filter) -> dict[str, list[Entry]]:
        """Matching entries by the tier that holds them; of two copies, where the further moved one is."""
        with self._readers.reading():
            answers = await ask_all(self._tiers.movable(), lambda member: every_entry(member.store, selected))
        best: dict[str, tuple[str, Entry]] = {}
        for tier, entries in answers.items():
            for entry in entries:
                if entry.id not in best or entry.moves > best[entry.id][1].moves:
                    best[entry.id] = (tier, entry)
        held: dict[str, list[Entry]] = {}
        for tier, entry in best.values():
            held.setdefault(tier, []).append(entry)
        return held

    def _mark_elsewhere(self, drafts: Sequence[Draft], written: Sequence[Written]) -> None:
        entry = self._tiers.entry.name
        self._mark(d.session for d, w in zip(drafts, written, strict=True) if w.tier not in (None, entry))

    def _mark(self, sessions: Iterable[Scalar]) -> None:
        """Remember that sessions have records elsewhere: their next timeline asks all tiers at once."""
        for session in sessions:
            self._marked[session] = None
        while len(self._marked) > MARKED:
            self._marked.popitem(last=False)


def _settled(wrote: Written, tier: str) -> Written:
    """A write to working as the federation answers it: an id that moved on exists."""
    if wrote.outcome == "moved":
        return replace(wrote, outcome="existing")
    return replace(wrote, tier=tier)


def _placed(records: Sequence[Record], tier: str) -> list[Record]:
    return [record.model_copy(update={"tier": tier}) for record in records]


def _entries(answers: dict[str, list[Entry]]) -> list[Entry]:
    return [entry for entries in answers.values() for entry in entries]
