"""The explorer leaves out only what leads nowhere new, and what it says of a scene is the same each time."""

from __future__ import annotations

import pytest
from acts import close, read, read_everything, retry, sweep, touch
from scenes import Plan

SMALL = [
    Plan((close, read_everything), crash=True),
    Plan((close, touch), routers="shared", crash=True),
    Plan((close, retry), crash=True, loses=True),
    Plan((close, read), routers="apart", crash=True, late=True),
]


@pytest.mark.parametrize("plan", SMALL, ids=lambda plan: plan.actors[1].__name__)
def test_what_is_left_out_leads_to_no_other_ending(plan: Plan) -> None:
    reduced, full = plan.explore(), plan.explore(every=True)
    assert (reduced.violations, full.violations) == ([], [])
    assert {*reduced.endings} == {*full.endings}
    assert {*reduced.states} == {*full.states}
    assert reduced.runs < full.runs


def test_a_scene_is_explored_alike_each_time() -> None:
    plan = Plan((close, sweep), routers="apart")
    first, second = plan.explore(), plan.explore()
    assert (first.runs, first.states, first.endings) == (second.runs, second.states, second.endings)
