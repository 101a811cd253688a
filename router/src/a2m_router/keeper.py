"""Policy at work: spills, promotions and the closing of sessions, in the background and when asked."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Sequence

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_protocol.where import Condition, Op, Scalar, Where
from a2m_router.coordination import Clock
from a2m_router.forgets import Forgetter
from a2m_router.moves import Moved, Mover, Tier, every_entry
from a2m_router.policy import Unit, overflow, units
from a2m_router.repair import Repairer
from a2m_router.tiers import Member, Tiers, ask
from a2m_server import events
from a2m_server.events import EventLog
from a2m_server.store import EVERYONE, Consolidated, Entry, Filter, Scope, Written

Bucket = tuple[str | None, str | None]

REMEMBERED = 10_000
WORKERS = 4
PAUSE = 1.0

log = logging.getLogger(__name__)


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
        log_to: EventLog,
        *,
        interval: float,
        clock: Clock,
    ) -> None:
        self._tiers = tiers
        self._mover = mover
        self._forgetter = forgetter
        self._repairer = repairer
        self._events = log_to
        self._interval = interval
        self._clock = clock
        self._counts: OrderedDict[Bucket, int] = OrderedDict()
        self._due: OrderedDict[Bucket, None] = OrderedDict()
        self._wake = asyncio.Event()

    def wrote(self, drafts: Sequence[Draft], written: Sequence[Written]) -> None:
        """Count what a write added to the working tier, and mark sessions that are over capacity."""
        entry = self._tiers.entry
        if not entry.config.capacity or entry.config.spill_to is None:
            return
        for draft, wrote in zip(drafts, written, strict=True):
            if wrote.outcome != "created" or wrote.tier not in (None, entry.name):
                continue
            bucket = (draft.owner, draft.session) if entry.config.per_session else (None, None)
            count = self._counts.pop(bucket, None)
            if count is not None:
                self._counts[bucket] = count + 1
            if count is None or count + 1 > entry.config.capacity or draft.group is not None:
                self._due[bucket] = None
        if self._due:
            self._wake.set()

    async def run(self) -> None:
        """Spill what is marked and sweep now and then, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweeping())
            for _ in range(WORKERS):
                tasks.create_task(self._spilling())

    async def consolidate(self) -> tuple[Consolidated, set[str | None]]:
        """Settle what moves left, promote what was earned, then bring every tier to its capacity.

        Returns what was done, and to whose records.
        """
        repaired = await self._repairer.repair()
        promoted = Moved()
        for member in self._tiers.movable():
            promoted.add(await self._promote_earned(member))
        moved, dropped = Moved(), 0
        for member in self._tiers.movable():
            spilled, lost = await self._relieve(member)
            moved.add(spilled)
            dropped += lost
        owners = {*moved.ids.values(), *promoted.ids.values()}
        return Consolidated(repaired + len(moved.ids), len(promoted.ids), dropped), owners

    async def close_session(self, session: str, scope: Scope) -> int:
        """Move a session's records out of the working tier; how many left it."""
        entry = self._tiers.entry
        below = self._below(entry)
        if below is None:
            return 0
        selected = Filter(scope, _equal("session", session))
        leaving = units(await every_entry(entry.store, selected))
        moved = await self._mover.move(leaving, _tier(entry), _tier(below))
        for bucket in {(e.owner, e.session) for unit in leaving for e in unit.entries}:
            self._counts.pop(bucket, None)
        return len(moved.ids)

    async def _spilling(self) -> None:
        while True:
            while not self._due:
                self._wake.clear()
                await self._wake.wait()
            bucket, _ = self._due.popitem(last=False)
            try:
                moved = await self._relieve_bucket(bucket)
            except A2MError as error:
                log.warning("a session was not spilled, and will be later: %s", error.message)
                await asyncio.sleep(PAUSE)
                self._due[bucket] = None
                continue
            self._log(Consolidated(moved=len(moved.ids)), set(moved.ids.values()))
            if any(why not in ("gone", "moved", "forgotten", "absent") for why in moved.stayed.values()):
                await asyncio.sleep(PAUSE)
                self._due[bucket] = None

    async def _sweeping(self) -> None:
        while True:
            try:
                await self._tiers.learn()
                self._log(*await self.consolidate())
            except A2MError as error:
                log.warning("a sweep was cut short: %s", error.message)
            await asyncio.sleep(self._interval)

    def _log(self, result: Consolidated, owners: set[str | None]) -> None:
        if result.moved or result.promoted or result.dropped:
            self._events.add(events.consolidated(result, owners), background=True)

    async def _relieve(self, member: Member) -> tuple[Moved, int]:
        """Bring one tier to its capacity and its `ttl`: what moved, and how many were dropped."""
        done, dropped = Moved(), 0
        config = member.config
        if config.kind == "working" and config.per_session:
            for bucket in await self._buckets(member):
                done.add(await self._relieve_bucket(bucket, member))
        elif config.capacity:
            count = sum((await member.store.counts(EVERYONE)).values())
            if count > config.capacity:
                moved, lost = await self._send_down(member, await self._excess(member, count))
                done.add(moved)
                dropped += lost
        if config.ttl is not None:
            moved, lost = await self._send_down(member, units(await self._expired(member, config.ttl)))
            done.add(moved)
            dropped += lost
        return done, dropped

    async def _excess(self, member: Member, count: int) -> list[Unit]:
        """What has to leave a tier of `count` records: the oldest, or what has decayed the furthest."""
        config = member.config
        if config.half_life is None:
            return units(await member.store.entries(Filter(), count - config.capacity, None))
        entries = await every_entry(member.store, Filter())
        return overflow(entries, config.capacity, half_life=config.half_life, now=self._clock())

    async def _relieve_bucket(self, bucket: Bucket, member: Member | None = None) -> Moved:
        member = member or self._tiers.entry
        config = member.config
        if not config.per_session:
            return (await self._relieve(member))[0]
        owner, session = bucket
        selected = Filter(EVERYONE, _equal("session", session, "owner", owner))
        entries = await every_entry(member.store, selected)
        leaving = overflow(entries, config.capacity, half_life=config.half_life, now=self._clock())
        done = Moved()
        for below, late in (await self._parted(member, entries)).items():
            done.add(await self._mover.move(late, _tier(member), _tier(self._tiers.get(below))))
        gone = set(done.ids)
        leaving = [unit for unit in leaving if not gone.intersection(unit.ids)]
        done.add((await self._send_down(member, leaving))[0])
        self._counts[bucket] = len(entries) - len(done.ids)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return done

    async def _send_down(self, member: Member, leaving: Sequence[Unit]) -> tuple[Moved, int]:
        if not leaving:
            return Moved(), 0
        below = self._below(member)
        if below is not None:
            return await self._mover.move(leaving, _tier(member), _tier(below)), 0
        ids = tuple(i for unit in leaving for i in unit.ids)
        return Moved(), len((await self._forgetter.forget(Filter(ids=ids, tier=member.name))).ids)

    async def _promote_earned(self, member: Member) -> Moved:
        config = member.config
        if config.promote_to is None or config.promote_after is None:
            return Moved()
        earned = Where((Condition("access_count", False, Op.GTE, (config.promote_after,)),))
        entries = await every_entry(member.store, Filter(EVERYONE, earned))
        target = self._tiers.get(config.promote_to)
        return await self._mover.move(units(entries), _tier(member), _tier(target))

    async def _parted(self, member: Member, entries: Sequence[Entry]) -> dict[str, list[Unit]]:
        """Units whose group has members in a tier below already, by that tier."""
        groups = tuple({e.group for e in entries if e.group is not None})
        if not groups:
            return {}
        others = [m for m in self._tiers.movable() if m is not member]
        selected = Filter(EVERYONE, Where((Condition("group", False, Op.IN, groups),)))
        answers, _ = await ask(others, lambda other: every_entry(other.store, selected))
        home = {(e.owner, e.group): tier for tier, found in answers.items() for e in found}
        parted: dict[str, list[Unit]] = {}
        for unit in units(e for e in entries if (e.owner, e.group) in home):
            first = unit.entries[0]
            parted.setdefault(home[first.owner, first.group], []).append(unit)
        return parted

    async def _buckets(self, member: Member) -> list[Bucket]:
        """The sessions over capacity, and those with groups that may have been parted."""
        infos = await member.store.sessions(EVERYONE)
        loose = await every_entry(member.store, Filter(EVERYONE, _equal("session", None)))
        counts: Counter[Bucket] = Counter({(i.owner, i.session): i.records for i in infos})
        counts.update((entry.owner, None) for entry in loose)
        capacity = member.config.capacity
        return [bucket for bucket, count in counts.items() if count > capacity]

    async def _expired(self, member: Member, ttl: float) -> list[Entry]:
        cutoff = format_ms(self._clock() // 1_000 - int(ttl * 1_000))
        old = Where((Condition("created_at", False, Op.LT, (cutoff,)),))
        entries = await every_entry(member.store, Filter(EVERYONE, old))
        return [e for e in entries if e.accessed_at is None or e.accessed_at < cutoff]

    def _below(self, member: Member) -> Member | None:
        target = member.config.spill_to
        return None if target is None else self._tiers.get(target)


def _tier(member: Member) -> Tier:
    return Tier(member.name, member.store)


def _equal(*pairs: Scalar) -> Where:
    """A filter of equalities on record fields, from field, value, field, value."""
    fields = pairs[::2]
    return Where(
        tuple(Condition(str(f), False, Op.IN, (value,)) for f, value in zip(fields, pairs[1::2], strict=True))
    )
