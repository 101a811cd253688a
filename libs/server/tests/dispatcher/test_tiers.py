from typing import Any

import pytest


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
