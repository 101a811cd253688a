"""Moving records between services: copy, verify, wait for readers, delete what is still the same.

No transaction spans two services. The order of the steps and the guards of each (`moves`, etags, tombstones)
are what keeps a record from being lost, doubled or brought back; `docs/architecture.md` says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from a2m_protocol.errors import A2MError, invalid_params
from a2m_protocol.types import Draft, Record
from a2m_router.belief import Belief, Rule
from a2m_router.coordination import Locks, Readers, entry_locks
from a2m_router.counts import Counts
from a2m_router.listing import group_members
from a2m_router.policy import Unit, arrival, batches, standing, true_copy, units
from a2m_router.steps import Observer, unobserved
from a2m_router.tiers import Member
from a2m_router.vectors import Vectors
from a2m_server.values import Deleted, Judged, Named

BATCH = 100
EMBED_SECONDS = 10.0
"""After this long in one move, records go without vectors and get them later: somebody waits for its end."""
UNDO_ATTEMPTS = 5
COPY_ATTEMPTS = 3
LOCK_ATTEMPTS = 3
GONE = "gone"
GROWING = "its group is growing"
NOT_ENDED = "an earlier move of its group has not ended"
OTHERS = "its group did not move"

UNDER_WAY = frozenset({GROWING, NOT_ENDED, OTHERS, "changed"})
"""Why a unit stays that may go in a moment: it is being moved already, or something is counted on it."""
ATTEMPTS = 4
"""How often a move that somebody asks for is tried where what stays may go in a moment."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pair:
    """A record as it was read at the source and its copy at the target; names alone, so that many fit.

    `mark` is the copy's `arrival`; None where it is not the copy of just this record: it is never taken back.
    """

    original: Named
    copy: Named
    mark: str | None
    owner: str | None


@dataclass(slots=True)
class Moved:
    """What a move did: the ids that changed tier, each with its owner, and why each of the others stayed.

    `failed` is the last failure that may pass: the same move may do more later.
    """

    ids: dict[str, str | None] = field(default_factory=dict[str, str | None])
    stayed: dict[str, str] = field(default_factory=dict[str, str])
    failed: A2MError | None = None

    @property
    def under_way(self) -> bool:
        """Whether the same move may do more in a moment: nothing failed."""
        return self.failed is None and not UNDER_WAY.isdisjoint(self.stayed.values())

    def add(self, other: Moved) -> None:
        self.ids |= other.ids
        self.stayed |= other.stayed
        self.failed = other.failed or self.failed


def pause(attempt: int) -> float:
    """Seconds before another attempt, the second being 1."""
    return 0.05 * 2**attempt


class Mover:
    """Moves units between tiers; one mover a unit at a time, by `locks`."""

    def __init__(
        self,
        locks: Locks,
        readers: Readers,
        observer: Observer = unobserved,
        counts: Counts | None = None,
        vectors: Vectors | None = None,
        belief: Belief | None = None,
    ) -> None:
        self._locks = locks
        self._readers = readers
        self._reached = observer
        self._counts = counts or Counts()
        self._vectors = vectors or Vectors(None, self._counts)
        self._belief = belief or Belief()

    async def move(
        self,
        moving: Iterable[Unit],
        source: Member,
        target: Member,
        *,
        why: str = "asked",
        salience: float = 0.0,
    ) -> Moved:
        """Move whole units; `salience` is added on arrival. A unit that cannot move stays and is named.

        `why` is for the metrics.

        Raises -32602 when one of the tiers can be no part of a move.
        """
        for member in (source, target):
            if not member.movable:
                raise invalid_params(f"tier {member.name} has no part in moves: it lacks our extensions")
        done = Moved()
        until = time.monotonic() + EMBED_SECONDS
        if source is not target:
            for batch in batches(moving, BATCH):
                done.add(await self._try(batch, source, target, salience, until))
        self._counts.moved.labels(source.name, target.name, why).inc(len(done.ids))
        return done

    async def _try(
        self, batch: list[Unit], source: Member, target: Member, salience: float, until: float
    ) -> Moved:
        """One batch; what the target refuses for good is told apart from its neighbours, which move."""
        try:
            return await self._move_batch(batch, source, target, salience, until)
        except A2MError as error:
            if len(batch) == 1 or error.retryable:
                log.warning("a move from %s to %s was put off: %s", source.name, target.name, error.message)
                self._counts.put_off.labels(source.name, target.name).inc()
                stayed = {i: error.message for unit in batch for i in unit.ids}
                return Moved(stayed=stayed, failed=error if error.retryable else None)
        done = Moved()
        for unit in batch:
            done.add(await self._try([unit], source, target, salience, until))
        return done

    async def _move_batch(
        self, batch: list[Unit], source: Member, target: Member, salience: float, until: float
    ) -> Moved:
        """Move with the locks of every member held, those included that joined a group meanwhile."""
        whole = await self._whole(batch, source)
        for _ in range(LOCK_ATTEMPTS):
            names = _locks_of(whole)
            async with self._locks.hold(names):
                whole = await self._whole(whole, source)
                if _locks_of(whole) <= names:
                    return await self._move_locked(whole, source, target, salience, until)
        return Moved(stayed={i: GROWING for unit in whole for i in unit.ids})

    async def _move_locked(
        self, whole: list[Unit], source: Member, target: Member, salience: float, until: float
    ) -> Moved:
        """Copy part by part, since a group may be of any size; delete when all of it is there."""
        await self._reached("move: locked")
        pairs: dict[str, Pair] = {}
        stayed: dict[str, str] = {}
        ids = [i for unit in whole for i in unit.ids]
        for at in range(0, len(ids), BATCH):
            part = ids[at : at + BATCH]
            records = await source.store.read(part)
            await self._reached("move: read")
            # An earlier move brought these here and may have left the originals: repair comes first.
            late = {record.id for record in records if record.arrival is not None}
            blocked = {i for unit in whole if late.intersection(unit.ids) for i in unit.ids}
            stayed |= dict.fromkeys({*part} - {record.id for record in records}, GONE)
            stayed |= dict.fromkeys(blocked.intersection(part), NOT_ENDED)
            moving = [record for record in records if record.id not in blocked]
            moving, changed = await self._doubted(moving, source, target)
            stayed |= changed
            if moving:
                copied, refused = await self._copy(moving, source, target, salience, until)
                pairs |= copied
                stayed |= refused
        if not pairs:
            return Moved(stayed=stayed)
        await self._reached("move: verified")
        if not await self._readers.drained():
            log.warning("a read outlasted its timeout; the move from %s waits no longer", source.name)
        await self._reached("move: drained")
        here = [[i for i in unit.ids if stayed.get(i) != GONE] for unit in whole]
        done = await self._delete(here, pairs, source, target)
        done.stayed |= stayed
        return done

    async def _doubted(
        self, records: list[Record], source: Member, target: Member
    ) -> tuple[list[Record], dict[str, str]]:
        """Records as a tier takes them: pending from now on where it asks for evidence; and what changed."""

        def doubted(record: Record) -> bool:
            return record.status == "active" and self._belief.rule(record, target.name) is not Rule.OPEN

        named = [Judged(r.id, r.etag, "pending") for r in records if doubted(r)]
        if not named:
            return records, {}
        await source.store.judge(named)
        now = await source.store.read([record.id for record in records])
        changed = {record.id: "changed" for record in now if doubted(record)}
        return [record for record in now if record.id not in changed], changed

    async def _whole(self, batch: list[Unit], source: Member) -> list[Unit]:
        """The units as they are now, late members of their groups included."""
        single = [unit for unit in batch if unit.entries[0].group is None]
        grouped = [entry for unit in batch for entry in unit.entries if entry.group is not None]
        return single + units(await group_members(source.store, grouped))

    async def _copy(
        self, records: Sequence[Record], source: Member, target: Member, salience: float, until: float
    ) -> tuple[dict[str, Pair], dict[str, str]]:
        """Transfer and read back: what is verified, by id, and why each of the others is not there.

        A copy that an earlier attempt left of what has changed since is taken back and made anew.
        """
        stayed: dict[str, str] = {}
        pairs: dict[str, Pair] = {}
        pending = {record.id: record for record in records}
        stale: dict[str, Record] = {}
        for _ in range(COPY_ATTEMPTS):
            drafts = [as_draft(record, source.name, salience) for record in pending.values()]
            filled = await self._vectors.filled(drafts, target, until)
            written = await target.store.transfer(filled)
            if target.unfixed and any(draft.embedding is not None for draft in filled):
                await target.learn()
            await self._reached("move: copied")
            refused = {w.id: w.reason for w in written if w.outcome == "refused" and w.reason != "exists"}
            held = {copy.id: copy for copy in await target.store.read([*pending])}
            stale = {}
            for record_id, record in pending.items():
                copy = held.get(record_id)
                if record_id in refused:
                    stayed[record_id] = f"{target.name} refused it: {refused[record_id]}"
                elif copy is None or copy.owner != record.owner:
                    stayed[record_id] = f"{target.name} does not hold it"
                elif standing(record, source.name, copy, salience) == "stale":
                    stale[record_id] = copy
                else:
                    original, there = Named(record_id, record.etag), Named(record_id, copy.etag)
                    ours = copy.arrival == arrival(source.name, record) and copy.revision == record.revision
                    pairs[record_id] = Pair(original, there, copy.arrival if ours else None, record.owner)
            if not stale:
                return pairs, stayed
            # Only while the original is there, changed, is the copy not the record itself.
            pending = {record.id: record for record in await source.store.read([*stale])}
            stayed |= {i: "gone meanwhile" for i in stale if i not in pending}
            doomed = [stale[i] for i, r in pending.items() if stale[i].arrival != arrival(source.name, r)]
            await self._undo({copy.id: (copy.etag, copy.arrival) for copy in doomed}, target)
        # What is not given back as it was must not stand for the record; a true copy may be another mover's.
        untrue = {i: stale[i] for i, record in pending.items() if not true_copy(record, stale[i])}
        await self._undo({i: (copy.etag, copy.arrival) for i, copy in untrue.items()}, target)
        return pairs, stayed | dict.fromkeys(pending, f"{target.name} does not give it back as it was")

    async def _delete(
        self,
        units_here: list[list[str]],
        pairs: Mapping[str, Pair],
        source: Member,
        target: Member,
    ) -> Moved:
        """Delete the originals of the units whose members all have copies; take back the copies of others."""
        ready = [[pairs[i].original for i in ids] for ids in units_here if all(i in pairs for i in ids)]
        settled = {named.id for names in ready for named in names}
        undone = [record_id for record_id in pairs if record_id not in settled]
        done = Moved(stayed=dict.fromkeys(undone, OTHERS))
        outcomes, failed = await self._delete_units([names for names in ready if names], source, target)
        done.failed = failed if failed is not None and failed.retryable else None
        done.stayed |= dict.fromkeys(settled - outcomes.keys(), "whether it was deleted is not known")
        for record_id, outcome in outcomes.items():
            if outcome == "deleted":
                done.ids[record_id] = pairs[record_id].owner
            else:
                done.stayed[record_id] = outcome
                if outcome in ("changed", "forgotten"):
                    undone.append(record_id)
        await self._reached("move: deleted")
        ours = {i: (pairs[i].copy.etag, mark) for i in undone if (mark := pairs[i].mark) is not None}
        await self._undo(ours, target)
        if done.ids:
            await target.store.settle([pairs[i].copy for i in done.ids])
        await self._reached("move: settled")
        return done

    async def _delete_units(
        self, ready: list[list[Named]], source: Member, target: Member
    ) -> tuple[dict[str, Deleted], A2MError | None]:
        """Delete all at once, or unit by unit when something in the batch changed.

        What became of each, and the failure that left others without an outcome. A failure ends this only
        when all calls are over, so that none is under way once the locks are given up.
        """
        if not ready:
            return {}, None
        together = await source.store.delete_if([n for names in ready for n in names], "moved", target.name)
        if len(ready) == 1 or all(outcome == "deleted" for outcome in together.values()):
            return _settled(ready, together), None
        calls = (source.store.delete_if(names, "moved", target.name) for names in ready)
        outcomes: dict[str, Deleted] = {}
        failed: A2MError | None = None
        for names, each in zip(ready, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(each, A2MError):
                failed = each
            elif isinstance(each, BaseException):
                raise each
            else:
                outcomes |= _settled([names], each)
        if failed is not None and not outcomes:
            raise failed
        return outcomes, failed

    async def _undo(self, copies: Mapping[str, tuple[str, str | None]], target: Member) -> None:
        """Take copies back, whatever a recall counted on them meanwhile, but never another mover's copy.

        Each copy is given by its id with its etag and mark.
        """
        names = [Named(record_id, etag) for record_id, (etag, _) in copies.items()]
        for _ in range(UNDO_ATTEMPTS):
            if not names:
                return
            outcomes = await target.store.delete_if(names, "undo", None)
            if all(outcome == "deleted" for outcome in outcomes.values()):
                return
            left = await target.store.read([i for i, o in outcomes.items() if o in ("deleted", "changed")])
            names = [Named(r.id, r.etag) for r in left if r.arrival == copies[r.id][1]]
        log.warning("%d copies in %s could not be taken back; repair will", len(names), target.name)


def _locks_of(whole: Iterable[Unit]) -> set[str]:
    return {name for unit in whole for entry in unit.entries for name in entry_locks(entry)}


def _settled(ready: list[list[Named]], outcomes: dict[str, Deleted]) -> dict[str, Deleted]:
    """Outcomes as they bind: where one of a unit stayed, what could have been deleted stayed with it."""
    settled: dict[str, Deleted] = {}
    for names in ready:
        whole = all(outcomes[n.id] == "deleted" for n in names)
        for name in names:
            outcome = outcomes[name.id]
            settled[name.id] = "changed" if outcome == "deleted" and not whole else outcome
    return settled


def as_draft(record: Record, source: str, salience: float) -> Draft:
    """The transfer that makes a copy of a record, one move further, marked with where it came from."""
    fields = record.model_dump(exclude={"etag", "score", "tier"}, exclude_none=True)
    moved = {
        "moves": record.moves + 1,
        "salience": record.salience + salience,
        "arrival": arrival(source, record),
    }
    return Draft.model_validate(fields | moved)
