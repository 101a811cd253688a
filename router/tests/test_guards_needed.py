"""Each guard of the router and of the tiers is needed: without it, the model finds what it protects broken."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import acts
import pytest
import scenes
from explorer import Tier
from scenes import GROUP, KEYED, SESSION, Plan

from a2m_protocol.errors import A2MError, unavailable
from a2m_protocol.types import Draft, Record
from a2m_router import federation, forgets, merge, moves, repair
from a2m_router.coordination import Readers
from a2m_router.federation import Federation
from a2m_router.forgets import Forgetter
from a2m_router.keeper import Keeper
from a2m_router.repair import Repairer
from a2m_router.tiers import Member
from a2m_router.writes import Placer
from a2m_server.ledger import Ledger
from a2m_server.memory import MemoryTier
from a2m_server.store import Buried, Deleted, Filter, Named, Reason, Scope, Tombstone, Written

Patch = pytest.MonkeyPatch
Remove = Callable[[Patch], None]

THREE = ("working", "episodic", "semantic")
DETAILED = Draft(id="one", content="first words", session=SESSION, metadata={"a": 1})


@dataclass(frozen=True)
class Guard:
    """What is taken out, how, and the scene in which `invariant` is then violated."""

    name: str
    remove: Remove
    plan: Plan
    invariant: str


class Forgetful(Tier):
    """A tier that does not give metadata back."""

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        if self._name != "working":
            drafts = [draft.model_copy(update={"metadata": None}) for draft in drafts]
        return await super().transfer(drafts)


class Refusing(Tier):
    """A tier below that takes no writes."""

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        if self._name != "working":
            raise unavailable(self._name, "it is full")
        return await super().write(drafts, scope)


class NoReaders(Readers):
    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        yield

    async def drained(self) -> bool:
        return True


@contextlib.asynccontextmanager
async def _unlocked(*_: object) -> AsyncGenerator[None]:
    yield


def no_locks(patch: Patch) -> None:
    patch.setattr(scenes.QueuedLocks, "hold", _unlocked)


def no_waiting_for_readers(patch: Patch) -> None:
    async def at_once(*_: object) -> bool:
        return True

    patch.setattr(scenes.QueuedReaders, "drained", at_once)


def _with_readers(kind: type, at: int) -> Remove:
    """Give one part of the router readers that nobody waits for."""

    def remove(patch: Patch) -> None:
        build = kind.__init__

        def init(self: object, *given: Any, **named: Any) -> None:
            build(self, *given[:at], NoReaders(), *given[at + 1 :], **named)

        patch.setattr(kind, "__init__", init)

    return remove


def no_verification(patch: Patch) -> None:
    patch.setattr(moves, "standing", lambda *_: "same")


def no_verification_in_repair(patch: Patch) -> None:
    patch.setattr(repair, "true_copy", lambda *_: True)
    undo = moves.Mover._undo

    async def none(*_: object) -> None:
        pass

    patch.setattr(moves.Mover, "_undo", none)


def no_etags(patch: Patch) -> None:
    standing = Ledger.standing
    patch.setattr(
        Ledger,
        "standing",
        lambda self, name: "deleted" if name.id in self.records else standing(self, name),
    )


def _answering(said: Deleted, instead: Deleted) -> Remove:
    """Deletes that a move asks for answer `instead`, so that the mover acts as on that."""

    def remove(patch: Patch) -> None:
        delete_if = Tier.delete_if

        async def answer(
            self: Tier, named: Sequence[Named], reason: Reason, target: str | None
        ) -> dict[str, Deleted]:
            outcomes = await delete_if(self, named, reason, target)
            return {i: instead if o == said and reason == "moved" else o for i, o in outcomes.items()}

        patch.setattr(Tier, "delete_if", answer)

    return remove


def no_marks(patch: Patch) -> None:
    as_draft = moves.as_draft
    patch.setattr(
        moves, "as_draft", lambda *given: as_draft(*given).model_copy(update={"arrival": None})
    )


def no_repair(patch: Patch) -> None:
    async def nothing(*_: object) -> dict[str, str | None]:
        return {}

    patch.setattr(Repairer, "repair", nothing)


def no_settling_before_a_write(patch: Patch) -> None:
    async def nothing(*_: object) -> None:
        pass

    patch.setattr(Repairer, "settle", nothing)


def _verdict(change: Callable[..., str | None]) -> Remove:
    def remove(patch: Patch) -> None:
        verdict = repair.verdict
        patch.setattr(repair, "verdict", lambda *given: change(*given) or verdict(*given))

    return remove


def _changed_is_finished(copy: Record, here: str, original: Record | None, *_: object) -> str | None:
    return "finish" if original is not None else None


def _rewritten_is_undone(copy: Record, here: str, original: Record | None, *_: object) -> str | None:
    return "undo" if original is not None and copy.revision > original.revision else None


def _forgotten_is_settled(
    copy: Record, here: str, original: Record | None, grave: Tombstone | None, *_: object
) -> str | None:
    return "settled" if grave is not None and grave.reason == "forgotten" else None


def _gone_elsewhere_is_settled(copy: Record, here: str, original: Record | None, *_: object) -> str | None:
    return "settled" if original is None else None


def no_tombstones_elsewhere(patch: Patch) -> None:
    """Bury only where a record is held."""
    bury = Tier.bury

    async def only_here(self: Tier, graves: Sequence[Tombstone]) -> dict[str, Buried]:
        held = [g for g in graves if g.id in self.ledger.records or g.reason == "moved"]
        return dict.fromkeys((g.id for g in graves), "absent") | await bury(self, held)

    patch.setattr(Tier, "bury", only_here)


def no_tombstones_of_the_unheld(patch: Patch) -> None:
    async def nothing(*_: object) -> None:
        pass

    patch.setattr(Forgetter, "_forbid", nothing)


def no_second_look(patch: Patch) -> None:
    """A forget buries what it found first, without looking again under the locks."""
    resolve = Forgetter._resolve
    found: dict[int, forgets._Held] = {}

    async def first(self: Forgetter, selected: Filter) -> forgets._Held:
        if id(self) in found and selected.ids is not None:
            return found[id(self)]
        found[id(self)] = held = await resolve(self, selected)
        return held

    patch.setattr(Forgetter, "_resolve", first)


def no_repetition(patch: Patch) -> None:
    resolve = Forgetter._resolve
    asked: set[tuple[int, int]] = set()

    async def once(self: Forgetter, selected: Filter) -> forgets._Held:
        key = id(self), id(selected)
        if key in asked:
            return forgets._Held()
        asked.add(key)
        return await resolve(self, selected)

    patch.setattr(Forgetter, "_resolve", once)


def no_claims(patch: Patch) -> None:
    async def nothing(*_: object) -> None:
        pass

    patch.setattr(Placer, "_claim", nothing)


def no_giving_way_to_working(patch: Patch) -> None:
    bury = Tier.bury

    async def silent(self: Tier, graves: Sequence[Tombstone]) -> dict[str, Buried]:
        told = await bury(self, graves)
        return {g.id: "absent" if g.reason == "moved" else told[g.id] for g in graves}

    patch.setattr(Tier, "bury", silent)


def no_marked_sessions(patch: Patch) -> None:
    patch.setattr(MemoryTier, "_has_elsewhere", lambda *_: False)


def any_copy(patch: Patch) -> None:
    patch.setattr(merge, "newest", lambda a, b: b)


def _transfers(accept: Callable[[Tier, Draft], None]) -> Remove:
    """Before a transfer, take away what the tier would refuse it for."""

    def remove(patch: Patch) -> None:
        transfer = MemoryTier._transfer

        def lenient(self: Tier, draft: Draft) -> Written:
            accept(self, draft)
            return transfer(self, draft)

        patch.setattr(MemoryTier, "_transfer", lenient)

    return remove


def _over_a_forgotten(tier: Tier, draft: Draft) -> None:
    _dig_out(tier, draft.id, "forgotten")


def _over_a_moved(tier: Tier, draft: Draft) -> None:
    _dig_out(tier, draft.id, "moved")


def _over_as_many_moves(tier: Tier, draft: Draft) -> None:
    held = tier.ledger.records.get(draft.id)
    if held is not None and held.seq <= (draft.seq or 0):
        tier.ledger.remove(held)


def _over_a_later(tier: Tier, draft: Draft) -> None:
    held = tier.ledger.records.get(draft.id)
    if held is not None and held.seq > (draft.seq or 0) and held.moves < draft.moves:
        tier.ledger.remove(held)


def _dig_out(tier: Tier, record_id: str, reason: str) -> None:
    grave = tier.ledger.graves.get(record_id)
    if grave is not None and grave.reason == reason:
        del tier.ledger.graves[record_id]
        del tier.ledger.dug[record_id]


def no_answers_to_retries(patch: Patch) -> None:
    write = MemoryTier._write

    def forgetful(self: Tier, draft: Draft) -> Written:
        _dig_out(self, draft.id, "moved")
        return write(self, draft)

    patch.setattr(MemoryTier, "_write", forgetful)


def no_aliases(patch: Patch) -> None:
    patch.setattr(Ledger, "held", lambda self, record_id, owner: self.records.get(record_id))


def no_groups_in_deletes(patch: Patch) -> None:
    delete_if = Tier.delete_if

    async def singly(
        self: Tier, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        outcomes: dict[str, Deleted] = {}
        for name in named:
            outcomes |= await delete_if(self, [name], reason, target)
        return outcomes

    patch.setattr(Tier, "delete_if", singly)


def no_binding_of_units(patch: Patch) -> None:
    """Each of a unit's outcomes is taken for itself."""

    def each(ready: list[list[Named]], outcomes: dict[str, Deleted]) -> dict[str, Deleted]:
        return {name.id: outcomes[name.id] for names in ready for name in names}

    patch.setattr(moves, "_settled", each)


def no_whole_groups_in_repair(patch: Patch) -> None:
    settle_from = Repairer._settle_from

    async def singly(
        self: Repairer, here: Any, source: Any, copies: Mapping[str, Record], copied: Mapping[str, str]
    ) -> dict[str, str | None]:
        finished: dict[str, str | None] = {}
        for i in copied:
            finished |= await settle_from(self, here, source, {i: copies[i]}, {i: copied[i]})
        return finished

    patch.setattr(Repairer, "_settle_from", singly)


class Unmarked:
    """A store whose records do not show that a move brought them."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, method: str) -> Any:
        return getattr(self._store, method)

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return [r.model_copy(update={"arrival": None}) for r in await self._store.read(ids)]


def no_respect_for_marks(patch: Patch) -> None:
    """A move takes along what another one brought and has not ended."""
    move_locked = moves.Mover._move_locked

    async def heedless(self: Any, whole: Any, source: Any, *rest: Any) -> Any:
        return await move_locked(self, whole, Member(source.config, Unmarked(source.store)), *rest)

    patch.setattr(moves.Mover, "_move_locked", heedless)


def no_locks_of_late_members(patch: Patch) -> None:
    class Content(set[str]):
        def __le__(self, other: object) -> bool:
            return True

    locks_of = moves._locks_of
    patch.setattr(moves, "_locks_of", lambda whole: Content(locks_of(whole)))


def every_copy_is_ours(patch: Patch) -> None:
    patch.setattr(moves, "Pair", lambda original, copy, mark, owner: PAIR(original, copy, mark or "", owner))


def undo_by_id(patch: Patch) -> None:
    delete_if = Tier.delete_if

    async def blunt(
        self: Tier, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        if reason == "undo":
            held = self.ledger.records
            named = [Named(n.id, held[n.id].etag) if n.id in held else n for n in named]
        return await delete_if(self, named, reason, target)

    patch.setattr(Tier, "delete_if", blunt)


def undo_what_failed(patch: Patch) -> None:
    """An answer that does not come is taken for a change."""
    delete_units = moves.Mover._delete_units

    async def hasty(self: Any, ready: Any, source: Any, target: Any) -> dict[str, Deleted]:
        try:
            return await delete_units(self, ready, source, target)
        except A2MError:
            return {name.id: "changed" for names in ready for name in names}

    patch.setattr(moves.Mover, "_delete_units", hasty)


def no_new_etag_on_a_retry(patch: Patch) -> None:
    write = MemoryTier._write

    def quiet(self: Tier, draft: Draft) -> Written:
        held = self.ledger.held(draft.id, draft.owner)
        return write(self, draft) if held is None else Written(held.id, "existing", held.etag)

    patch.setattr(MemoryTier, "_write", quiet)


def no_distinct(patch: Patch) -> None:
    class Each(dict[Any, Record]):
        def __missing__(self, wanted: str) -> Record:
            return next(record for record in self.values() if record.id == wanted)

    def all_of(answers: Mapping[str, Sequence[Record]]) -> Each:
        return Each({(tier, r.id): r for tier, records in answers.items() for r in records})

    patch.setattr(merge, "distinct", all_of)


def touching_from_above(patch: Patch) -> None:
    patch.setattr(federation, "reversed", list, raising=False)


def no_look_for_grown_groups(patch: Patch) -> None:
    async def nothing(*_: object) -> None:
        pass

    patch.setattr(Keeper, "_find_parted", nothing)


def both(*removals: Remove) -> Remove:
    def remove(patch: Patch) -> None:
        for one in removals:
            one(patch)

    return remove


READING = (acts.close, acts.read_everything)
PAIR = moves.Pair
GUARDS = [
    Guard("locks", no_locks, Plan((acts.close, acts.rewrite), (KEYED,)), "I2"),
    Guard("a move waits for reads", no_waiting_for_readers, Plan(READING), "I1"),
    Guard(
        "a repair waits for reads",
        _with_readers(Repairer, 2),
        Plan((acts.close, acts.read_everything, acts.sweep), routers="shared", crash=True),
        "I1",
    ),
    Guard(
        "a forget looks as a read does",
        _with_readers(Forgetter, 2),
        Plan((acts.close, acts.forget_by_words)),
        "I3",
    ),
    Guard("a copy is verified", no_verification, Plan((acts.close,), (DETAILED,), tier=Forgetful), "I6"),
    Guard(
        "repair verifies",
        no_verification_in_repair,
        Plan((acts.close,), (DETAILED,), tier=Forgetful, crash=True),
        "I6",
    ),
    Guard("a delete names etags", no_etags, Plan((acts.close, acts.touch)), "I1"),
    Guard(
        "absence undoes nothing",
        _answering("moved", "changed"),
        Plan((acts.close, acts.close), routers="apart"),
        "I1",
    ),
    Guard(
        "repair removes what was forgotten",
        _verdict(_forgotten_is_settled),
        Plan((acts.stray_copy,), (), tiers=THREE, routers="apart", before=acts.far_travelled_and_renewed),
        "I2",
    ),
    Guard(
        "what changed meanwhile is taken back",
        _answering("changed", "moved"),
        Plan((acts.close, acts.touch)),
        "I2",
    ),
    Guard(
        "only what is ours is taken back",
        every_copy_is_ours,
        Plan((acts.close, acts.forget_and_write_anew), routers="apart"),
        "I1",
    ),
    Guard(
        "copies are taken back by etag",
        undo_by_id,
        Plan((acts.close, acts.touch_and_close), routers="apart"),
        "I1",
    ),
    Guard(
        "an unknown outcome takes nothing back",
        undo_what_failed,
        Plan((acts.close,), loses=True),
        "I1",
    ),
    Guard(
        "what an unended move brought stays",
        no_respect_for_marks,
        Plan((acts.close, acts.promote), tiers=THREE, routers="shared", crash=True),
        "I2",
    ),
    Guard(
        "late members bring their locks",
        no_locks_of_late_members,
        Plan((acts.close, acts.join_and_rewrite), GROUP),
        "I2",
    ),
    Guard("arrivals are marked", no_marks, Plan((acts.close,), crash=True), "I2"),
    Guard("repair", no_repair, Plan((acts.close,), crash=True), "I2"),
    Guard(
        "repair undoes the copy of what has changed",
        _verdict(_changed_is_finished),
        Plan((acts.close, acts.touch), routers="shared", crash=True),
        "I1",
    ),
    Guard(
        "repair undoes the copy of what went elsewhere",
        _verdict(_gone_elsewhere_is_settled),
        Plan((acts.promote, acts.close), tiers=THREE, routers="apart"),
        "I2",
    ),
    Guard(
        "tombstones in all tiers",
        no_tombstones_elsewhere,
        Plan((acts.close, acts.forget_and_read), routers="apart"),
        "I3",
    ),
    Guard(
        "tombstones of what nobody holds",
        no_tombstones_of_the_unheld,
        Plan((acts.take_in, acts.forget_by_id), (), before=acts.expect_one),
        "I3",
    ),
    Guard(
        "a forget looks again under the locks",
        no_second_look,
        Plan((acts.rewrite, acts.forget_by_words), (KEYED,)),
        "I1",
    ),
    Guard(
        "a forget repeats",
        no_repetition,
        Plan((acts.take_in, acts.forget_by_id), (), before=acts.expect_one),
        "I3",
    ),
    Guard(
        "writes elsewhere are claimed",
        no_claims,
        Plan((acts.write_anew, acts.write_plainly), (), before=acts.expect_one),
        "I2",
    ),
    Guard(
        "a claim gives way to working",
        no_giving_way_to_working,
        Plan((acts.write_anew, acts.write_plainly), (), before=acts.expect_one),
        "I2",
    ),
    Guard(
        "a write settles moves first, or repair keeps what it rewrote",
        both(no_settling_before_a_write, _verdict(_rewritten_is_undone)),
        Plan((acts.close, acts.rewrite_and_read), (KEYED,), routers="shared", crash=True, late=True),
        "I4",
    ),
    Guard("sessions are marked", no_marked_sessions, Plan((acts.close, acts.read)), "I1"),
    Guard(
        "the newest copy is shown",
        any_copy,
        Plan((acts.close, acts.rewrite_and_read), (KEYED,), routers="shared", crash=True, late=True),
        "I4",
    ),
    Guard(
        "forgotten refuses transfers",
        _transfers(_over_a_forgotten),
        Plan((acts.close, acts.forget_by_id), routers="apart"),
        "I3",
    ),
    Guard(
        "as many moves refuse transfers",
        _transfers(_over_as_many_moves),
        Plan((acts.close, acts.close_and_reinforce), routers="apart"),
        "I1",
    ),
    Guard(
        "moved refuses transfers",
        _transfers(_over_a_moved),
        Plan((acts.close, acts.close_and_promote), tiers=THREE, routers="apart"),
        "I2",
    ),
    Guard(
        "a later record refuses transfers",
        _transfers(_over_a_later),
        Plan((acts.close, acts.forget_and_write_anew), routers="apart"),
        "I1",
    ),
    Guard("tombstones answer retries", no_answers_to_retries, Plan((acts.close, acts.retry)), "I7"),
    Guard(
        "aliases answer retries",
        no_aliases,
        Plan((acts.close, acts.retry_the_rewrite), (KEYED,), before=acts.rewritten_twice),
        "I7",
    ),
    Guard("groups are deleted whole", no_groups_in_deletes, Plan((acts.close, acts.touch), GROUP), "I1"),
    Guard("units stay whole", no_binding_of_units, Plan((acts.close, acts.touch), GROUP), "I2"),
    Guard(
        "repair keeps groups whole",
        no_whole_groups_in_repair,
        Plan((acts.close, acts.touch_and_sweep), GROUP, routers="shared", crash=True),
        "I5",
    ),
    Guard("grown groups are looked for", no_look_for_grown_groups, Plan((acts.close, acts.join), GROUP), "I5"),
    Guard("each record is shown once", no_distinct, Plan((acts.close, acts.read_everything)), "I2"),
    Guard("accesses are counted below first", touching_from_above, Plan((acts.close, acts.touch)), "I1"),
    Guard(
        "a retry renews the etag",
        no_new_etag_on_a_retry,
        Plan(
            (acts.write_in_vain, acts.write_plainly),
            (),
            before=acts.expect_one,
            tier=Refusing,
        ),
        "I1",
    ),
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "-"))
def test_without_the_guard_the_model_finds_a_violation(guard: Guard, monkeypatch: Patch) -> None:
    assert guard.plan.explore().violations == []
    guard.remove(monkeypatch)
    found = guard.plan.explore(wanted=guard.invariant).violations
    print(*(f"{violation}\n    " + "\n    ".join(trace) for violation, trace in found), sep="\n")
    assert found
    assert found[-1][0].startswith(guard.invariant)
