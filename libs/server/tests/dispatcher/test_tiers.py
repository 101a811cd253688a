from typing import Any

import pytest

from a2m_server.values import Consolidated


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("remember", {"records": [{"content": "x"}, {"content": 5, "tier": "nope"}]}),
        ("recall", {"tier": "nope", "limit": -1}),
        ("timeline", {"tier": "nope", "limit": -1}),
        ("forget", {"tier": "nope", "ids": 5}),
        ("promote", {"tier": "nope"}),
        ("summarize", {"tier": "nope"}),
        ("summarize", {"into": "nope"}),
    ],
)
async def test_an_unknown_tier_is_that_whatever_else_is_wrong(stack: Any, method: str, params: Any) -> None:
    assert await stack.code(method, **params, owner=5) == -32002


@pytest.mark.parametrize("method", ["recall", "timeline", "forget", "promote", "summarize"])
async def test_a_tier_that_is_no_name_is_invalid(stack: Any, method: str) -> None:
    for tier in (5, [], ""):
        assert await stack.code(method, ids=[], tier=tier) == -32602


async def test_a_record_goes_where_it_is_placed(stack: Any) -> None:
    ids = await stack.remember({"content": "a"}, {"content": "b", "tier": "episodic"})
    held = {r["content"]: r["tier"] for r in (await stack.ok("timeline"))["records"]}
    assert held == {"a": "working", "b": "episodic"}
    assert await stack.contents(tier="episodic") == ["b"]
    assert await stack.ok("forget", tier="working", where={"role": None}) == {
        "forgotten": 1,
        "tiers": {"working": 1},
        "ids": ids[:1],
    }


async def test_promoting_counts_what_moved_and_logs_it(stack: Any) -> None:
    await stack.remember({"id": "a", "content": "a"}, {"id": "b", "content": "b", "tier": "episodic"})
    cursor = (await stack.ok("events"))["cursor"]
    assert await stack.ok("promote", ids=[], tier="episodic") == {"promoted": 0}
    assert await stack.ok("promote", ids=["a", "b", "c", "a"], tier="episodic", salience=2) == {"promoted": 1}
    assert await stack.ok("promote", ids=["a"], tier="episodic") == {"promoted": 0}
    (event,) = (await stack.ok("events", cursor=cursor))["events"]
    assert (event["kind"], event["ids"], event["tier"]) == ("promoted", ["a"], "episodic")
    assert (await stack.ok("timeline"))["records"][0]["salience"] == 3.0
    for params in ({}, {"ids": ["a"]}, {"tier": "working"}, {"ids": "a", "tier": "working"}):
        assert await stack.code("promote", **params) == -32602
    assert await stack.code("promote", ids=["a"], tier="working", salience="2") == -32602


async def test_a_consolidation_that_was_asked_for_is_always_logged(stack: Any) -> None:
    cursor = (await stack.ok("events"))["cursor"]
    result = await stack.ok("consolidate")
    assert result == {
        "moved": 0,
        "promoted": 0,
        "dropped": 0,
        "summarized": 0,
        "counts": {"working": 0, "episodic": 0},
    }
    (event,) = (await stack.ok("events", cursor=cursor))["events"]
    assert {k: v for k, v in event.items() if k != "at"} == {
        "kind": "consolidated",
        "moved": 0,
        "promoted": 0,
        "dropped": 0,
        "summarized": 0,
    }


async def test_closing_a_session_empties_working_of_it_and_logs_both(stack: Any) -> None:
    await stack.remember({"content": "a", "session": "s"}, {"content": "b", "session": "t"})
    cursor = (await stack.ok("events"))["cursor"]
    closed = await stack.ok("session/close", session="s")
    assert (closed["closed"], closed["flushed"], closed["moved"]) == ("s", 1, 1)
    assert closed["counts"] == {"working": 1, "episodic": 1}
    assert (await stack.ok("timeline", tier="episodic"))["records"][0]["session"] == "s"
    kinds = [event["kind"] for event in (await stack.ok("events", cursor=cursor))["events"]]
    assert kinds == ["consolidated", "session_closed"]


async def test_each_sees_the_figures_of_its_own_records(stack: Any, stacked: Any) -> None:
    cursor = (await stack.ok("events"))["cursor"]
    stacked.next = Consolidated(
        moved={"a": "ann", "b": "bob", "c": "bob", "p": None}, promoted={"d": "bob"}, dropped={"e": "eve"}
    )
    seen = {"ann": (2, 0, 0), "bob": (3, 1, 0), "eve": (1, 0, 1), None: (1, 0, 0)}
    for owner, figures in seen.items():
        told = await stack.ok("consolidate", owner=owner)
        assert (told["moved"], told["promoted"], told["dropped"], told["summarized"]) == (*figures, 0)
        events = (await stack.ok("events", cursor=cursor, owner=owner))["events"]
        assert {(e["moved"], e["promoted"], e["dropped"]) for e in events} == {figures}
    assert (await stack.ok("consolidate"))["moved"] == 4
    stacked.next = Consolidated(moved={"a": "ann"})
    cursor = (await stack.ok("events"))["cursor"]
    assert (await stack.ok("consolidate", owner="bob"))["moved"] == 0
    assert (await stack.ok("events", cursor=cursor, owner="bob"))["events"] == []
    assert len((await stack.ok("events", cursor=cursor))["events"]) == 1


async def test_a_promotion_is_told_to_those_whose_records_moved(stack: Any) -> None:
    await stack.remember(
        {"id": "a", "content": "a", "owner": "ann"}, {"id": "b", "content": "b", "owner": "bob"}
    )
    cursor = (await stack.ok("events"))["cursor"]
    assert await stack.ok("promote", ids=["a", "b"], tier="episodic", owner="ann") == {"promoted": 1}
    assert (await stack.ok("events", cursor=cursor, owner="bob"))["events"] == []
    (event,) = (await stack.ok("events", cursor=cursor, owner="ann"))["events"]
    assert event["ids"] == ["a"]


async def test_closing_a_session_is_told_to_all_whose_session_it_is(stack: Any) -> None:
    await stack.remember({"content": "first", "session": "s", "owner": "bob"})
    await stack.remember(*({"content": str(n), "session": "s", "owner": "ann"} for n in range(120)))
    cursor = (await stack.ok("events"))["cursor"]
    assert (await stack.ok("session/close", session="s"))["flushed"] == 121
    for owner, moved in (("ann", 120), ("bob", 1)):
        consolidated, closed = (await stack.ok("events", cursor=cursor, owner=owner))["events"]
        assert (consolidated["moved"], closed["session"]) == (moved, "s")
    assert (await stack.ok("events", cursor=cursor, owner="eve"))["events"] == []


async def test_closing_a_session_as_its_owner_closes_and_tells_no_more(stack: Any) -> None:
    await stack.remember({"content": "b", "session": "s", "owner": "bob"})
    await stack.remember(*({"content": str(n), "session": "s"} for n in range(101)))
    await stack.remember({"content": "a", "session": "s", "owner": "ann"})
    cursor = (await stack.ok("events"))["cursor"]
    assert (await stack.ok("session/close", session="s", owner="bob"))["flushed"] == 102
    assert (await stack.ok("events", cursor=cursor, owner=None))["events"][0]["moved"] == 101
    kinds = [e["kind"] for e in (await stack.ok("events", cursor=cursor, owner="bob"))["events"]]
    assert kinds == ["consolidated", "session_closed"]
    assert (await stack.ok("session/close", session="s", owner="bob"))["flushed"] == 0
    assert (await stack.ok("timeline", owner="ann", tier="working"))["records"][0]["content"] == "a"


async def test_closing_an_unknown_session_does_and_logs_nothing(stack: Any) -> None:
    cursor = (await stack.ok("events"))["cursor"]
    assert (await stack.ok("session/close", session="never"))["flushed"] == 0
    assert (await stack.ok("events", cursor=cursor))["events"] == []


async def test_summarize_takes_from_one_tier_and_writes_into_another(stack: Any) -> None:
    await stack.remember({"content": "Tea is green."}, {"content": "Not this.", "tier": "episodic"})
    result = await stack.ok("summarize", tier="working", into="episodic")
    assert (result["read"], result["written"]) == (1, 1)
    assert result["records"][0]["tier"] == "episodic"
    assert result["records"][0]["content"] == "Tea is green."
