"""The tombstones of a federation, for backups: listed, looked up, and put again in every tier."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from a2m_protocol.errors import invalid_params
from a2m_router.coordination import Locks, Readers, entry_locks, id_lock
from a2m_router.listing import PAGE, every_entry
from a2m_router.tiers import Tiers, ask_all
from a2m_server.values import EVERYONE, Buried, Entry, Filter, Tombstone


class Graves:
    """What the tiers that take part in moves know of deleted records; all of them must answer."""

    def __init__(self, tiers: Tiers, locks: Locks, readers: Readers) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers

    async def listed(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        """`TierStore.graves` over all tiers; one that differs from tier to tier is listed at each place."""
        answers = await ask_all(self._tiers.movable(), lambda member: member.store.graves(limit, after))
        found = {(grave.seq, grave.id): grave for graves in answers.values() for grave in graves}
        return [found[place] for place in sorted(found)[:limit]]

    async def of(self, ids: Sequence[str]) -> list[Tombstone]:
        """The weightiest tombstone of each id: a forget outweighs a move, then the later one counts."""
        answers = await ask_all(self._tiers.movable(), lambda member: member.store.tombstones(ids))
        found: dict[str, Tombstone] = {}
        for grave in (grave for graves in answers.values() for grave in graves):
            held = found.get(grave.id)
            if held is None or _weight(grave) > _weight(held):
                found[grave.id] = grave
        return [found[i] for i in dict.fromkeys(ids) if i in found]

    async def bury(self, graves: Sequence[Tombstone]) -> dict[str, Buried]:
        """Put tombstones of what was forgotten in every tier, with the locks of what they may end held.

        Of an id that a newer record has (`live`) none is put: what tiers know of its moves has to stay.
        """
        if any(grave.reason != "forgotten" for grave in graves):
            raise invalid_params("tombstones: a federation takes those alone whose reason is forgotten")
        outcomes: dict[str, Buried] = {}
        for at in range(0, len(graves), PAGE):
            outcomes |= await self._bury({grave.id: grave for grave in graves[at : at + PAGE]})
        return outcomes

    async def _bury(self, graves: dict[str, Tombstone]) -> dict[str, Buried]:
        held = await self._held(graves)
        async with self._locks.hold([*map(id_lock, graves), *(n for e in held for n in entry_locks(e))]):
            held = await self._held(graves)
            newer = {entry.id for entry in held if entry.seq > graves[entry.id].seq}
            put = [grave for grave in graves.values() if grave.id not in newer]
            answers = await ask_all(self._tiers.movable(), lambda member: member.store.bury(put))
        told: dict[str, set[Buried]] = {}
        for outcomes in answers.values():
            for record_id, outcome in outcomes.items():
                told.setdefault(record_id, set()).add(outcome)
        return {i: _outcome(told.get(i, {"live"})) for i in graves}

    async def _held(self, ids: Iterable[str]) -> list[Entry]:
        selected = Filter(EVERYONE, ids=tuple(ids))
        with self._readers.reading():
            answers = await ask_all(self._tiers.movable(), lambda m: every_entry(m.store, selected))
        return [entry for entries in answers.values() for entry in entries]


def _outcome(told: Collection[Buried]) -> Buried:
    if "live" in told:
        return "live"
    return "forgotten" if "forgotten" in told else "absent"


def _weight(grave: Tombstone) -> tuple[bool, int]:
    return grave.reason == "forgotten", grave.seq
