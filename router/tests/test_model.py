"""Every interleaving of a move with what can happen to a record meanwhile, over the router's own code.

A scene has a move (a spill over capacity, the closing of a session, an asked-for or earned promotion, from
working or from episodic on) and one or two others: a forget by id, by words or by where, a second move of the
same record, a timeline, a recall, a fetch by key, a rewrite of the key, a retry, a reinforcement, a counted
access, a late member of the group, a sweep with its repair, an import. All orders of their calls to the tiers
are taken

- over one router, over two that share their locks, and over two that share none, as after a lost lease;
- with a crash of the first router at any point, followed by the repair of another; with calls of the dead
  router that land only later, before or after that repair; with any one answer to the first router lost.

What is checked, at every moment, of every read and after the next pass (`oracle.py` says what each may show,
given what had returned when it began):

- I1: what was acknowledged is in some tier at any moment, and shown to every read; what was added to its
  salience and counted of its accesses is there once;
- I2: no read shows a record or a key twice; afterwards each is in one tier, and no move is left unended, and
  where nothing died and no lease was lost, not even before a repair;
- I3: once a forget has returned no read shows the record and no tier holds it, nor takes it as an import;
- I4: once a rewrite has returned no read shows an older value;
- I5: at any moment a group is whole in one tier, and a late member is with it after the next pass;
- I6: what moved is what it was but for tier, `moves` and etag;
- I7: a retry is told of the record that is there, wherever it is, and changes nothing;
- I9: a timeline is in the order of writing.

`test_guards_needed.py` shows that each guard is needed for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import acts
import pytest
from acts import (
    close,
    fetch,
    forget_and_read,
    forget_by_id,
    forget_by_where,
    forget_by_words,
    join,
    promote,
    promote_up,
    read,
    read_everything,
    recall,
    reinforce,
    retry,
    rewrite,
    rewrite_and_read,
    sweep,
    touch,
)
from scenes import (
    ALSO,
    EPISODIC,
    GROUP,
    KEYED,
    ONE,
    SEMANTIC,
    THREE_TIERS,
    WORKING,
    Act,
    Plan,
    Routers,
)

SMALL = (WORKING.model_copy(update={"capacity": 1}), EPISODIC)
EARNING = (
    WORKING,
    EPISODIC.model_copy(update={"promote_to": "semantic", "promote_after": 1}),
    SEMANTIC,
)
CLOSE = Plan((close,))
SPILL = Plan((sweep,), first=(ONE, ALSO), configs=SMALL)
PROMOTE = Plan((promote,))
PROMOTE_UP = Plan((promote_up,))
ONWARD = Plan((promote,), place="episodic", configs=THREE_TIERS)
EARN = Plan((sweep,), place="episodic", configs=EARNING, before=acts.touched)

KEYS = (rewrite, rewrite_and_read, fetch)
MEANWHILE = (
    forget_by_id,
    forget_by_words,
    forget_by_where,
    forget_and_read,
    close,
    read,
    read_everything,
    recall,
    fetch,
    rewrite,
    rewrite_and_read,
    retry,
    reinforce,
    touch,
    join,
    sweep,
)
ROUTERS: tuple[Routers, ...] = ("one", "shared", "apart")


def scene(plan: Plan, *others: Act, **more: object) -> Plan:
    """A move and what happens meanwhile, with the records that those need."""
    first = plan.first
    if not set(KEYS).isdisjoint(others):
        first = (KEYED, *first[1:])
    elif join in others:
        first = GROUP
    return replace(plan, actors=(*plan.actors, *others), first=first, **more)


def scenes(
    plan: Plan, *others: tuple[Act, ...], arranged: Sequence[Routers] = ROUTERS, **more: object
) -> list[Plan]:
    """Each of `others` with each arrangement of routers; a key is rewritten under locks that are held."""
    return [
        scene(plan, *meanwhile, routers=routers, **more)
        for meanwhile in others
        for routers in arranged
        if routers != "apart" or not {rewrite, rewrite_and_read} & {*meanwhile}
    ]


def named(plan: Plan) -> str:
    flags = [flag for flag in ("crash", "late", "loses") if getattr(plan, flag)]
    place = [f"from {plan.place}"] if plan.place != "working" else []
    flags += ["keyed"] if plan.first[:1] == (KEYED,) else []
    flags += [f"ahead {plan.ahead}"] if plan.ahead else []
    return "-".join([*(act.__name__ for act in plan.actors), *place, plan.routers, *flags])


ALONE = [(act,) for act in MEANWHILE]
LIGHT = [(act,) for act in (forget_by_id, read, recall, close, rewrite, retry, touch, join, sweep)]
SKEWED = [(act,) for act in (acts.forget_write_anew_and_retry, forget_by_words, retry, join)]
PAIRS = [*combinations((close, forget_by_words, read_everything, recall, retry, touch), 2)]
MORE_PAIRS = [
    pair
    for pair in combinations((close, forget_by_words, read_everything, retry, touch, rewrite, reinforce), 2)
    if {rewrite, reinforce} & {*pair}
]

QUICK = [
    *scenes(CLOSE, *ALONE, crash=True),
    *scenes(replace(CLOSE, first=(KEYED,)), (retry,), arranged=("one", "shared"), crash=True),
    *scenes(PROMOTE, *LIGHT, crash=True),
    *(skewed for ahead in (500_000, -500_000) for skewed in scenes(CLOSE, *SKEWED, ahead=ahead)),
    *scenes(PROMOTE_UP, *LIGHT, arranged=("one", "shared")),
]
LONG = [
    *scenes(CLOSE, *ALONE, crash=True, late=True, loses=True),
    *scenes(SPILL, *ALONE, crash=True),
    *scenes(ONWARD, *LIGHT, crash=True),
    *scenes(EARN, *LIGHT, crash=True),
    *scenes(replace(CLOSE, first=(KEYED,)), (retry,), arranged=("apart",)),
    # Where nobody dies, two routers that share their locks are as one.
    *scenes(CLOSE, *PAIRS, arranged=("one", "apart")),
    *scenes(CLOSE, *MORE_PAIRS, arranged=("one",)),
    *scenes(CLOSE, (forget_by_id, forget_by_words), arranged=("one",)),
    *scenes(CLOSE, (sweep, read_everything), (sweep, touch), arranged=("shared",), crash=True),
]


@pytest.mark.parametrize("plan", QUICK, ids=named)
def test_no_interleaving_violates_an_invariant(plan: Plan) -> None:
    explored = plan.explore()
    print(f"{explored.runs} runs, {len(explored.states)} states, {len(explored.endings)} endings")
    assert explored.violations == []


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plan", LONG, ids=named)
def test_no_long_interleaving_violates_an_invariant(plan: Plan) -> None:
    explored = plan.explore()
    print(f"{explored.runs} runs, {len(explored.states)} states, {len(explored.endings)} endings")
    assert explored.violations == []
