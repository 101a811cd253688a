"""Forgetting over all tiers: a forget that has returned is final, whatever was in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from a2m_protocol.errors import A2MError, after_forgetting, unavailable
from a2m_router.coordination import Clock, Locks, Readers, entry_locks, id_lock
from a2m_router.listing import PAGE, every_entry
from a2m_router.steps import Observer, unobserved
from a2m_router.tiers import Member, Tiers, ask_all
from a2m_server.values import EVERYONE, POOLED, Entry, Filter, Forgotten, Tombstone

ROUNDS = 20


@dataclass(slots=True)
class _Receipt:
    """What was removed; `begun` are those that may be gone from some tiers, and not yet from all."""

    begun: list[str] = field(default_factory=list[str])
    owners: dict[str, str | None] = field(default_factory=dict[str, str | None])
    tiers: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class _Held:
    """What matches: each record once, and the tiers that hold it."""

    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    tiers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, tier: str, entry: Entry) -> None:
        held = self.entries.get(entry.id)
        self.entries[entry.id] = entry if held is None or entry.seq > held.seq else held
        self.tiers.setdefault(entry.id, []).append(tier)


class Forgetter:
    """Resolves what a forget selects in every tier and leaves tombstones in all of them."""

    def __init__(
        self, tiers: Tiers, locks: Locks, readers: Readers, clock: Clock, observer: Observer = unobserved
    ) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers
        self._clock = clock
        self._reached = observer

    async def forget(self, selected: Filter) -> Forgotten:
        """Forget what matches now; what is written meanwhile is newer than the call and stays.

        Raises a retryable error when a writable tier does not answer: what was already removed stays so, and
        is named in `data.forgotten`, and what may be, in `data.uncertain`.
        """
        receipt = _Receipt()
        try:
            await self._forget_all(selected, receipt)
        except A2MError as error:
            if not receipt.owners and not receipt.begun:
                raise
            raise after_forgetting(error, [*receipt.owners], receipt.begun) from error
        return Forgotten([*receipt.owners], receipt.tiers, receipt.owners)

    async def _forget_all(self, selected: Filter, receipt: _Receipt) -> None:
        begun = self._clock()
        horizon = begun
        for turn in range(ROUNDS):
            held = await self._resolve(selected)
            await self._reached("forget: resolved")
            if turn == 0:
                horizon = max([begun, *(entry.seq for entry in held.entries.values())])
                if await self._forbid(selected, held, begun):
                    continue
            old = [entry for entry in held.entries.values() if entry.seq <= horizon]
            if not old:
                break
            for at in range(0, len(old), PAGE):
                await self._forget(selected, old[at : at + PAGE], begun, horizon, receipt)
        else:
            raise unavailable("this forget", "what it selects is being moved about too fast")
        await self._forget_elsewhere(selected, begun, receipt)

    async def _forget(
        self, selected: Filter, entries: Iterable[Entry], begun: int, horizon: int, receipt: _Receipt
    ) -> None:
        """Bury what of `entries` still matches, with its locks held: a rewritten value may match no more.

        A record that was written anew meanwhile is above the `horizon`.
        """
        locks = {name for entry in entries for name in (id_lock(entry.id), *entry_locks(entry))}
        async with self._locks.hold(locks):
            await self._reached("forget: locked")
            held = await self._resolve(replace(selected, ids=tuple(entry.id for entry in entries)))
            old = [entry for entry in held.entries.values() if entry.seq <= horizon]
            receipt.begun = [entry.id for entry in old]
            for record_id, kept in (await self._bury(old, begun)).items():
                if not kept:
                    receipt.owners[record_id] = held.entries[record_id].owner
                    receipt.tiers.update(held.tiers[record_id])
            receipt.begun = []
            await self._reached("forget: buried")

    async def _resolve(self, selected: Filter) -> _Held:
        members, where = self._tiers.readable(selected.tier, selected.where)
        asked = replace(selected, where=where, tier=None)
        movable = [member for member in members if member.movable]
        with self._readers.reading():
            answers = await ask_all(movable, lambda member: every_entry(member.store, asked))
        held = _Held()
        for tier, entries in answers.items():
            for entry in entries:
                held.add(tier, entry)
        return held

    async def _forbid(self, selected: Filter, held: _Held, begun: int) -> bool:
        """Leave tombstones of ids named outright that no tier holds: an import under way may bring them.

        Only who sees every owner, or no owner's, may: whose id it will be is not known. Whether some of them
        came while it was asked.
        """
        narrowed = selected.where or selected.words is not None or selected.key_prefix or selected.tier
        missing = [i for i in selected.ids or () if i not in held.entries]
        came = False
        if narrowed or not missing or selected.scope.readable not in (None, POOLED.readable):
            return came
        for at in range(0, len(missing), PAGE):
            part = missing[at : at + PAGE]
            async with self._locks.hold(id_lock(i) for i in part):
                found = await self._resolve(Filter(EVERYONE, ids=tuple(part)))
                absent = [Entry(i, seq=0, etag="") for i in part if i not in found.entries]
                await self._bury(absent, begun)
                came = came or bool(found.entries)
        return came

    async def _bury(self, entries: Iterable[Entry], begun: int) -> Mapping[str, bool]:
        """Put `forgotten` tombstones in every tier of ours; whether a newer record of the id stays."""
        graves = [
            Tombstone(
                id=entry.id,
                reason="forgotten",
                seq=max(begun, entry.seq),
                owner=entry.owner,
                key=entry.key,
                session=entry.session,
            )
            for entry in entries
        ]
        if not graves:
            return {}
        answers = await ask_all(self._tiers.movable(), lambda member: member.store.bury(graves))
        return {grave.id: any(told.get(grave.id) == "live" for told in answers.values()) for grave in graves}

    async def _forget_elsewhere(self, selected: Filter, begun: int, receipt: _Receipt) -> None:
        """The same in tiers that know no tombstones, by their own forget; our claims of its ids go too."""
        members, where = self._tiers.readable(selected.tier, selected.where)
        asked = replace(selected, where=where, tier=None)
        foreign = [member for member in members if member.writable and not member.movable]

        async def forget(member: Member) -> Forgotten:
            return await member.store.forget(asked)

        for tier, told in (await ask_all(foreign, forget)).items():
            receipt.tiers[tier] += len(told.ids) or sum(told.tiers.values())
            receipt.owners |= dict.fromkeys(told.ids)
            await self._bury([Entry(i, seq=0, etag="") for i in told.ids], begun)
