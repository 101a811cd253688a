"""Each guard of the router and of the tiers is needed: without it, the model finds what it protects broken.

The table in `docs/architecture.md` is this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import acts
import pytest
import router_guards as router
import tier_guards as tier
from explorer import Tier
from router_guards import Removal
from scenes import GROUP, KEYED, SESSION, THREE_TIERS, Plan

from a2m_protocol.errors import unavailable
from a2m_protocol.types import Draft
from a2m_router.forgets import Forgetter
from a2m_router.repair import Repairer
from a2m_server.values import Scope, Written

DETAILED = Draft(id="one", content="first words", session=SESSION, metadata={"a": 1})


class Forgetful(Tier):
    """A tier below that does not give metadata back."""

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        if self._name != "working":
            drafts = [draft.model_copy(update={"metadata": None}) for draft in drafts]
        return await super().transfer(drafts)


class Full(Tier):
    """A tier below that takes no writes."""

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        if self._name != "working":
            raise unavailable(self._name, "it is full")
        return await super().write(drafts, scope)


@dataclass(frozen=True)
class Guard:
    """What is taken out, how, the invariant that is then violated, and the scene in which it is."""

    name: str
    removal: Removal
    invariant: str
    plan: Plan


GUARDS = [
    Guard(
        "who moves, writes or forgets holds locks",
        router.locks,
        "I2",
        Plan((acts.close, acts.rewrite), (KEYED,)),
    ),
    Guard(
        "a late member brings its locks",
        router.locks_of_late_members,
        "I2",
        Plan((acts.close, acts.join_and_rewrite), GROUP),
    ),
    Guard("a move waits for reads", router.waiting_for_reads, "I1", Plan((acts.close, acts.read_everything))),
    Guard(
        "a repair waits for reads",
        router.readers_of(Repairer, 2),
        "I1",
        Plan((acts.close, acts.read_everything, acts.sweep), routers="shared", crash=True),
    ),
    Guard(
        "a move waits for the look of a forget",
        router.readers_of(Forgetter, 2),
        "I3",
        Plan((acts.close, acts.forget_by_words)),
    ),
    Guard("a copy is verified", router.verification, "I6", Plan((acts.close,), (DETAILED,), tier=Forgetful)),
    Guard(
        "repair verifies too",
        router.verification_in_repair,
        "I6",
        Plan((acts.close,), (DETAILED,), tier=Forgetful, crash=True),
    ),
    Guard("a copy is marked", router.marks_of_arrivals, "I2", Plan((acts.close,), crash=True)),
    Guard(
        "what has a mark is not moved on",
        router.respect_for_marks,
        "I2",
        Plan((acts.close, acts.promote), configs=THREE_TIERS, routers="shared", crash=True),
    ),
    Guard("a delete names etags", tier.etags, "I1", Plan((acts.close, acts.touch))),
    Guard("a delete takes all or nothing", tier.all_or_nothing, "I1", Plan((acts.close, acts.touch), GROUP)),
    Guard(
        "where one of a group stays, all stay",
        router.whole_units,
        "I2",
        Plan((acts.close, acts.touch), GROUP),
    ),
    Guard(
        "the copy of what changed is taken back",
        tier.deletes_answering("changed", "moved"),
        "I2",
        Plan((acts.close, acts.touch)),
    ),
    Guard(
        "absence takes nothing back",
        tier.deletes_answering("moved", "changed"),
        "I1",
        Plan((acts.close, acts.close), routers="apart"),
    ),
    Guard(
        "an unknown outcome takes nothing back",
        router.doubt_of_failures,
        "I1",
        Plan((acts.close,), loses=True),
    ),
    Guard(
        "a copy is taken back by its etag",
        tier.etags_of_undoing,
        "I1",
        Plan((acts.close, acts.touch_and_close), routers="apart"),
    ),
    Guard(
        "only a copy of one's own is taken back",
        router.own_copies,
        "I1",
        Plan((acts.close, acts.forget_and_write_anew), routers="apart"),
    ),
    Guard("what was left is repaired", router.repairing, "I2", Plan((acts.close,), crash=True)),
    Guard(
        "repair undoes the copy of what changed",
        router.changed_is_undone,
        "I1",
        Plan((acts.close, acts.touch), routers="shared", crash=True),
    ),
    Guard(
        "repair undoes the copy of what went elsewhere",
        router.gone_elsewhere_is_undone,
        "I2",
        Plan((acts.promote, acts.close), configs=THREE_TIERS, routers="apart"),
    ),
    Guard(
        "repair removes the copy of what was forgotten",
        router.forgotten_is_removed,
        "I3",
        Plan((acts.sweep,), before=acts.restored_from_before_a_forget),
    ),
    Guard(
        "repair undoes the copy of what was written anew",
        router.written_anew_is_kept,
        "I2",
        Plan(
            (acts.stray_copy,),
            (),
            configs=THREE_TIERS,
            before=acts.far_travelled_and_renewed,
            routers="apart",
        ),
    ),
    Guard(
        "repair keeps a group whole",
        router.whole_groups_in_repair,
        "I5",
        Plan((acts.close, acts.touch_and_sweep), GROUP, routers="shared", crash=True),
    ),
    Guard(
        "a group that grew is looked for",
        router.looking_for_grown_groups,
        "I5",
        Plan((acts.close, acts.join), GROUP, routers="shared", crash=True),
    ),
    Guard(
        "forgotten refuses a transfer",
        tier.forgotten_refuses,
        "I3",
        Plan((acts.close, acts.forget_by_id), routers="apart"),
    ),
    Guard(
        "as many moves refuse a transfer",
        tier.moves_refuse,
        "I1",
        Plan((acts.close, acts.close_and_reinforce), routers="apart"),
    ),
    Guard(
        "moved refuses a transfer",
        tier.moved_refuses,
        "I2",
        Plan((acts.close, acts.close_and_promote), configs=THREE_TIERS, routers="apart"),
    ),
    Guard(
        "a later record refuses a transfer",
        tier.later_refuses,
        "I1",
        Plan((acts.close, acts.forget_and_write_anew), routers="apart"),
    ),
    Guard(
        "a forget buries in every tier",
        tier.tombstones_elsewhere,
        "I3",
        Plan((acts.close, acts.forget_and_read), routers="apart"),
    ),
    Guard(
        "a forget forbids what nobody holds",
        router.tombstones_of_the_unheld,
        "I3",
        Plan((acts.take_in, acts.forget_by_id), (), before=acts.expect_one),
    ),
    Guard(
        "a forget looks again under the locks",
        router.second_look,
        "I1",
        Plan((acts.rewrite, acts.forget_by_words), (KEYED,)),
    ),
    Guard(
        "a forget looks until nothing is left",
        router.repetition,
        "I3",
        Plan((acts.take_in, acts.forget_by_id), (), before=acts.expect_one),
    ),
    Guard("a tombstone answers a retry", tier.answers_to_retries, "I7", Plan((acts.close, acts.retry))),
    Guard(
        "an alias answers a retry",
        tier.aliases,
        "I7",
        Plan((acts.close, acts.retry_the_rewrite), (KEYED,), before=acts.rewritten_twice),
    ),
    Guard(
        "a retry renews the etag",
        tier.new_etag_of_a_retry,
        "I1",
        Plan((acts.write_in_vain, acts.write_plainly), (), before=acts.expect_one, tier=Full),
    ),
    Guard(
        "what is written elsewhere is claimed in working",
        router.claims,
        "I2",
        Plan((acts.write_anew, acts.write_plainly), (), before=acts.expect_one),
    ),
    Guard(
        "a claim outranks an earlier forget",
        router.dated_claims,
        "I2",
        Plan((acts.close, acts.forget_write_anew_and_retry), ahead=500_000),
    ),
    Guard(
        "a claim gives way to a live record",
        tier.giving_way_to_working,
        "I2",
        Plan((acts.write_anew, acts.write_plainly), (), before=acts.expect_one),
    ),
    Guard(
        "a write settles moves first, or repair keeps what it rewrote",
        router.all_of(router.settling_before_writes, router.rewritten_is_kept),
        "I4",
        Plan((acts.close, acts.rewrite), (KEYED,), routers="shared", crash=True),
    ),
    Guard("a session in two tiers is marked", tier.marks_of_sessions, "I1", Plan((acts.close, acts.read))),
    Guard("a record is shown once", router.one_of_two, "I2", Plan((acts.close, acts.read_everything))),
    Guard(
        "of two copies the newest is shown",
        router.newest_of_two,
        "I4",
        Plan((acts.close, acts.rewrite_and_read), (KEYED,), routers="shared", crash=True, late=True),
    ),
    Guard(
        "an access is counted below first", router.counting_below_first, "I1", Plan((acts.close, acts.touch))
    ),
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "-").replace(",", ""))
def test_without_the_guard_the_model_finds_a_violation(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert guard.plan.explore().violations == []
    guard.removal(monkeypatch)
    found = guard.plan.explore(wanted=guard.invariant).violations
    for violation, trace in found:
        print(violation, *trace, sep="\n    ")
    assert found
    assert found[-1][0].startswith(guard.invariant)
