"""What counts on records wherever they are: their salience, and how often they were recalled."""

from __future__ import annotations

from collections.abc import Sequence

from a2m_router.coordination import Locks, Readers, entry_locks
from a2m_router.listing import every_entry
from a2m_router.tiers import Tiers, ask, ask_all
from a2m_server.values import Entry, Filter, Scope


class Counting:
    """Counts on the records of all tiers."""

    def __init__(self, tiers: Tiers, locks: Locks, readers: Readers) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        """Add to the salience of records wherever they are; no move of them is under way meanwhile.

        What a move left in two tiers is added to in both, in the one below first: whichever is taken back,
        the other has it, and a copy of what has changed since is.
        """
        asked = Filter(scope, ids=tuple(dict.fromkeys(ids)))
        held = await self._held(asked)
        async with self._locks.hold(name for e in _entries(held) for name in entry_locks(e)):
            with self._readers.reading():
                held = await self._held(asked)
                for member in reversed(self._tiers.movable()):
                    here = [entry.id for entry in held[member.name]]
                    if here:
                        await member.store.reinforce(here, amount, scope)
        return len({entry.id for entry in _entries(held)})

    async def touch(self, ids: Sequence[str], at: str) -> None:
        """Count accesses wherever the records are; like a read, it must not miss one between two tiers.

        The tiers below come first: what is counted on a copy and then on its original is counted once, since
        the copy of what has changed is taken back.
        """
        with self._readers.reading():
            for member in reversed(self._tiers.movable()):
                await ask([member], lambda member: member.store.touch(ids, at))

    async def _held(self, selected: Filter) -> dict[str, list[Entry]]:
        """Matching entries by tier."""
        return await ask_all(self._tiers.movable(), lambda member: every_entry(member.store, selected))


def _entries(answers: dict[str, list[Entry]]) -> list[Entry]:
    return [entry for entries in answers.values() for entry in entries]
