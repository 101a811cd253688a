"""Writes that concern more than the working tier: keys, given tiers, and imports of either."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

from a2m_protocol.errors import A2MError, JsonObject
from a2m_protocol.types import Draft
from a2m_router.belief import Belief, contesting, told
from a2m_router.coordination import Clock, Locks, Readers, group_lock, id_lock, key_lock
from a2m_router.listing import any_of, every_entry
from a2m_router.repair import Repairer
from a2m_router.steps import Observer, unobserved
from a2m_router.tiers import Member, Tiers, ask, ask_all
from a2m_server.values import EVERYONE, Entry, Filter, Named, Scope, Tombstone, Written

log = logging.getLogger(__name__)

ATTEMPTS = 3

Address = tuple[str | None, str]
Part = tuple[str, list[int]]
Write = Callable[[Member, list[Draft]], Awaitable[list[Written]]]
Still = Callable[[], Awaitable[bool]]
T = TypeVar("T", str, tuple[str | None, str])


@dataclass(frozen=True, slots=True)
class Home:
    """Where an id or a key lives now."""

    tier: str
    entry: Entry


@dataclass(slots=True)
class Homes:
    """What of a batch exists already, over all tiers."""

    ids: dict[str, Home]
    keys: dict[Address, Home]
    doubled: set[str] = field(default_factory=set[str])

    def add(self, tier: str, entry: Entry) -> None:
        home = Home(tier, entry)
        if entry.id in self.ids and self.ids[entry.id].tier != tier:
            self.doubled.add(entry.id)
        _keep_newest(self.ids, entry.id, home)
        if entry.key is not None:
            _keep_newest(self.keys, (entry.owner, entry.key), home)


class Placer:
    """Writes each record where it belongs, once over the federation, all of a batch or nothing."""

    def __init__(
        self,
        tiers: Tiers,
        locks: Locks,
        readers: Readers,
        repairer: Repairer,
        clock: Clock,
        observer: Observer = unobserved,
        belief: Belief | None = None,
    ) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers
        self._repairer = repairer
        self._clock = clock
        self._reached = observer
        self._belief = belief or Belief()

    async def write(
        self, drafts: Sequence[Draft], scope: Scope, *, also: Iterable[str] = (), still: Still | None = None
    ) -> list[Written]:
        """Write a batch; each `Written` names the tier where the record is now.

        Where `still` does not hold once the locks of the batch and `also` are taken, nothing is written.
        """

        async def write(homes: Homes) -> list[Written]:
            if still is not None and not await still():
                return []
            entering = self._entering(drafts, homes)
            fresh = [at for at, draft in enumerate(entering) if not _rewrites(draft, homes)]
            rest = [at for at in range(len(entering)) if at not in set(fresh)]
            home = self._homes_of(entering, lambda draft: self._home(draft, homes), homes.ids)
            # One tier after another, so that records keep the order of the batch. What rewrites comes last:
            # a creation can be undone, a rewritten value cannot.
            stages = [[run] for run in [*_runs(fresh, home), *_runs(rest, home)]]
            written = await self._write_all(stages, entering, {}, lambda m, d: m.store.write(d, scope))
            return told(entering, written)

        return await self._alone(drafts, write, also)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        """Take records in as they were, where their ids and keys are new to the federation."""

        async def transfer(homes: Homes) -> list[Written]:
            done: dict[int, Written] = {}
            for at, draft in enumerate(drafts):
                known = homes.ids.get(draft.id)
                keyed = homes.keys.get((draft.owner, draft.key)) if draft.key is not None else None
                if known is not None:
                    done[at] = Written(draft.id, "refused", reason="exists", tier=known.tier)
                elif keyed is not None and keyed.entry.id != draft.id:
                    done[at] = Written(draft.id, "refused", reason="key", tier=keyed.tier)
            fresh = [at for at in range(len(drafts)) if at not in done]
            home = self._homes_of(drafts, self._target, homes.ids)
            stages = [_by_tier(fresh, home)]
            return await self._write_all(stages, drafts, done, lambda m, d: m.store.transfer(d))

        return await self._alone(drafts, transfer)

    def _entering(self, drafts: Sequence[Draft], homes: Homes) -> Sequence[Draft]:
        """Drafts as the policies of their tiers take them.

        What is not believed rewrites no fact: it is kept beside it, in the same tier.
        """
        if not self._belief.doubts:
            return drafts
        home = self._homes_of(drafts, lambda draft: self._home(draft, homes), homes.ids)
        asked = [[*dict.fromkeys((t, d.tier or t))] for d, t in zip(drafts, home, strict=True)]
        entering: list[Draft] = []
        taken = {*homes.keys}
        for draft, tier in zip(self._belief.entering(drafts, asked), home, strict=True):
            if draft.key is None or draft.id in homes.ids:
                entering.append(draft)
                continue
            address = (draft.owner, draft.key)
            beside = address in taken and draft.status == "pending"
            entering.append(contesting(draft, tier) if beside else draft)
            taken.add(address)
        return entering

    async def _alone(
        self,
        drafts: Sequence[Draft],
        work: Callable[[Homes], Coroutine[object, object, list[Written]]],
        also: Iterable[str] = (),
    ) -> list[Written]:
        """Work with the locks of a batch held, knowing where its ids and keys live.

        What a move has left in two tiers is settled first; a copy that changes would else be taken back.
        """
        self._check_targets(drafts)
        names = _lock_names(drafts).union(also)
        for attempt in range(ATTEMPTS):
            async with self._locks.hold(names):
                homes = await self._find(drafts)
                await self._reached("write: found")
                if not homes.doubled or attempt == ATTEMPTS - 1:
                    return await _unbroken(work(homes))
            await self._repairer.settle([*homes.doubled])
        raise AssertionError("the last attempt returns")

    async def _write_all(
        self,
        stages: Sequence[list[Part]],
        drafts: Sequence[Draft],
        done: dict[int, Written],
        write: Write,
    ) -> list[Written]:
        begun_at = self._clock()
        try:
            for stage in stages:
                parts = (self._write_part(tier, at, drafts, done, write) for tier, at in stage)
                failed = [e for e in await asyncio.gather(*parts, return_exceptions=True) if e is not None]
                if failed:
                    raise failed[0]
            await self._reached("write: written")
            await self._claim(drafts, done, begun_at)
            await self._reached("write: claimed")
        except A2MError as error:
            begun: dict[str, list[int]] = {}
            for tier, positions in (part for stage in stages for part in stage):
                begun.setdefault(tier, []).extend(positions)
            raise await self._undo(error, begun, done) from error
        return [done[at] for at in range(len(drafts))]

    async def _find(self, drafts: Sequence[Draft]) -> Homes:
        """Where the batch's ids and keys live; every tier must answer, or an id might be written twice."""
        ids = tuple(dict.fromkeys(draft.id for draft in drafts if draft.chosen))
        keys = [*dict.fromkeys(draft.key for draft in drafts if draft.key is not None)]
        owners = [*dict.fromkeys(draft.owner for draft in drafts if draft.key is not None)]
        filters: list[Filter] = []
        if ids:
            filters.append(Filter(EVERYONE, ids=ids))
        if keys:
            filters.append(Filter(EVERYONE, any_of("key", keys, "owner", owners)))

        async def entries(member: Member) -> list[Entry]:
            found = await asyncio.gather(*(every_entry(member.store, selected) for selected in filters))
            return [entry for part in found for entry in part]

        homes = Homes({}, {})
        with self._readers.reading():
            answers = await ask_all(self._tiers.movable(), entries)
        for tier, found in answers.items():
            for entry in found:
                homes.add(tier, entry)
        return homes

    def _home(self, draft: Draft, homes: Homes) -> str:
        known = homes.ids.get(draft.id)
        if known is None and draft.key is not None:
            known = homes.keys.get((draft.owner, draft.key))
        return known.tier if known is not None else self._target(draft)

    def _target(self, draft: Draft) -> str:
        return draft.tier or self._tiers.entry.name

    def _check_targets(self, drafts: Sequence[Draft]) -> None:
        """Raise before anything is written when a draft names a tier that cannot keep it."""
        for draft in drafts:
            self._tiers.check_taken(self._tiers.target(self._target(draft)), [draft])

    @staticmethod
    def _homes_of(drafts: Sequence[Draft], home: Callable[[Draft], str], known: Container[str]) -> list[str]:
        """The tier that each draft goes to; the drafts of one key go to one tier."""
        chosen: dict[Address, str] = {}
        homes: list[str] = []
        for draft in drafts:
            tier = home(draft)
            if draft.key is not None and draft.id not in known:
                tier = chosen.setdefault((draft.owner, draft.key), tier)
            homes.append(tier)
        return homes

    async def _write_part(
        self,
        tier: str,
        positions: list[int],
        drafts: Sequence[Draft],
        done: dict[int, Written],
        write: Write,
    ) -> None:
        member = self._tiers.get(tier)
        for at, wrote in zip(positions, await write(member, [drafts[i] for i in positions]), strict=True):
            # What has moved on since its home was looked for exists, in another tier.
            outcome = "existing" if wrote.outcome == "moved" else wrote.outcome
            done[at] = replace(wrote, outcome=outcome, tier=wrote.tier or tier)

    async def _claim(self, drafts: Sequence[Draft], done: dict[int, Written], begun_at: int) -> None:
        """Leave in working that an id lives elsewhere, so that a retry which asks working alone finds it.

        Where working turns out to hold the id, what was just written is taken back.
        """
        entry = self._tiers.entry
        # What exists may be what an attempt wrote that did not come to its claim.
        placed = [at for at, w in done.items() if w.outcome != "refused" and w.tier != entry.name]
        if not placed:
            return
        graves = [
            Tombstone(
                id=done[at].id,
                reason="moved",
                seq=begun_at,
                owner=drafts[at].owner,
                key=drafts[at].key,
                session=drafts[at].session,
                target=done[at].tier,
                moves=drafts[at].moves,
            )
            for at in placed
        ]
        outcomes = await entry.store.bury(graves)
        beaten = [grave for grave in graves if outcomes.get(grave.id) == "forgotten"]
        if beaten:
            # The clock of this router is behind that of an earlier forget: what was written now is newer.
            await entry.store.bury(await self._dated(beaten))
        for at in placed:
            wrote = done[at]
            if outcomes.get(wrote.id) == "live" and wrote.outcome == "created" and wrote.tier is not None:
                member = self._tiers.get(wrote.tier)
                if member.movable:
                    await member.store.delete_if([Named(wrote.id, wrote.etag)], "undo", None)
                else:
                    await member.store.forget(Filter(EVERYONE, ids=(wrote.id,)))
                done[at] = Written(wrote.id, "existing", tier=entry.name)

    async def _dated(self, graves: Sequence[Tombstone]) -> list[Tombstone]:
        """Claims with the `seq` of the records that they stand for."""
        homes = {grave.target: self._tiers.get(grave.target) for grave in graves if grave.target is not None}
        seqs: dict[str, int] = {}
        for tier, member in homes.items():
            if member.movable:
                here = tuple(grave.id for grave in graves if grave.target == tier)
                entries = await every_entry(member.store, Filter(EVERYONE, ids=here))
                seqs |= {entry.id: entry.seq for entry in entries}
        return [replace(grave, seq=seqs[grave.id]) for grave in graves if grave.id in seqs]

    async def _undo(
        self, error: A2MError, begun: Mapping[str, list[int]], done: Mapping[int, Written]
    ) -> A2MError:
        """Take back what this attempt certainly created; the error to raise names what may stay.

        What a tier took without our hearing of it cannot be told from what another attempt wrote: it stays,
        and a retry with the same ids finds it.
        """
        stays = [wrote.id for wrote in done.values() if wrote.outcome == "replaced"]

        async def take_back(member: Member) -> None:
            mine = [w for at in begun[member.name] if (w := done.get(at)) and w.outcome == "created"]
            if mine and member.movable:
                await member.store.delete_if([Named(w.id, w.etag) for w in mine], "undo", None)
            elif mine:
                await member.store.forget(Filter(EVERYONE, ids=tuple(w.id for w in mine)))

        _, silent = await ask([self._tiers.get(name) for name in begun], take_back)
        for degraded in silent:
            stays += [w.id for at in begun[degraded.tier] if (w := done.get(at)) and w.outcome == "created"]
        data: JsonObject = dict(error.data or {})
        if stays:
            data["stays"] = [*dict.fromkeys(stays)]
            log.warning("a failed write left %d records behind", len(stays))
        return A2MError(error.code, error.message, data or None)


def _lock_names(drafts: Sequence[Draft]) -> set[str]:
    names = {id_lock(draft.id) for draft in drafts if draft.chosen}
    names |= {key_lock(draft.owner, draft.key) for draft in drafts if draft.key is not None}
    return names | {group_lock(draft.owner, draft.group) for draft in drafts if draft.group is not None}


async def _unbroken(work: Coroutine[object, object, list[Written]]) -> list[Written]:
    """Do work to its end, undo included, also when who waits for it is given up on."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _by_tier(positions: Iterable[int], home: Sequence[str]) -> list[Part]:
    parts: dict[str, list[int]] = {}
    for at in positions:
        parts.setdefault(home[at], []).append(at)
    return [*parts.items()]


def _runs(positions: Iterable[int], home: Sequence[str]) -> list[Part]:
    """Positions in order, in runs that go to one tier."""
    return [(tier, [*run]) for tier, run in groupby(positions, key=lambda at: home[at])]


def _rewrites(draft: Draft, homes: Homes) -> bool:
    return draft.key is not None and (draft.owner, draft.key) in homes.keys


def _keep_newest(held: dict[T, Home], at: T, home: Home) -> None:
    old = held.get(at)
    if old is None or home.entry.moves > old.entry.moves:
        held[at] = home
