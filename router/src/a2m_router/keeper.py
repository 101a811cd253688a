"""Policy at work: spills, promotions and the closing of sessions, in the background and when asked."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_protocol.where import Condition, Op, Where
from a2m_router import moves
from a2m_router.coordination import Clock, Locks
from a2m_router.counts import Counts
from a2m_router.forgets import Forgetter
from a2m_router.listing import any_of, every_entry, first_entries, group_members
from a2m_router.moves import Moved, Mover, pause
from a2m_router.policy import Unit, overflow, units
from a2m_router.repair import Repairer
from a2m_router.reunion import Reunion
from a2m_router.review import Reviewer
from a2m_router.tiers import Member, Tiers
from a2m_server import events, tracing
from a2m_server.events import Events
from a2m_server.values import EVERYONE, Consolidated, Entry, Filter, Scope, Written

Bucket = tuple[str | None, str | None]

REMEMBERED = 10_000
WORKERS = 4
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
OVERLAP = 120_000_000
"""Microseconds that a look for grown groups goes back beyond the last one: longer than a move takes."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Kept:
    """What a round of keeping did."""

    moved: Moved = field(default_factory=Moved)
    promoted: Moved = field(default_factory=Moved)
    dropped: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def told(self) -> Consolidated:
        return Consolidated(self.moved.ids, self.promoted.ids, self.dropped)


class Keeper:
    """Keeps each tier within its policy.

    `wrote` is called in the path of a turn and only counts; everything else happens in `run`'s tasks or in
    the calls that ask for it. `interval` is the pause between sweeps in seconds.
    """

    def __init__(
        self,
        tiers: Tiers,
        mover: Mover,
        forgetter: Forgetter,
        repairer: Repairer,
        log_to: Events,
        *,
        reviewer: Reviewer,
        locks: Locks,
        counts: Counts,
        interval: float,
        clock: Clock,
    ) -> None:
        self._tiers = tiers
        self._mover = mover
        self._forgetter = forgetter
        self._repairer = repairer
        self._reviewer = reviewer
        self._reunion = Reunion(tiers, mover)
        self._events = log_to
        self._locks = locks
        self._counted = counts
        counts.waiting.set_function(lambda: len(self._due.keys() | self._pauses.keys()))
        self._interval = interval
        self._clock = clock
        self._counts: OrderedDict[Bucket, int] = OrderedDict()
        self._due: OrderedDict[Bucket, None] = OrderedDict()
        self._pauses: dict[Bucket, float] = {}
        self._parting = False
        self._looked: int | None = None
        self._wake = asyncio.Event()

    def wrote(self, drafts: Sequence[Draft], written: Sequence[Written]) -> None:
        """Count what a write added to the working tier, and mark what the background has to look at."""
        config = self._tiers.entry.config
        for draft, wrote in zip(drafts, written, strict=True):
            if wrote.outcome not in ("created", "replaced"):
                continue
            rewritten = wrote.outcome == "replaced"
            elsewhere = wrote.tier not in (None, config.name)
            # What is rewritten may join another group, wherever it is.
            if draft.group is not None and (elsewhere or wrote.elsewhere or rewritten):
                self._part(draft.owner, draft.group)
            if rewritten or elsewhere or not config.capacity or config.spill_to is None:
                continue
            bucket = (draft.owner, draft.session) if config.per_session else (None, None)
            count = self._counts.pop(bucket, None)
            if count is not None:
                self._counts[bucket] = count + 1
            if (count is None or count + 1 > config.capacity) and bucket not in self._pauses:
                self._due[bucket] = None
                self._wake.set()

    async def run(self) -> None:
        """Spill what is marked and sweep now and then, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweeping())
            for _ in range(WORKERS):
                tasks.create_task(self._spilling())

    async def consolidate(self) -> Consolidated:
        """Settle what moves left, promote what was earned, then bring every tier to its capacity.

        What one tier keeps from being done is raised at the end, when all else is done.
        """
        kept = Kept()
        movable = self._tiers.movable()
        stages: list[Callable[[], Awaitable[None]]] = [
            partial(self._repair, kept),
            self._reviewer.review,
            self._find_parted,
            partial(self._reunite, kept),
            *(partial(self._promote_earned, member, kept) for member in movable),
            *(partial(self._relieve, member, kept) for member in movable),
        ]
        failed: A2MError | None = None
        try:
            for stage in stages:
                try:
                    await stage()
                except A2MError as error:
                    failed = error
        except asyncio.CancelledError:
            self._log(kept.told())
            raise
        if failed is not None:
            self._log(kept.told())
            raise failed
        return kept.told()

    async def close_session(self, session: str, scope: Scope) -> Consolidated:
        """Move a session's records out of the working tier; raises what kept some of them there for now."""
        entry = self._tiers.entry
        below = self._below(entry)
        if below is None:
            return Consolidated()
        selected = Filter(scope, any_of("session", [session]))
        moved = Moved()
        for attempt in range(moves.ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause(attempt))
            leaving = units(await every_entry(entry.store, selected))
            if not leaving:
                break
            done = await self._mover.move(leaving, entry, below, why="session")
            moved.ids |= done.ids
            moved.failed = done.failed
            self._left(leaving)
            for bucket in {(e.owner, e.session) for unit in leaving for e in unit.entries}:
                self._counts.pop(bucket, None)
            if not done.under_way:
                break
        if moved.failed is not None:
            self._log(Consolidated(moved=moved.ids))
            raise moved.failed
        return Consolidated(moved=moved.ids)

    async def _repair(self, kept: Kept) -> None:
        kept.moved.ids |= await self._repairer.repair()

    async def _reunite(self, kept: Kept) -> None:
        reunited = await self._reunion.reunite()
        self._counted.reunited.inc(len(reunited.ids))
        kept.moved.add(reunited)

    async def _spilling(self) -> None:
        while True:
            while not self._due and not self._parting:
                self._wake.clear()
                await self._wake.wait()
            bucket = self._due.popitem(last=False)[0] if self._due else None
            kept = Kept()
            try:
                if self._parting:
                    # Once for each write that parts a group; what fails now is for the next sweep.
                    self._parting = False
                    await self._reunite(kept)
                if bucket is not None:
                    with tracing.working("spill"):
                        await self._relieve_bucket(self._tiers.entry, bucket, kept)
                put_off = kept.moved.failed is not None
            except A2MError as error:
                log.warning("a session was not spilled, and will be later: %s", error.message)
                put_off = True
            except Exception:
                # An outermost loop: what one session breaks must not end the spilling of the others.
                log.exception("a session could not be spilled")
                put_off = True
            self._log(kept.told())
            self._again_later(bucket, put_off)

    def _again_later(self, bucket: Bucket | None, put_off: bool) -> None:
        """Let a bucket that failed wait, each time longer, without a worker waiting with it."""
        if bucket is None:
            return
        if not put_off:
            self._pauses.pop(bucket, None)
        else:
            pause = min(2 * self._pauses.get(bucket, FIRST_PAUSE / 2), LONGEST_PAUSE)
            self._pauses[bucket] = pause
            asyncio.get_running_loop().call_later(pause, self._mark, bucket)

    def _left(self, leaving: Iterable[Unit]) -> None:
        """Look after groups that left a tier: of members elsewhere in other sessions nothing else tells."""
        for entry in (unit.entries[0] for unit in leaving):
            if entry.group is not None:
                self._part(entry.owner, entry.group)

    def _part(self, owner: str | None, group: str) -> None:
        self._reunion.add(owner, group)
        self._parting = True
        self._wake.set()

    def _mark(self, bucket: Bucket) -> None:
        self._due[bucket] = None
        self._wake.set()

    async def _sweeping(self) -> None:
        while True:
            try:
                with tracing.working("sweep"):
                    await self._tiers.learn()
                    # Of several routers, one sweeps at a time.
                    async with self._locks.alone("sweep") as alone:
                        if alone:
                            self._log(await self.consolidate())
            except A2MError as error:
                log.warning("a sweep was cut short: %s", error.message)
            except Exception:
                # An outermost loop: the next sweep must come.
                log.exception("a sweep failed")
            await asyncio.sleep(self._interval)

    def _log(self, result: Consolidated) -> None:
        if result.moved or result.promoted or result.dropped:
            self._events.add(events.consolidated(result), background=True)

    async def _find_parted(self) -> None:
        """Groups that may be parted: those that grew since the last look, at first all of the working tier's.

        A member may come while its group is on the move, over another router than the one that moved it, or
        over one that died before it could bring it to the others.
        """
        if self._tiers.read_only or not self._tiers.entry.movable:
            return
        looked = self._clock()
        grouped = Filter(EVERYONE, Where((Condition("group", False, Op.EXISTS, (True,)),)))
        for member in self._tiers.movable():
            whole = self._looked is None and member is self._tiers.entry
            since = None if whole else (looked if self._looked is None else self._looked) - OVERLAP
            for entry in await every_entry(member.store, grouped, since=since):
                if entry.group is not None:
                    self._reunion.add(entry.owner, entry.group)
        self._looked = looked

    async def _relieve(self, member: Member, kept: Kept) -> None:
        """Bring one tier to its capacity and its `ttl`."""
        config = member.config
        if config.per_session:
            for bucket in await self._crowded(member):
                await self._relieve_bucket(member, bucket, kept)
        elif config.capacity:
            count = sum((await member.store.counts(EVERYONE)).values())
            if count > config.capacity:
                await self._send_down(member, await self._excess(member, count), kept)
        if config.ttl is not None:
            await self._send_down(member, units(await self._expired(member, config.ttl)), kept)

    async def _relieve_bucket(self, member: Member, bucket: Bucket, kept: Kept) -> None:
        config = member.config
        if not config.per_session:
            await self._relieve(member, kept)
            return
        owner, session = bucket
        selected = Filter(EVERYONE, any_of("session", [session], "owner", [owner]))
        entries = await every_entry(member.store, selected)
        leaving = overflow(entries, config.capacity, half_life=config.half_life, now=self._clock())
        before = len(kept.moved.ids)
        await self._send_down(member, leaving, kept)
        self._counts[bucket] = len(entries) - (len(kept.moved.ids) - before)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    async def _send_down(self, member: Member, leaving: Sequence[Unit], kept: Kept) -> None:
        """Move units to the tier below; where there is none, drop them."""
        if not leaving:
            return
        if member.config.spill_to is not None:
            below = self._below(member)
            if below is not None:
                kept.moved.add(await self._mover.move(leaving, member, below, why="spill"))
                self._left(leaving)
            return
        entries = [entry for unit in leaving for entry in unit.entries]
        members = await group_members(member.store, entries)
        ids = tuple({e.id: None for e in [*entries, *members]})
        dropped = (await self._forgetter.forget(Filter(ids=ids, tier=member.name))).owners
        self._counted.dropped.labels(member.name).inc(len(dropped))
        kept.dropped |= dropped

    async def _promote_earned(self, member: Member, kept: Kept) -> None:
        config = member.config
        if config.promote_to is None or config.promote_after is None:
            return
        target = self._tiers.get(config.promote_to)
        if not target.movable:
            return
        earned = Where((Condition("access_count", False, Op.GTE, (config.promote_after,)),))
        entries = await every_entry(member.store, Filter(EVERYONE, earned))
        moving = await self._reviewer.admitted(units(entries), member, target)
        kept.promoted.add(await self._mover.move(moving, member, target, why="promotion"))

    async def _excess(self, member: Member, count: int) -> list[Unit]:
        """What has to leave a tier of `count` records: the oldest, or what has decayed the furthest."""
        config = member.config
        if config.half_life is None:
            return units(await first_entries(member.store, Filter(), count - config.capacity))
        entries = await every_entry(member.store, Filter())
        return overflow(entries, config.capacity, half_life=config.half_life, now=self._clock())

    async def _crowded(self, member: Member) -> list[Bucket]:
        """The sessions over capacity, the implicit one of records without a session included."""
        infos = (await member.store.sessions(EVERYONE)).sessions
        counts: Counter[Bucket] = Counter({(i.owner, i.session): i.records for i in infos})
        total = sum((await member.store.counts(EVERYONE)).values())
        if total - counts.total() > member.config.capacity:
            loose = await every_entry(member.store, Filter(EVERYONE, any_of("session", [None])))
            counts.update((entry.owner, None) for entry in loose)
        return [bucket for bucket, count in counts.items() if count > member.config.capacity]

    async def _expired(self, member: Member, ttl: float) -> list[Entry]:
        cutoff = format_ms(self._clock() // 1_000 - int(ttl * 1_000))
        old = Where(
            (
                Condition("created_at", False, Op.LT, (cutoff,)),
                Condition("key", False, Op.EXISTS, (False,)),
            )
        )
        entries = await every_entry(member.store, Filter(EVERYONE, old))
        return [e for e in entries if e.accessed_at is None or e.accessed_at < cutoff]

    def _below(self, member: Member) -> Member | None:
        """The tier that a member spills into; None where there is none that can take part in a move."""
        name = member.config.spill_to
        below = None if name is None else self._tiers.get(name)
        if below is not None and not below.movable:
            log.warning("%s cannot spill into %s, which has no part in moves", member.name, below.name)
            return None
        return below
