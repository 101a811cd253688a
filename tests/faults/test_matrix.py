"""Every process killed at every step of what crosses tiers: nothing lost, nothing twice, nothing back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait

import pytest
from account import Account
from harness import ENGINES, TIERS, Federation
from nursery import Nursery
from scenarios import SCENARIOS, Scenario

from a2m_protocol.errors import A2MError, TransportError

VICTIMS = ("router", *TIERS, *ENGINES)
OUTAGE_SECONDS = 0.5
ATTEMPTS = 5

POINTS = {
    f"{scenario.name}-{step.replace(': ', ':')}-{victim}": (scenario, step, victim)
    for scenario in SCENARIOS
    for step in scenario.steps
    for victim in VICTIMS
}

SAMPLE = (
    "spill-move:copied-valkey",
    "spill-move:deleted-router",
    "promotion-move:verified-semantic",
    "close-move:copied-postgres",
    "close-move:drained-working",
    "forget-ids-forget:locked-procedural",
    "rewrite-write:found-episodic",
    "rewrite-move-move:copied-router",
)


@pytest.fixture(scope="module")
def resting(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation that does nothing by itself, so that it is the call of a test which reaches a step."""
    folder = tmp_path_factory.mktemp("resting")
    with Federation(folder, nursery, tier_timeout=1.5, sweep=3_600.0) as federation:
        yield federation


@pytest.mark.parametrize("point", SAMPLE)
def test_what_was_told_holds_whatever_is_killed_where(resting: Federation, point: str) -> None:
    _check(resting, *POINTS[point])


@pytest.mark.faults
@pytest.mark.parametrize("point", POINTS)
def test_what_was_told_holds_at_every_fault_point(
    resting: Federation, point: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("fault point", point)
    _check(resting, *POINTS[point])


def _check(federation: Federation, scenario: Scenario, step: str, victim: str) -> None:
    federation.mend()
    account = Account(federation)
    scenario.prepare(account)
    account.look()
    with federation.pause(step) as pause:
        acting = federation.later(scenario.act, account)
        if scenario.background:
            acting.result()
        pause.reached()
        federation.kill(victim)
    wait([acting], OUTAGE_SECONDS)
    federation.start(victim)
    error = acting.exception()
    if error is not None:
        assert isinstance(error, A2MError)
        assert error.retryable, error.message
        assert isinstance(error, TransportError) == (victim == "router"), error.message
        account.failed(error)
    scenario.settle(account, error is None)
    federation.settle()
    assert account.problems() == []

    _persist(scenario, account)
    federation.settle()
    account.retry()
    account.bring_back()
    federation.settle()
    assert account.problems() == []


def _persist(scenario: Scenario, account: Account) -> None:
    """Repeat the call until it returns, as its client would."""
    for attempt in range(ATTEMPTS):
        try:
            scenario.act(account)
        except A2MError as error:
            if attempt == ATTEMPTS - 1 or not error.retryable:
                raise
        else:
            break
    scenario.settle(account, True)
