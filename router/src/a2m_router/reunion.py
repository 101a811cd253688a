"""Bringing groups together again whose members are in several tiers."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

from a2m_protocol.where import MAX_VALUES
from a2m_router.listing import any_of, every_entry
from a2m_router.moves import Moved, Mover
from a2m_router.policy import units
from a2m_router.tiers import Tiers, ask_all
from a2m_server.values import EVERYONE, Entry, Filter

Address = tuple[str | None, str]


class Reunion:
    """Groups that may be parted, and how they are brought together: where their oldest member is."""

    def __init__(self, tiers: Tiers, mover: Mover) -> None:
        self._tiers = tiers
        self._mover = mover
        self._due: OrderedDict[Address, None] = OrderedDict()

    def add(self, owner: str | None, group: str) -> None:
        self._due[owner, group] = None

    async def reunite(self) -> Moved:
        """Look at the groups that were added; those that could not be brought together are kept for later."""
        done = Moved()
        while self._due:
            wanted = [self._due.popitem(last=False)[0] for _ in range(min(MAX_VALUES, len(self._due)))]
            whole = False
            try:
                part = await self._reunite(wanted)
                # What changed while it was moved stays too, and nothing would tell of it later.
                whole = part.failed is None and not part.stayed
            finally:
                if not whole:
                    self._due.update(dict.fromkeys(wanted))
            done.add(part)
            if not whole:
                break
        return done

    async def _reunite(self, wanted: list[Address]) -> Moved:
        groups = [*{group for _, group in wanted}]
        owners = [*{owner for owner, _ in wanted}]
        selected = Filter(EVERYONE, any_of("group", groups, "owner", owners))
        members = self._tiers.movable()
        answers = await ask_all(members, lambda member: every_entry(member.store, selected))
        held: dict[Address, dict[str, tuple[str, Entry]]] = defaultdict(dict)
        for tier, entries in answers.items():
            for entry in entries:
                if entry.group is not None and (entry.owner, entry.group) in set(wanted):
                    members_of = held[entry.owner, entry.group]
                    known = members_of.get(entry.id)
                    # A group on the move is in two tiers, but not parted.
                    if known is None or entry.moves > known[1].moves:
                        members_of[entry.id] = (tier, entry)
        done = Moved()
        for placed in held.values():
            tiers: dict[str, list[Entry]] = defaultdict(list)
            for tier, entry in placed.values():
                tiers[tier].append(entry)
            if len(tiers) > 1:
                done.add(await self._bring_together(tiers))
        return done

    async def _bring_together(self, tiers: dict[str, list[Entry]]) -> Moved:
        home = min(tiers, key=lambda tier: min((entry.seq, entry.id) for entry in tiers[tier]))
        done = Moved()
        for tier, entries in tiers.items():
            if tier != home:
                source, target = self._tiers.get(tier), self._tiers.get(home)
                done.add(await self._mover.move(units(entries), source, target, why="group"))
        return done
