"""Forgetting over all tiers: a forget that has returned is final, whatever was in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from a2m_protocol.errors import unavailable
from a2m_router.coordination import Clock, Readers
from a2m_router.moves import every_entry
from a2m_router.tiers import Member, Tiers, ask_all
from a2m_server.store import EVERYONE, Buried, Entry, Filter, Forgotten, Tombstone

ROUNDS = 20


class Forgetter:
    """Resolves what a forget selects in every tier and leaves tombstones in all of them."""

    def __init__(self, tiers: Tiers, readers: Readers, clock: Clock) -> None:
        self._tiers = tiers
        self._readers = readers
        self._clock = clock

    async def forget(self, selected: Filter) -> Forgotten:
        """Forget what matches now; what is written meanwhile is newer than the call and stays.

        Raises a retryable error when a writable tier does not answer: what was already removed stays so.
        """
        horizon = self._clock()
        owners: dict[str, str | None] = {}
        removed: Counter[str] = Counter()
        gone: set[str] = set()
        claimed: dict[str, Entry] = {}
        for turn in range(ROUNDS):
            found = await self._resolve(selected)
            if turn == 0:
                horizon = max([horizon, *(entry.seq for entry in found.values())])
                claimed = await self._unheld(selected, found)
            old = {i: entry for i, entry in (claimed | found).items() if entry.seq <= horizon}
            claimed = {}
            if not old:
                break
            for tier, outcomes in (await self._bury(old, horizon)).items():
                taken = [i for i, outcome in outcomes.items() if outcome == "forgotten"]
                removed[tier] += len(taken)
                gone.update(taken)
                owners |= {i: old[i].owner for i in taken}
        else:
            raise unavailable("this forget", "what it selects is being moved about too fast")
        ids, foreign = await self._elsewhere(selected)
        return Forgotten([*gone, *ids], {**removed, **foreign}, owners)

    async def _resolve(self, selected: Filter) -> dict[str, Entry]:
        members, where = self._tiers.readable(selected.tier, selected.where)
        asked = replace(selected, where=where, tier=None)
        movable = [member for member in members if member.movable]
        with self._readers.reading():
            answers = await ask_all(movable, lambda member: every_entry(member.store, asked))
        found: dict[str, Entry] = {}
        for entries in answers.values():
            for entry in entries:
                held = found.get(entry.id)
                found[entry.id] = entry if held is None or entry.seq > held.seq else held
        return found

    async def _unheld(self, selected: Filter, found: Mapping[str, Entry]) -> dict[str, Entry]:
        """Ids named outright that no tier holds: an import under way may bring them yet."""
        narrowed = selected.where or selected.words is not None or selected.key_prefix or selected.tier
        missing = tuple(i for i in selected.ids or () if i not in found)
        if narrowed or not missing:
            return {}
        held = await self._resolve(Filter(EVERYONE, ids=missing))
        scope = selected.scope
        absent = {i: Entry(i, seq=0, etag="", owner=scope.owner) for i in missing if i not in held}
        return absent | {i: entry for i, entry in held.items() if scope.sees(entry.owner)}

    async def _bury(self, old: Mapping[str, Entry], horizon: int) -> dict[str, dict[str, Buried]]:
        graves = [
            Tombstone(entry.id, "forgotten", horizon, owner=entry.owner, key=entry.key, session=entry.session)
            for entry in old.values()
        ]
        return await ask_all(self._tiers.movable(), lambda member: member.store.bury(graves))

    async def _elsewhere(self, selected: Filter) -> tuple[list[str], dict[str, int]]:
        """The same in tiers that know no tombstones, by their own forget."""
        members, where = self._tiers.readable(selected.tier, selected.where)
        asked = replace(selected, where=where, tier=None)
        foreign = [member for member in members if member.writable and not member.movable]

        async def forget(member: Member) -> Forgotten:
            return await member.store.forget(asked)

        answers = await ask_all(foreign, forget)
        ids = [record_id for receipt in answers.values() for record_id in receipt.ids]
        return ids, {tier: len(receipt.ids) for tier, receipt in answers.items()}
