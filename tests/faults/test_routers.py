"""Three routers over the same tiers: leases, one event stream, and the death of a router in mid-move."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any, get_args
from uuid import uuid4

import pytest
from caller import Caller
from harness import Federation
from nursery import Nursery

from a2m_protocol.errors import A2MError
from a2m_router.steps import Step

SAMPLE: Step = "move: verified"
MOVING = [
    step if step == SAMPLE else pytest.param(step, marks=pytest.mark.faults)
    for step in get_args(Step)
    if step.startswith("move:")
]
OWNERS = ("ana", "bob")
LEASE, PATIENCE = 2.0, 4.0
"""How long the dead are waited for, in seconds: with their leases, and as readers."""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def federation(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation(tmp_path_factory.mktemp("routers"), nursery, routers=3, lease=LEASE) as federation:
        yield federation


@pytest.fixture(autouse=True)
def mended(federation: Federation) -> Iterator[None]:
    yield
    federation.mend()


def turns(session: str, number: int) -> list[dict[str, Any]]:
    return [{"id": f"{session}/{at}", "content": f"turn {at} zebra"} for at in range(number)]


def ids(records: list[dict[str, Any]]) -> list[str]:
    return [record["id"] for record in records]


def remember(router: Caller, record: dict[str, Any], session: str, owner: str) -> list[str]:
    for _ in range(9):
        try:
            return router.call("remember", records=[record], session=session, owner=owner)["ids"]
        except A2MError as error:
            if not error.retryable:
                raise
    return router.call("remember", records=[record], session=session, owner=owner)["ids"]


def tiers_of(federation: Federation, session: str) -> dict[str, list[str]]:
    held = federation.held(where={"session": session})
    return {tier: [entry["id"] for entry in entries] for tier, entries in held.items() if entries}


def test_an_event_cursor_works_on_whichever_router_answers(federation: Federation) -> None:
    routers = federation.routers
    cursor = routers[0].call("events")["cursor"]
    written = [routers[at % 3].call("remember", records=[{"content": str(at)}])["ids"][0] for at in range(12)]
    seen: list[str] = []
    deadline = time.monotonic() + 10
    at = 0
    while len(seen) < len(written) and time.monotonic() < deadline:
        at += 1
        page = routers[at % 3].call("events", cursor=cursor, limit=5, kinds=["written"])
        assert "reset" not in page
        cursor = page["cursor"]
        seen += [event["id"] for event in page["events"]]
    assert sorted(seen) == sorted(written)
    federation.restart("router")
    again = routers[0].call("events", cursor=cursor)
    assert "reset" not in again


@pytest.mark.parametrize("step", MOVING)
def test_the_death_of_a_router_in_mid_move_delays_and_breaks_nothing(
    federation: Federation, step: Step
) -> None:
    first, second, third = federation.routers
    session = uuid4().hex
    records = turns(session, 4)
    first.call("remember", records=records, session=session)
    with federation.pause(step) as pause:
        closing = federation.later(first.call, "session/close", session=session)
        pause.reached()
        # Nobody sees the move: not before it is settled, and not when it never will be.
        for router in (second, third):
            found = router.call("timeline", where={"session": session})
            assert (ids(found["records"]), "degraded" in found) == (ids(records), False)
        federation.kill("router")
    with pytest.raises(A2MError):
        closing.result(10)
    begun = time.monotonic()
    second.call("session/close", session=session)
    assert time.monotonic() - begun < LEASE + 2 * PATIENCE
    assert tiers_of(federation, session) == {"episodic": ids(records)}
    assert ids(third.call("timeline", where={"session": session})["records"]) == ids(records)
    federation.start("router")
    federation.settle()
    assert tiers_of(federation, session) == {"episodic": ids(records)}


@pytest.mark.parametrize(
    "selected", ["ids", *(pytest.param(s, marks=pytest.mark.faults) for s in ("query", "where"))]
)
@pytest.mark.parametrize("step", MOVING)
def test_a_forget_over_one_router_is_final_whatever_another_was_moving(
    federation: Federation, step: Step, selected: str
) -> None:
    first, second, third = federation.routers
    session = uuid4().hex
    records = turns(session, 3)
    word = f"w{session}"
    for record in records:
        record["content"] += f" {word}"
    first.call("remember", records=records, session=session)
    selector: dict[str, Any] = {
        "ids": {"ids": ids(records)},
        "query": {"query": word},
        "where": {"where": {"session": session}},
    }[selected]
    with federation.pause(step) as pause:
        closing = federation.later(first.call, "session/close", session=session)
        pause.reached()
        forgetting = federation.later(second.call, "forget", **selector)
        # It waits for the move, or takes the record from under it; either way it is final once it returns.
        wait([forgetting], timeout=0.5)
    assert forgetting.result(30)["forgotten"] in (0, 3)
    assert third.call("timeline", where={"session": session})["records"] == []
    closing.result(30)
    federation.settle()
    assert tiers_of(federation, session) == {}
    for tier in federation.tiers.values():
        graves = tier.call("tombstones", ids=ids(records))["tombstones"]
        assert {grave["reason"] for grave in graves} <= {"forgotten", "moved"}
    again = third.call("recall", query=word)["records"]
    assert again == []


def test_routers_that_close_one_session_at_once_move_it_once(federation: Federation) -> None:
    session = uuid4().hex
    records = turns(session, 5)
    federation.router.call("remember", records=records, session=session)
    closing = [
        federation.later(router.call, "session/close", session=session) for router in federation.routers
    ]
    moved = [future.result(30)["flushed"] for future in closing]
    assert sorted(moved) == [0, 0, 5]
    federation.settle()
    assert tiers_of(federation, session) == {"episodic": ids(records)}


def test_many_sessions_over_three_routers_keep_their_order(federation: Federation) -> None:
    mark = uuid4().hex

    def converse(number: int) -> tuple[str, str, list[str]]:
        owner, session = OWNERS[number % 2], f"{mark}/{number}"
        written: list[str] = []
        for at in range(10):
            router = federation.routers[(number + at) % 3]
            # With an id of its own, so that what a busy machine did not answer in time can be repeated.
            record = {
                "id": f"{session}/{at}",
                "content": f"{owner} says {at}",
                "group": f"{session}/{at // 3}",
            }
            written += remember(router, record, session, owner)
        return owner, session, written

    said = [future.result(60) for future in [federation.later(converse, n) for n in range(50)]]
    federation.settle()
    for number, (owner, session, written) in enumerate(said):
        router = federation.routers[number % 3]
        assert ids(router.call("timeline", where={"session": session}, owner=owner)["records"]) == written
        other = OWNERS[1 - OWNERS.index(owner)]
        assert router.call("timeline", where={"session": session}, owner=other)["records"] == []


def test_routers_go_on_when_the_database_that_they_share_was_away(federation: Federation) -> None:
    """The database is working's too here: what can be done without it is still done, and all comes back."""
    session = uuid4().hex
    federation.router.call("remember", records=turns(session, 3), session=session)
    federation.kill("valkey")
    with pytest.raises(A2MError) as refused:
        federation.routers[1].call("session/close", session=session)
    assert refused.value.retryable
    federation.start("valkey")
    federation.settle()
    for router in federation.routers:
        assert len(router.call("timeline", where={"session": session})["records"]) == 3
    federation.routers[2].call("session/close", session=session)
    assert list(tiers_of(federation, session)) == ["episodic"]
