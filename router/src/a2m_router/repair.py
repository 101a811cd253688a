"""Settling moves that did not end: a copy is there, and the original may be too.

A move marks what it brings with its `arrival` (the source tier and the etag that was copied) and takes the
mark away when it has ended. What still has the mark when nobody is moving it was left by a router that died
or a call whose answer was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Literal

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Record
from a2m_router.coordination import Locks, Readers, entry_locks
from a2m_router.counts import Counts
from a2m_router.listing import every_entry
from a2m_router.policy import Unit, true_copy, units
from a2m_router.tiers import Member, Tiers
from a2m_server.values import EVERYONE, Filter, Named, Tombstone

Verdict = Literal["settled", "finish", "undo", "forgotten"]

log = logging.getLogger(__name__)


def verdict(
    copy: Record, here: str, original: Record | None, grave: Tombstone | None, copied: str
) -> Verdict:
    """What to do about a copy in `here`, given what its source holds and the etag that was `copied`.

    Forgotten wins over what is older; a copy rewritten since wins over its original; an original that
    changed after it was copied, that has gone to another tier meanwhile, or that its tier does not give back
    as it was, wins over the copy, and so does what was written anew since (it had moved less often when it
    left the source); otherwise the move is finished.
    """
    if grave is not None and grave.reason == "forgotten" and grave.seq >= copy.seq:
        return "forgotten"
    if original is None:
        if grave is None or grave.reason != "moved":
            return "settled"
        return "settled" if grave.target == here and grave.moves >= copy.moves else "undo"
    if copy.revision > original.revision or (original.etag == copied and true_copy(original, copy)):
        return "finish"
    return "undo"


def _marks(member: Member) -> bool:
    """Whether a tier keeps the marks of arrivals."""
    return member.info is None or "arrivals" in member.info.extensions


class Repairer:
    """Finds and settles what moves left behind, without reading whole tiers."""

    def __init__(self, tiers: Tiers, locks: Locks, readers: Readers, counts: Counts | None = None) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers
        self._counts = counts or Counts()

    async def repair(self) -> dict[str, str | None]:
        """Settle every arrival of every tier; the records whose move was finished, each with its owner."""
        finished: dict[str, str | None] = {}
        for member in self._tiers.movable():
            if not _marks(member):
                continue
            try:
                arrived = await every_entry(member.store, Filter(EVERYONE, arrived=True))
            except A2MError as error:
                log.warning("%s could not be repaired, and will be later: %s", member.name, error.message)
                continue
            for unit in units(arrived):
                try:
                    finished |= await self._settle_unit(member, unit)
                except A2MError as error:
                    log.warning(
                        "a move into %s is not settled, and will be later: %s", member.name, error.message
                    )
        return finished

    async def settle(self, ids: Sequence[str]) -> None:
        """Settle what of `ids` is marked, in whichever tier."""
        if not ids:
            return
        selected = Filter(EVERYONE, ids=tuple(ids), arrived=True)
        members = [member for member in self._tiers.movable() if _marks(member)]
        found = await asyncio.gather(*(every_entry(member.store, selected) for member in members))
        for member, arrived in zip(members, found, strict=True):
            for unit in units(arrived):
                await self._settle_unit(member, unit)

    async def _settle_unit(self, member: Member, unit: Unit) -> dict[str, str | None]:
        async with self._locks.hold(name for entry in unit.entries for name in entry_locks(entry)):
            return await self._settle(member, unit.ids)

    async def _settle(self, here: Member, ids: Sequence[str]) -> dict[str, str | None]:
        """Settle one unit; its locks are held, so that nobody is moving it."""
        copies = {r.id: r for r in await here.store.read(ids) if r.arrival is not None}
        sources: dict[str, dict[str, str]] = {}
        for copy in copies.values():
            tier, _, etag = str(copy.arrival).partition(" ")
            sources.setdefault(tier, {})[copy.id] = etag
        finished: dict[str, str | None] = {}
        for tier, copied in sources.items():
            if tier not in self._tiers:
                # Whether it is the record itself cannot be told without that tier; others are not to wait.
                log.warning("%s holds %d copies from %s, which is no tier here", here.name, len(copied), tier)
                continue
            finished |= await self._settle_from(here, self._tiers.get(tier), copies, copied)
        return finished

    async def _settle_from(
        self, here: Member, source: Member, copies: Mapping[str, Record], copied: Mapping[str, str]
    ) -> dict[str, str | None]:
        ids = [*copied]
        held, graves = await asyncio.gather(source.store.read(ids), source.store.tombstones(ids))
        originals = {record.id: record for record in held}
        buried = {grave.id: grave for grave in graves}
        verdicts = {i: verdict(copies[i], here.name, originals.get(i), buried.get(i), copied[i]) for i in ids}
        if "undo" in verdicts.values():
            # A group moves whole: where one original changed, none of the others may leave.
            verdicts = {i: "undo" if v == "finish" else v for i, v in verdicts.items()}
        finishing = [i for i, v in verdicts.items() if v == "finish"]
        if finishing:
            # As in a move: a read that began before the copy may not have come to the original yet.
            await self._readers.drained()
            names = [Named(i, originals[i].etag) for i in finishing]
            outcomes = await source.store.delete_if(names, "moved", here.name)
            for record_id in finishing:
                verdicts[record_id] = "settled" if outcomes[record_id] == "deleted" else "finish"
        named = {i: Named(i, copies[i].etag) for i in ids}
        if undone := [named[i] for i, v in verdicts.items() if v == "undo"]:
            await here.store.delete_if(undone, "undo", None)
        if forgotten := [buried[i] for i, v in verdicts.items() if v == "forgotten"]:
            await here.store.bury(forgotten)
        if settled := [named[i] for i, v in verdicts.items() if v == "settled"]:
            await here.store.settle(settled)
        for what in verdicts.values():
            self._counts.repaired.labels(here.name, what).inc()
        log.info("settled a move from %s to %s: %s", source.name, here.name, sorted(verdicts.values()))
        return {i: copies[i].owner for i in finishing if verdicts[i] == "settled"}
