"""Moving records between services: copy, verify, wait for readers, delete what is still the same.

No transaction spans two services. The order of the steps and the guards of each (`moves`, etags, tombstones)
are what keeps a record from being lost, doubled or brought back; `docs/architecture.md` says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft, Record
from a2m_protocol.where import Condition, Op, Where
from a2m_router.coordination import Locks, Readers, entry_locks
from a2m_router.policy import Unit, arrival, batches, standing, units
from a2m_server.store import EVERYONE, Deleted, Entry, Filter, Named, TierStore

BATCH = 200
PAGE = 1_000
UNDO_ATTEMPTS = 5
COPY_ATTEMPTS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier that can be part of a move."""

    name: str
    store: TierStore


@dataclass(frozen=True, slots=True)
class Pair:
    """A record as it was read at the source, and its copy at the target."""

    record: Record
    copy: Record


@dataclass(slots=True)
class Moved:
    """What a move did: the ids that changed tier, each with its owner, and why each of the others stayed."""

    ids: dict[str, str | None] = field(default_factory=dict[str, str | None])
    stayed: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, other: Moved) -> None:
        self.ids |= other.ids
        self.stayed |= other.stayed


class Mover:
    """Moves units between tiers; one mover a unit at a time, by `locks`."""

    def __init__(self, locks: Locks, readers: Readers) -> None:
        self._locks = locks
        self._readers = readers

    async def move(
        self, moving: Iterable[Unit], source: Tier, target: Tier, *, salience: float = 0.0
    ) -> Moved:
        """Move whole units; `salience` is added on arrival. A unit that cannot move stays and is named."""
        done = Moved()
        for batch in batches(moving, BATCH):
            done.add(await self._try(batch, source, target, salience))
        return done

    async def _try(self, batch: list[Unit], source: Tier, target: Tier, salience: float) -> Moved:
        """One batch; what the target refuses for good is told apart from its neighbours, which move."""
        try:
            return await self._move_batch(batch, source, target, salience)
        except A2MError as error:
            if len(batch) == 1 or error.retryable:
                log.warning("a move from %s to %s was put off: %s", source.name, target.name, error.message)
                return Moved(stayed={i: error.message for unit in batch for i in unit.ids})
        done = Moved()
        for unit in batch:
            done.add(await self._try([unit], source, target, salience))
        return done

    async def _move_batch(self, batch: list[Unit], source: Tier, target: Tier, salience: float) -> Moved:
        names = {name for unit in batch for entry in unit.entries for name in entry_locks(entry)}
        async with self._locks.hold(names):
            whole = await self._whole(batch, source)
            records = await source.store.read([i for unit in whole for i in unit.ids])
            late = {record.id for record in records if record.arrival is not None}
            if late:
                # An earlier move brought them here and may have left the originals: repair comes first.
                whole = [unit for unit in whole if not late.intersection(unit.ids)]
                kept = {i for unit in whole for i in unit.ids}
                records = [record for record in records if record.id in kept]
            if not records:
                return Moved(stayed={i: "gone" for unit in batch for i in unit.ids})
            pairs, stayed = await self._copy(records, source, target, salience)
            if not await self._readers.drained():
                log.warning("a read outlasted its timeout; the move from %s waits no longer", source.name)
            done = await self._delete(whole, records, pairs, source, target)
            done.stayed |= stayed
            return done

    async def _whole(self, batch: list[Unit], source: Tier) -> list[Unit]:
        """The units as they are now, late members included."""
        groups = tuple({entry.group for unit in batch for entry in unit.entries if entry.group is not None})
        single = [unit for unit in batch if unit.entries[0].group is None]
        if not groups:
            return single
        owners = {(entry.owner, entry.group) for unit in batch for entry in unit.entries}
        condition = Where((Condition("group", False, Op.IN, groups),))
        members = await every_entry(source.store, Filter(EVERYONE, condition))
        return single + units(entry for entry in members if (entry.owner, entry.group) in owners)

    async def _copy(
        self, records: Sequence[Record], source: Tier, target: Tier, salience: float
    ) -> tuple[dict[str, Pair], dict[str, str]]:
        """Transfer and read back: what is verified, by id, and why each of the others is not there.

        A copy that an earlier attempt left of what has changed since is taken back and made anew.
        """
        stayed: dict[str, str] = {}
        pairs: dict[str, Pair] = {}
        pending = {record.id: record for record in records}
        for _ in range(COPY_ATTEMPTS):
            written = await target.store.transfer(
                [as_draft(record, source.name, salience) for record in pending.values()]
            )
            refused = {w.id: w.reason for w in written if w.outcome == "refused" and w.reason != "exists"}
            stayed |= {i: f"{target.name} refused it: {reason}" for i, reason in refused.items()}
            held = {copy.id: copy for copy in await target.store.read([*pending])}
            stale: dict[str, Record] = {}
            for record_id, record in pending.items():
                copy = held.get(record_id)
                if record_id in refused or copy is None:
                    stayed.setdefault(record_id, f"{target.name} does not hold it")
                elif standing(record, source.name, copy, salience) == "stale":
                    stale[record_id] = copy
                else:
                    pairs[record_id] = Pair(record, copy)
            if not stale:
                return pairs, stayed
            # Only while the original is there, changed, is the copy not the record itself.
            pending = {record.id: record for record in await source.store.read([*stale])}
            stayed |= {i: "gone" for i in stale if i not in pending}
            doomed = [stale[i] for i, r in pending.items() if stale[i].arrival != arrival(source.name, r)]
            await self._undo(doomed, target)
        return pairs, stayed | dict.fromkeys(pending, f"{target.name} does not give it back as it was")

    async def _delete(
        self,
        whole: list[Unit],
        records: Sequence[Record],
        pairs: dict[str, Pair],
        source: Tier,
        target: Tier,
    ) -> Moved:
        listed = {record.id for record in records}
        members = [[i for i in unit.ids if i in listed] for unit in whole]
        ready = [
            [Named(i, pairs[i].record.etag) for i in ids] for ids in members if all(i in pairs for i in ids)
        ]
        settled = {named.id for names in ready for named in names}
        orphans = [pair.copy for i, pair in pairs.items() if i not in settled]
        outcomes = await self._delete_units([names for names in ready if names], source, target)
        done = Moved(stayed={copy.id: "its group did not move" for copy in orphans})
        undone = orphans
        for record_id, outcome in outcomes.items():
            if outcome == "deleted":
                done.ids[record_id] = pairs[record_id].record.owner
            else:
                done.stayed[record_id] = outcome
                if outcome in ("changed", "forgotten"):
                    undone.append(pairs[record_id].copy)
        await self._undo(undone, target)
        if done.ids:
            await target.store.settle([Named(i, pairs[i].copy.etag) for i in done.ids])
        return done

    async def _delete_units(self, ready: list[list[Named]], source: Tier, target: Tier) -> dict[str, Deleted]:
        """Delete all at once, or unit by unit when something in the batch changed."""
        if not ready:
            return {}
        together = await source.store.delete_if([n for names in ready for n in names], "moved", target.name)
        if len(ready) == 1 or all(outcome == "deleted" for outcome in together.values()):
            return _settled(ready, together)
        each = await asyncio.gather(*(source.store.delete_if(n, "moved", target.name) for n in ready))
        outcomes: dict[str, Deleted] = {}
        for names, outcome in zip(ready, each, strict=True):
            outcomes |= _settled([names], outcome)
        return outcomes

    async def _undo(self, copies: Sequence[Record], target: Tier) -> None:
        """Take copies back, whatever a recall counted on them meanwhile, but never another mover's copy."""
        marks = {copy.id: copy.arrival for copy in copies}
        names = [Named(copy.id, copy.etag) for copy in copies]
        for _ in range(UNDO_ATTEMPTS):
            if not names:
                return
            outcomes = await target.store.delete_if(names, "undo", None)
            if all(outcome == "deleted" for outcome in outcomes.values()):
                return
            left = await target.store.read([i for i, o in outcomes.items() if o in ("deleted", "changed")])
            names = [Named(record.id, record.etag) for record in left if record.arrival == marks[record.id]]
        log.warning("%d copies in %s could not be taken back; repair will", len(names), target.name)


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


async def every_entry(store: TierStore, selected: Filter) -> list[Entry]:
    """All matching entries of a tier, oldest first, in pages."""
    entries: list[Entry] = []
    after: tuple[int, str] | None = None
    while True:
        page = await store.entries(selected, PAGE, after)
        entries += page
        if len(page) < PAGE:
            return entries
        after = (page[-1].seq, page[-1].id)
