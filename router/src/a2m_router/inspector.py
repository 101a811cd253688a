"""What is left of ids in any tier, and what tiers keep in their histories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from a2m_protocol.errors import A2MError
from a2m_router.listing import PAGE, any_of
from a2m_router.tiers import Member, Tiers
from a2m_server.store import HistoryStore
from a2m_server.values import EVERYONE, Degraded, Erased, Erasure, Filter, Forgotten, Inspected, Page, Remnant

_BY_PROTOCOL = (
    "it lacks the extension `verify`: its timeline was looked at, and what else it keeps is not known"
)
_WEIGHT: Mapping[Erasure, int] = {"absent": 0, "held": 1, "erased": 2, "live": 3}


class Inspector:
    """Asks every tier what it still has of ids. No tier that could not be looked through is passed over."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset({"verify", "erase"} if self._keeping() else {"verify"})

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        looks = await asyncio.gather(*(self._look(member, ids) for member in self._tiers.members))
        return Inspected(
            [remnant for look in looks for remnant in look.remnants],
            tuple(tier for look in looks for tier in look.checked),
            tuple(degraded for look in looks for degraded in look.unverified),
        )

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        """Erase in one tier after another; what one refuses is raised as it refuses it."""
        outcomes: dict[str, Erasure] = dict.fromkeys(ids, "absent")
        counts: dict[str, int] = {}
        remotes: dict[str, tuple[str, ...]] = {}
        for member in self._keeping():
            told = await _history(member).erase(ids, dry=dry)
            for record_id, outcome in told.outcomes.items():
                if _WEIGHT[outcome] >= _WEIGHT[outcomes[record_id]]:
                    outcomes[record_id] = outcome
            if not dry:
                counts[member.name] = sum(told.tiers.values())
            if told.remotes:
                remotes[member.name] = tuple(name for names in told.remotes.values() for name in names)
        return Erased(outcomes, counts, remotes)

    async def with_history(self, receipt: Forgotten) -> Forgotten:
        """A receipt that says what histories still hold; of one that is silent, what it just took in."""
        keeping = self._keeping() if receipt.ids else []

        async def held_by(member: Member) -> int:
            try:
                told = await _history(member).erase(receipt.ids, dry=True)
            except A2MError:
                # The forget is done, whatever keeps the history from being looked at.
                return receipt.tiers.get(member.name, 0)
            return [*told.outcomes.values()].count("held")

        counts = await asyncio.gather(*map(held_by, keeping))
        held = {member.name: count for member, count in zip(keeping, counts, strict=True)}
        return replace(receipt, history={tier: count for tier, count in held.items() if count})

    def _keeping(self) -> list[Member]:
        members = self._tiers.members
        return [m for m in members if m.writable and m.info is not None and "erase" in m.info.extensions]

    async def _look(self, member: Member, ids: Sequence[str]) -> Inspected:
        try:
            info = member.info or await member.learn()
            if "verify" in info.extensions:
                return _placed(member.name, await member.store.remnants(ids))
            return await self._by_protocol(member, ids)
        except A2MError as error:
            return Inspected([], (), (Degraded(member.name, error.message),))

    async def _by_protocol(self, member: Member, ids: Sequence[str]) -> Inspected:
        found: list[Remnant] = []
        for at in range(0, len(ids), PAGE):
            selected = Filter(EVERYONE, any_of("id", ids[at : at + PAGE]))
            records = (await member.store.timeline(Page(selected))).records
            found += [Remnant(r.id, "timeline", tier=member.name) for r in records if r.id in ids]
        return Inspected(found, (), (Degraded(member.name, _BY_PROTOCOL),))


def _history(member: Member) -> HistoryStore:
    return cast("HistoryStore", member.store)


def _placed(tier: str, found: Inspected) -> Inspected:
    """What a tier said, under its name here; one that is a federation itself names its own."""
    remnants = [
        replace(r, tier=tier, place=r.place if r.tier is None else f"{r.tier}: {r.place}")
        for r in found.remnants
    ]
    unverified = (Degraded(tier, f"{d.tier}: {d.reason}") for d in found.unverified)
    return Inspected(remnants, (tier,), tuple(unverified))
