"""Taking out the guards of a tier, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from router_guards import Patch, Removal

from a2m_protocol.types import Draft
from a2m_server.ledger import Ledger
from a2m_server.memory import MemoryTier
from a2m_server.values import Buried, Deleted, Named, Reason, Tombstone, Written


def etags(patch: Patch) -> None:
    """A delete takes whatever has the id."""
    standing = Ledger.standing

    def by_id(self: Ledger, name: Named) -> Deleted:
        return "deleted" if name.id in self.records else standing(self, name)

    patch.setattr(Ledger, "standing", by_id)


def etags_of_undoing(patch: Patch) -> None:
    """The same for copies that are taken back."""
    delete_if = MemoryTier.delete_if

    async def by_id(
        self: MemoryTier, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        held = self._ledger.records
        if reason == "undo":
            named = [Named(n.id, held[n.id].etag) if n.id in held else n for n in named]
        return await delete_if(self, named, reason, target)

    patch.setattr(MemoryTier, "delete_if", by_id)


def all_or_nothing(patch: Patch) -> None:
    delete_if = MemoryTier.delete_if

    async def singly(
        self: MemoryTier, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        outcomes: dict[str, Deleted] = {}
        for name in named:
            outcomes |= await delete_if(self, [name], reason, target)
        return outcomes

    patch.setattr(MemoryTier, "delete_if", singly)


def deletes_answering(said: Deleted, instead: Deleted) -> Removal:
    """What a move deletes answers `instead`, so that the mover does what it does then."""

    def remove(patch: Patch) -> None:
        delete_if = MemoryTier.delete_if

        async def answer(
            self: MemoryTier, named: Sequence[Named], reason: Reason, target: str | None
        ) -> dict[str, Deleted]:
            outcomes = await delete_if(self, named, reason, target)
            return {i: instead if o == said and reason == "moved" else o for i, o in outcomes.items()}

        patch.setattr(MemoryTier, "delete_if", answer)

    return remove


def transfers(disregard: Callable[[Ledger, Draft], None]) -> Removal:
    """A transfer is taken although there is something that should refuse it."""

    def remove(patch: Patch) -> None:
        transfer = MemoryTier._transfer

        def lenient(self: MemoryTier, draft: Draft) -> Written:
            disregard(self._ledger, draft)
            return transfer(self, draft)

        patch.setattr(MemoryTier, "_transfer", lenient)

    return remove


def _dig_out(ledger: Ledger, record_id: str, reason: str) -> None:
    grave = ledger.graves.get(record_id)
    if grave is not None and grave.reason == reason:
        del ledger.graves[record_id]
        del ledger.dug[record_id]


def _displace(ledger: Ledger, draft: Draft, *, later: bool) -> None:
    """Make room where a record of as many moves, or a later one, is held."""
    held = ledger.records.get(draft.id)
    if held is not None and (held.seq > (draft.seq or 0)) == later:
        ledger.remove(held)


forgotten_refuses = transfers(lambda ledger, draft: _dig_out(ledger, draft.id, "forgotten"))
moved_refuses = transfers(lambda ledger, draft: _dig_out(ledger, draft.id, "moved"))
moves_refuse = transfers(lambda ledger, draft: _displace(ledger, draft, later=False))
later_refuses = transfers(lambda ledger, draft: _displace(ledger, draft, later=True))


def tombstones_elsewhere(patch: Patch) -> None:
    """A record is buried only where it is held."""
    bury = MemoryTier.bury

    async def only_here(self: MemoryTier, graves: Sequence[Tombstone]) -> dict[str, Buried]:
        outcomes: dict[str, Buried] = {grave.id: "absent" for grave in graves}
        held = [g for g in graves if g.id in self._ledger.records or g.reason == "moved"]
        return outcomes | await bury(self, held)

    patch.setattr(MemoryTier, "bury", only_here)


def giving_way_to_working(patch: Patch) -> None:
    """A claim is not told that the id is live."""
    bury = MemoryTier.bury

    async def silent(self: MemoryTier, graves: Sequence[Tombstone]) -> dict[str, Buried]:
        told = await bury(self, graves)
        return {g.id: "absent" if g.reason == "moved" else told[g.id] for g in graves}

    patch.setattr(MemoryTier, "bury", silent)


def marks_of_sessions(patch: Patch) -> None:
    patch.setattr(MemoryTier, "_has_elsewhere", lambda *_: False)


def telling_of_other_tiers(patch: Patch) -> None:
    """A write does not say that its session has records elsewhere."""
    write = MemoryTier._write

    def silent(self: MemoryTier, draft: Draft) -> Written:
        return replace(write(self, draft), elsewhere=False)

    patch.setattr(MemoryTier, "_write", silent)


def answers_to_retries(patch: Patch) -> None:
    """A `moved` tombstone does not answer a write."""
    write = MemoryTier._write

    def forgetful(self: MemoryTier, draft: Draft) -> Written:
        _dig_out(self._ledger, draft.id, "moved")
        return write(self, draft)

    patch.setattr(MemoryTier, "_write", forgetful)


def aliases(patch: Patch) -> None:
    patch.setattr(Ledger, "held", lambda self, record_id, owner: self.records.get(record_id))


def new_etag_of_a_retry(patch: Patch) -> None:
    write = MemoryTier._write

    def quiet(self: MemoryTier, draft: Draft) -> Written:
        held = self._ledger.held(draft.id, draft.owner)
        return write(self, draft) if held is None else Written(held.id, "existing", held.etag)

    patch.setattr(MemoryTier, "_write", quiet)
