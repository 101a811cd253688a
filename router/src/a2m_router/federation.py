"""The federation: many tiers behind the port of one store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import replace

from a2m_protocol.errors import A2MError, Code, not_supported
from a2m_protocol.types import Capability, Draft, Record
from a2m_retrieval.cross import CrossEncoder
from a2m_retrieval.embed.port import Embedder
from a2m_router import merge, moves
from a2m_router.belief import Belief, Trust, told
from a2m_router.coordination import Clock, Locks, Readers
from a2m_router.counting import Counting
from a2m_router.counts import Counts
from a2m_router.embedding import Embedding
from a2m_router.forgets import Forgetter
from a2m_router.graves import Graves
from a2m_router.inspector import Inspector
from a2m_router.keeper import Keeper
from a2m_router.listing import every_entry
from a2m_router.moves import Moved, Mover, pause
from a2m_router.places import Places
from a2m_router.policy import units
from a2m_router.rankers import CrossRanker, Ranker, Reranker
from a2m_router.ranking import Ranking
from a2m_router.reads import COORDINATION, Reading
from a2m_router.relocation import Mount, Relocator
from a2m_router.repair import Repairer
from a2m_router.review import Reviewer
from a2m_router.steps import Observer, unobserved
from a2m_router.tiers import Member, Tiers, ask, ask_all
from a2m_router.vectors import Vectors
from a2m_router.writes import Placer
from a2m_server.events import Events
from a2m_server.values import (
    Buried,
    Consolidated,
    Degraded,
    Embedded,
    Entry,
    Erased,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Page,
    Relocated,
    Scope,
    Search,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)

CARRYING = frozenset({"transfer", "list", "touch", "tombstones", "held"})
EXTENSIONS = CARRYING | {"context", "trace", "purge", "pending", "approve", "reject"}
ALL = frozenset(Capability)


class Federation:
    """A `TieredStore` over tiers that are stores themselves, on the wire or in this process.

    `interval` is the pause between sweeps in seconds; `clock` gives microseconds since 1970. `observer` is
    told of each step that crosses tiers, and what it does not return from does not go on. `shared` is what
    this router has in common with others (its locks, readers and events), opened before the tiers. `embedder`
    makes the vectors of what leaves working and of queries that come without one; `cross_encoder` ranks what
    the tiers find, before what the embedder kept of each record does. `trust` says how much sources are
    trusted, in recall and where the policy of a tier asks for evidence. `mount` reaches a service to which a
    tier is to be moved, and `places` keeps where it is then.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        events: Events,
        *,
        locks: Locks | None = None,
        readers: Readers | None = None,
        interval: float = 30.0,
        clock: Clock = lambda: time.time_ns() // 1_000,
        observer: Observer = unobserved,
        counts: Counts | None = None,
        shared: AbstractAsyncContextManager[object] | None = None,
        embedder: Embedder | None = None,
        cross_encoder: CrossEncoder | None = None,
        trust: Trust | None = None,
        mount: Mount | None = None,
        places: Places | None = None,
    ) -> None:
        counts = counts or Counts()
        counts.expect(member.config for member in members)
        self._shared = shared or nullcontext()
        self._opened = AsyncExitStack()
        self._name = name
        self._tiers = Tiers(members)
        self._belief = Belief({m.name: m.config.policy for m in members}, trust or Trust())
        self._locks = locks or Locks()
        self._readers = readers or Readers()
        self._vectors = Vectors(embedder, counts)
        self._mover = Mover(self._locks, self._readers, observer, counts, self._vectors, self._belief)
        self._forgetter = Forgetter(self._tiers, self._locks, self._readers, clock, observer)
        self._counting = Counting(self._tiers, self._locks, self._readers)
        self._graves = Graves(self._tiers, self._locks, self._readers)
        self._inspector = Inspector(self._tiers)
        self._relocator = None
        if mount is not None:
            kept = places or Places(None)
            self._relocator = Relocator(self._tiers, self._locks, self._readers, mount, kept)
        self._repairer = Repairer(self._tiers, self._locks, self._readers, counts)
        self._placer = Placer(
            self._tiers, self._locks, self._readers, self._repairer, clock, observer, self._belief
        )
        self._reviewer = Reviewer(
            self._tiers, self._locks, self._readers, self._repairer, self._placer, self._belief, counts
        )
        self._keeper = Keeper(
            self._tiers,
            self._mover,
            self._forgetter,
            self._repairer,
            events,
            reviewer=self._reviewer,
            locks=self._locks,
            counts=counts,
            interval=interval,
            clock=clock,
        )
        self._embedding = Embedding(
            self._tiers, self._vectors, locks=self._locks, counts=counts, interval=interval
        )
        self._cross_encoder = cross_encoder
        rankers: list[Ranker] = [] if cross_encoder is None else [CrossRanker(cross_encoder)]
        known = trust is not None and trust.knows
        ranking = Ranking([*rankers, Reranker(self._vectors)], clock, trust.of if trust and known else None)
        self._reading = Reading(self._tiers, self._readers, self._vectors, ranking, counts)
        for member in members:
            counts.open.labels(member.name).set_function(lambda m=member: m.silence() is not None)
        self._background: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(self._shared)
            await self._vectors.open()
            opened.push_async_callback(self._vectors.close)
            if self._cross_encoder is not None:
                await self._cross_encoder.open()
                opened.push_async_callback(self._cross_encoder.close)
            await asyncio.gather(*(member.store.open() for member in self._tiers.members))
            await self._tiers.learn()
            self._opened = opened.pop_all()
        if not self._tiers.read_only:
            self._background = [
                asyncio.create_task(work) for work in (self._keeper.run(), self._embedding.run())
            ]

    async def close(self) -> None:
        try:
            if self._relocator is not None:
                await self._relocator.close()
            for task in self._background:
                task.cancel()
            for task in self._background:
                with suppress(asyncio.CancelledError):
                    await task
        finally:
            await asyncio.gather(*(member.store.close() for member in self._tiers.members))
            await self._opened.aclose()

    async def ready(self) -> Sequence[Degraded]:
        """Return when turns can be taken: the tier where records land answers; without one, any tier.

        The others are not waited for: those are named that are known not to answer.
        """
        members = self._tiers.members if self._tiers.read_only else [self._tiers.entry]
        answers, silent = await ask(members, lambda member: member.store.ready())
        if not answers:
            raise A2MError(Code.INTERNAL, silent[0].reason, {"retryable": True})
        silences = {member.name: member.silence() for member in self._tiers.members}
        silences[COORDINATION] = self._readers.cut_off
        return [Degraded(name, reason) for name, reason in silences.items() if reason is not None]

    async def info(self) -> StoreInfo:
        known = [member.info for member in self._tiers.members if member.info is not None]
        metrics = set[str].intersection(*(set(info.metrics) for info in known)) if known else {"cosine"}
        first = known[0] if known else None
        return StoreInfo(
            name=self._name,
            capabilities=ALL if self._tiers.scoped else ALL - {Capability.SCOPES},
            extensions=EXTENSIONS
            | self._inspector.extensions
            | self._embedding.extensions
            | frozenset([] if self._relocator is None else ["relocate"]),
            tiers=tuple(member.config.info() for member in self._tiers.members),
            read_only=self._tiers.read_only,
            dimensions=self._tiers.width or self._vectors.dimensions,
            embedding_model=self._vectors.model,
            metric=first.metric if first else "cosine",
            metrics=tuple(sorted(metrics)),
            reembed=self._embedding.due,
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        answers, _ = await ask(self._tiers.members, lambda member: member.store.counts(scope))
        return {tier: sum(counts.values()) for tier, counts in answers.items()}

    async def held(self, owner: str | None) -> dict[str, int]:
        """The bytes an owner holds in each tier of ours that answers.

        The tiers below come first: what a move brings there meanwhile is not counted a second time where it
        came from, for it is gone from there only when its copy is done.
        """
        held: dict[str, int] = {}
        with self._readers.reading():
            for member in reversed(self._tiers.movable()):
                if member.info is None or "held" in member.info.extensions:
                    answers, _ = await ask([member], lambda member: member.store.held(owner))
                    held |= {name: sum(tiers.values()) for name, tiers in answers.items()}
        return held

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        first_vectors = await self._check_width(drafts)
        entry = self._tiers.entry
        if all(draft.key is None and draft.tier in (None, entry.name) for draft in drafts):
            self._tiers.check_taken(entry, drafts)
            entering = self._belief.entering(drafts, [[entry.name]] * len(drafts))
            written = [_settled(w, entry.name) for w in await entry.store.write(entering, scope)]
            written = told(entering, written)
        else:
            written = await self._placer.write(drafts, scope)
            written = await self._place_given(drafts, written, scope)
            self._mark_elsewhere(drafts, written)
            self._embedding.wake()
        self._keeper.wrote(drafts, written)
        if first_vectors:
            await self._learn_width()
        return written

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        """Take records in as they were: an import or a restore.

        Of what has moved before, working's tombstones may know less than the record: all tiers are asked.
        """
        first_vectors = await self._check_width(drafts)
        entry = self._tiers.entry
        if all(d.key is None and d.moves == 0 and d.tier in (None, entry.name) for d in drafts):
            written = [replace(w, tier=w.tier or entry.name) for w in await entry.store.transfer(drafts)]
        else:
            written = await self._placer.transfer(drafts)
            self._mark_elsewhere(drafts, written)
            self._embedding.wake()
        self._keeper.wrote(drafts, written)
        if first_vectors:
            await self._learn_width()
        return written

    async def search(self, search: Search) -> Found:
        return await self._reading.search(search)

    async def timeline(self, page: Page) -> Found:
        return await self._reading.timeline(page)

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        return await self._reading.fetch(key, scope, vectors=vectors)

    async def sessions(self, scope: Scope) -> Sessions:
        return await self._reading.sessions(scope)

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        return await self._reading.entries(selected, limit, after)

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return await self._reading.read(ids)

    async def forget(self, selected: Filter) -> Forgotten:
        return await self._inspector.with_history(await self._forgetter.forget(selected))

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        return await self._inspector.remnants(ids)

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        return await self._inspector.erase(ids, dry=dry)

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        return await self._counting.reinforce(ids, amount, scope)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self._counting.touch(ids, at)

    async def promote(
        self, ids: Sequence[str], tier: str, salience: float, scope: Scope
    ) -> dict[str, str | None]:
        selected = Filter(scope, ids=tuple(dict.fromkeys(ids)))
        await self._reviewer.check_promoted(selected, self._tiers.target(tier))
        moved = await self._move(selected, tier, salience)
        if moved.failed is not None:
            raise moved.failed
        return {i: moved.ids[i] for i in dict.fromkeys(ids) if i in moved.ids}

    async def consolidate(self) -> Consolidated:
        return await self._keeper.consolidate()

    async def close_session(self, session: str, scope: Scope) -> Consolidated:
        result = await self._keeper.close_session(session, scope)
        self._reading.mark((session,))
        return result

    async def approve(self, ids: Sequence[str], scope: Scope, by: str) -> dict[str, str | None]:
        return await self._reviewer.approve(ids, scope, by)

    async def reembed(self, tier: str | None) -> Embedded:
        return await self._embedding.reembed(tier)

    async def relocate(self, tier: str, url: str, *, pause: float, dry: bool = False) -> Relocated:
        if self._relocator is None:
            raise not_supported("the tiers of this federation have no other place to go to")
        return await self._relocator.relocate(tier, url, pause=pause, dry=dry)

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        return await self._graves.listed(limit, after)

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return await self._graves.of(ids)

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        return await self._graves.bury(tombstones)

    async def _check_width(self, drafts: Sequence[Draft]) -> bool:
        """`Tiers.check_width`, by what the tiers say now before anything is refused."""
        try:
            return self._tiers.check_width(drafts)
        except A2MError:
            await self._learn_width()
            return self._tiers.check_width(drafts)

    async def _learn_width(self) -> None:
        await ask(self._tiers.members, lambda member: member.learn())

    async def _place_given(
        self, drafts: Sequence[Draft], written: list[Written], scope: Scope
    ) -> list[Written]:
        """Move what a keyed write found in another tier than the one that it asked for, at last."""
        pairs = [*zip(drafts, written, strict=True)]
        here = {wrote.id: wrote.tier for wrote in written}
        asked = {w.id: d.tier for d, w in pairs if w.outcome == "replaced" and d.tier is not None}
        for record_id, tier in asked.items():
            if here[record_id] != tier:
                moved = await self._move(Filter(scope, ids=(record_id,)), tier, 0.0)
                if record_id in moved.ids:
                    here[record_id] = tier
        return [replace(wrote, tier=here[wrote.id]) if wrote.id in asked else wrote for wrote in written]

    async def _move(self, selected: Filter, tier: str, salience: float) -> Moved:
        """Move what is not in a tier yet; again where what stayed was being embedded, counted or moved."""
        target = self._tiers.target(tier)
        done = Moved()
        for attempt in range(moves.ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause(attempt))
            now = Moved()
            for source, entries in (await self._located(selected)).items():
                if source != tier:
                    moving = units(entries)
                    member = self._tiers.get(source)
                    now.add(await self._mover.move(moving, member, target, salience=salience))
            done.ids |= now.ids
            done.stayed, done.failed = now.stayed, now.failed
            if not now.under_way:
                break
        return done

    async def _located(self, selected: Filter) -> dict[str, list[Entry]]:
        """Matching entries by the tier that holds them; of two copies, where the further moved one is."""
        with self._readers.reading():
            return merge.furthest(
                await ask_all(self._tiers.movable(), lambda member: every_entry(member.store, selected))
            )

    def _mark_elsewhere(self, drafts: Sequence[Draft], written: Sequence[Written]) -> None:
        entry = self._tiers.entry.name
        self._reading.mark(
            d.session for d, w in zip(drafts, written, strict=True) if w.tier not in (None, entry)
        )


def _settled(wrote: Written, tier: str) -> Written:
    """A write to working as the federation answers it: an id that moved on exists."""
    if wrote.outcome == "moved":
        return replace(wrote, outcome="existing")
    return replace(wrote, tier=tier)
