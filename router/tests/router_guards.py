"""Taking out the guards of the router, one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from typing import Any

import pytest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Record
from a2m_router import counting, forgets, merge, moves, repair
from a2m_router.coordination import Locks, Readers
from a2m_router.forgets import Forgetter
from a2m_router.keeper import Keeper
from a2m_router.moves import Mover, Pair
from a2m_router.repair import Repairer, Verdict
from a2m_router.tiers import Member
from a2m_router.writes import Placer
from a2m_server.values import Deleted, Filter, Named, Tombstone

Patch = pytest.MonkeyPatch
Removal = Callable[[Patch], None]


def all_of(*removals: Removal) -> Removal:
    def remove(patch: Patch) -> None:
        for one in removals:
            one(patch)

    return remove


async def _nothing(*_: object) -> None:
    """Instead of something that guards."""


def locks(patch: Patch) -> None:
    @contextlib.asynccontextmanager
    async def free(*_: object) -> AsyncGenerator[None]:
        yield

    patch.setattr(Locks, "hold", free)


def locks_of_late_members(patch: Patch) -> None:
    """A move goes on with the locks that it has, whoever joined meanwhile."""

    class Content(set[str]):
        def __le__(self, other: object) -> bool:
            return True

    locks_of = moves._locks_of
    patch.setattr(moves, "_locks_of", lambda whole: Content(locks_of(whole)))


def waiting_for_reads(patch: Patch) -> None:
    async def at_once(*_: object) -> bool:
        return True

    patch.setattr(Readers, "drained", at_once)


class Unheeded(Readers):
    """Reads that nobody waits for, and nobody that waits."""

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        yield

    async def drained(self) -> bool:
        return True


def readers_of(part: type, position: int) -> Removal:
    """One part of the router neither waits for reads nor is waited for."""

    def remove(patch: Patch) -> None:
        build = part.__init__

        def init(self: object, *given: Any, **named: Any) -> None:
            build(self, *given[:position], Unheeded(), *given[position + 1 :], **named)

        patch.setattr(part, "__init__", init)

    return remove


def verification(patch: Patch) -> None:
    patch.setattr(moves, "standing", lambda *_: "same")


def verification_in_repair(patch: Patch) -> None:
    patch.setattr(repair, "true_copy", lambda *_: True)


def marks_of_arrivals(patch: Patch) -> None:
    as_draft = moves.as_draft
    patch.setattr(moves, "as_draft", lambda *given: as_draft(*given).model_copy(update={"arrival": None}))


class Unmarked:
    """A store whose records do not show that a move brought them."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, method: str) -> Any:
        return getattr(self._store, method)

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return [r.model_copy(update={"arrival": None}) for r in await self._store.read(ids)]


def respect_for_marks(patch: Patch) -> None:
    """A move takes along what another one brought and has not ended."""
    move_locked = Mover._move_locked

    async def heedless(self: Mover, whole: Any, source: Member, *rest: Any) -> Any:
        blind: Any = Unmarked(source.store)
        return await move_locked(self, whole, Member(source.config, blind), *rest)

    patch.setattr(Mover, "_move_locked", heedless)


def whole_units(patch: Patch) -> None:
    """Each of a unit's outcomes is taken for itself."""

    def each(ready: list[list[Named]], outcomes: dict[str, Deleted]) -> dict[str, Deleted]:
        return {name.id: outcomes[name.id] for names in ready for name in names}

    patch.setattr(moves, "_settled", each)


def doubt_of_failures(patch: Patch) -> None:
    """An answer that does not come is taken for a change."""
    delete_units = Mover._delete_units

    async def hasty(
        self: Mover, ready: list[list[Named]], *between: Any
    ) -> tuple[dict[str, Deleted], A2MError | None]:
        try:
            return await delete_units(self, ready, *between)
        except A2MError:
            return {name.id: "changed" for names in ready for name in names}, None

    patch.setattr(Mover, "_delete_units", hasty)


def own_copies(patch: Patch) -> None:
    """Whatever is found at the target counts as the copy of what moves."""
    patch.setattr(moves, "Pair", lambda original, copy, mark, owner: Pair(original, copy, mark or "", owner))


def repairing(patch: Patch) -> None:
    async def none(*_: object) -> dict[str, str | None]:
        return {}

    patch.setattr(Repairer, "repair", none)


def verdicts(instead: Callable[[Record, Record | None, Tombstone | None], Verdict | None]) -> Removal:
    """Repair decides otherwise: by copy, original and tombstone, where that says something."""

    def remove(patch: Patch) -> None:
        verdict = repair.verdict

        def decide(
            copy: Record, here: str, original: Record | None, grave: Tombstone | None, copied: str
        ) -> Verdict:
            return instead(copy, original, grave) or verdict(copy, here, original, grave, copied)

        patch.setattr(repair, "verdict", decide)

    return remove


changed_is_undone = verdicts(lambda copy, original, grave: "finish" if original is not None else None)
rewritten_is_kept = verdicts(
    lambda copy, original, grave: "undo" if original and copy.revision > original.revision else None
)
forgotten_is_removed = verdicts(
    lambda copy, original, grave: "settled" if grave and grave.reason == "forgotten" else None
)
written_anew_is_kept = verdicts(
    lambda copy, original, grave: "settled" if not original and grave and grave.moves < copy.moves else None
)
gone_elsewhere_is_undone = verdicts(lambda copy, original, grave: "settled" if original is None else None)


def whole_groups_in_repair(patch: Patch) -> None:
    settle_from = Repairer._settle_from

    async def singly(
        self: Repairer,
        here: Member,
        source: Member,
        copies: Mapping[str, Record],
        copied: Mapping[str, str],
    ) -> dict[str, str | None]:
        finished: dict[str, str | None] = {}
        for i in copied:
            finished |= await settle_from(self, here, source, {i: copies[i]}, {i: copied[i]})
        return finished

    patch.setattr(Repairer, "_settle_from", singly)


def settling_before_writes(patch: Patch) -> None:
    patch.setattr(Repairer, "settle", _nothing)


def claims(patch: Patch) -> None:
    patch.setattr(Placer, "_claim", _nothing)


def dated_claims(patch: Patch) -> None:
    async def none(*_: object) -> list[Tombstone]:
        return []

    patch.setattr(Placer, "_dated", none)


def looking_for_grown_groups(patch: Patch) -> None:
    patch.setattr(Keeper, "_find_parted", _nothing)


def tombstones_of_the_unheld(patch: Patch) -> None:
    async def nothing_came(*_: object) -> bool:
        return False

    patch.setattr(Forgetter, "_forbid", nothing_came)


def second_look(patch: Patch) -> None:
    """A forget buries what it found first, without looking again under the locks."""
    resolve = Forgetter._resolve
    found: dict[Forgetter, forgets._Held] = {}

    async def first(self: Forgetter, selected: Filter) -> forgets._Held:
        if self in found and selected.ids is not None:
            return found[self]
        found[self] = held = await resolve(self, selected)
        return held

    patch.setattr(Forgetter, "_resolve", first)


def repetition(patch: Patch) -> None:
    """A forget looks only once for what it selects."""
    resolve = Forgetter._resolve
    asked: list[tuple[Forgetter, Filter]] = []

    async def once(self: Forgetter, selected: Filter) -> forgets._Held:
        if any(self is who and selected is what for who, what in asked):
            return forgets._Held()
        asked.append((self, selected))
        return await resolve(self, selected)

    patch.setattr(Forgetter, "_resolve", once)


def newest_of_two(patch: Patch) -> None:
    patch.setattr(merge, "newest", lambda a, b: b)


def one_of_two(patch: Patch) -> None:
    """Both copies of a record are shown."""

    class Each(dict[tuple[str, str], Record]):
        def __missing__(self, wanted: object) -> Record:
            return next(record for record in self.values() if record.id == wanted)

    def every_copy(answers: Mapping[str, Sequence[Record]]) -> Each:
        return Each({(tier, r.id): r for tier, records in answers.items() for r in records})

    patch.setattr(merge, "distinct", every_copy)


def counting_below_first(patch: Patch) -> None:
    patch.setattr(counting, "reversed", list, raising=False)
