"""A context is what the tiers hold of a session, an owner, a query and a task, read at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import ANONYMOUS, LOCAL, Caller, Peer
from a2m_server.memory import MemoryTier
from a2m_server.values import Found, Search
from conftest import CHAIN

PARTS = ("transcript", "facts", "episodes", "procedures")


def connect(federation: Federation, caller: Caller = LOCAL) -> Client:
    dispatcher, peer = Dispatcher(federation), Peer(caller)
    return Client(LocalTransport(lambda message: dispatcher.handle(message, peer)))


@pytest.fixture
async def memory(federation: Federation) -> Client:
    """A trusted client of a federation that holds two sessions, facts of two owners, and procedures."""
    client = connect(federation)
    for session in ("old", "new"):
        for n in range(8):
            said = {"content": f"{session} tea {n}", "role": "user", "session": session, "owner": "ann"}
            await client.remember([{"id": f"{session}{n}", **said}])
        await client.close_session(session) if session == "old" else await client.consolidate()
    for owner, key in (("ann", "b"), ("ann", "a"), ("bob", "c"), (None, "d")):
        held = {"id": f"{owner}-{key}", "content": f"{key} likes tea", "key": key, "tier": "semantic"}
        await client.remember([{**held, "owner": owner} if owner else held])
    for name in ("brew", "deploy"):
        await client.remember([{"id": name, "content": f"how to {name} tea", "tier": "procedural"}])
    await client.remember([{"id": "aside", "content": "a stray tea fact", "tier": "semantic"}])
    return client


async def ids(memory: Client, **params: Any) -> dict[str, list[str]]:
    result: Any = await memory.call("memory/context", params)
    return {part: [record["id"] for record in result[part]] for part in PARTS}


async def test_all_four_parts_come_in_one_call(memory: Client) -> None:
    found = await ids(memory, session="new", query="tea", task="deploy", owner="ann")
    assert found["transcript"] == [f"new{n}" for n in range(8)]
    assert found["facts"] == ["ann-a", "ann-b", "None-d"]
    assert {*found["episodes"]} <= {*(f"old{n}" for n in range(8)), "aside"}
    assert len(found["episodes"]) == 8
    assert found["procedures"] == ["deploy"]


async def test_an_episode_is_none_that_is_shown_already(memory: Client) -> None:
    for limit in (1, 3, 8):
        found = await ids(memory, session="new", query="new tea likes", limits={"episodes": limit})
        shown = {*found["transcript"], *found["facts"]}
        assert len(found["episodes"]) == limit
        assert not shown & {*found["episodes"]}


async def test_without_a_session_a_query_or_a_task_there_are_facts_alone(memory: Client) -> None:
    found = await ids(memory, owner="bob")
    assert found == {"transcript": [], "facts": ["bob-c", "None-d"], "episodes": [], "procedures": []}


async def test_procedures_are_found_by_the_query_where_no_task_is_named(memory: Client) -> None:
    assert (await ids(memory, query="brew"))["procedures"] == ["brew"]
    assert (await ids(memory, query="brew", task="deploy"))["procedures"] == ["deploy"]
    assert (await ids(memory, task="deploy"))["episodes"] == []


async def test_where_narrows_the_episodes_alone(memory: Client) -> None:
    found = await ids(memory, session="new", query="tea", where={"session": {"prefix": "ol"}})
    assert found["episodes"]
    assert all(i.startswith("old") for i in found["episodes"])
    assert len(found["transcript"]) == 8
    assert len(found["facts"]) == 4
    assert (await ids(memory, query="tea", where={"tier": "semantic"}))["episodes"] == ["aside"]


async def test_limits_hold_for_each_part_and_zero_leaves_it_out(memory: Client) -> None:
    limits = {"transcript": 2, "facts": 0, "episodes": 3, "procedures": 1}
    found = await ids(memory, session="new", query="tea", limits=limits)
    assert found["transcript"] == ["new6", "new7"]
    assert [len(found[part]) for part in PARTS] == [2, 0, 3, 1]


async def test_a_budget_leaves_whole_records_out_and_says_how_many(memory: Client) -> None:
    params: Any = {"session": "new", "query": "tea", "owner": "ann"}
    whole: Any = await memory.call("memory/context", params)
    assert "omitted" not in whole
    for budget, most in ((120, 120), ({"characters": 200}, 200), ({"tokens": 50}, 200)):
        limited: Any = {**params, "budget": budget}
        result: Any = await memory.call("memory/context", limited)
        assert 0 < len(result["prompt"]) <= most
        assert {*result["prompt"].splitlines()} <= {*whole["prompt"].splitlines(), ""}
        left = {part: len(whole[part]) - len(result[part]) for part in PARTS}
        assert result["omitted"] == {part: count for part, count in left.items() if count}
        assert sorted(result["prompt_ids"]) == sorted(r["id"] for part in PARTS for r in result[part])


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"query": 1}, "query"),
        ({"task": []}, "task"),
        ({"session": ""}, "session"),
        ({"where": "x"}, "where"),
        ({"limits": 3}, "limits"),
        ({"limits": {"episode": 3}}, "'episode'"),
        ({"limits": {"facts": "all"}}, "limits.facts"),
        ({"limits": {"facts": -1}}, "limits.facts"),
        ({"limits": {"episodes": 1_001}}, "limits.episodes"),
        ({"budget": 0}, "budget"),
        ({"budget": {"tokens": 0}}, "budget"),
        ({"budget": -5}, "budget"),
        ({"budget": "long"}, "budget"),
        ({"budget": True}, "budget"),
        ({"budget": {}}, "budget"),
        ({"budget": {"words": 9}}, "'words'"),
        ({"budget": {"tokens": 9, "characters": 9}}, "budget"),
        ({"budget": {"tokens": "9"}}, "budget.tokens"),
    ],
)
async def test_what_is_wrong_is_refused_and_named(memory: Client, params: Any, named: str) -> None:
    with pytest.raises(A2MError) as refused:
        await memory.call("memory/context", params)
    assert refused.value.code == Code.INVALID_PARAMS
    assert named in refused.value.message


async def test_recalled_records_count_an_access_and_replayed_ones_do_not(
    memory: Client, stores: dict[str, MemoryTier]
) -> None:
    found = await ids(memory, session="new", query="tea", task="deploy")
    await memory.recall("tea", touch=False)
    counts = {r.id: r.access_count for s in stores.values() for r in await s.read(found_ids(found))}
    assert {i for i, count in counts.items() if count} == {*found["episodes"], *found["procedures"]}


def found_ids(found: dict[str, list[str]]) -> list[str]:
    return [i for part in found.values() for i in part]


async def test_everyone_may_ask_and_sees_what_recall_would_show(
    memory: Client, federation: Federation
) -> None:
    stranger = connect(federation, ANONYMOUS)
    described: Any = await stranger.describe()
    assert "memory/context" in described["methods"]
    assert "memory/list" not in described["methods"]
    assert "context" in described["extensions"]
    found = await ids(stranger, session="new", query="tea")
    assert found == {
        "transcript": [],
        "facts": ["None-d"],
        "episodes": ["aside"],
        "procedures": found["procedures"],
    }


async def test_a_tier_alone_has_no_context() -> None:
    dispatcher, peer = Dispatcher(MemoryTier()), Peer(LOCAL)
    tier = Client(LocalTransport(lambda message: dispatcher.handle(message, peer)))
    with pytest.raises(A2MError) as refused:
        await tier.call("memory/context", {})
    assert refused.value.code == Code.NOT_SUPPORTED


class Silent(MemoryTier):
    """A tier that does not answer a search."""

    async def search(self, search: Search) -> Found:
        raise unavailable("the database", "it is away")


async def test_a_tier_that_is_away_is_named_once() -> None:
    away = ("episodic", "semantic")
    stores = [(Silent if c.kind in away else MemoryTier)(c.name, c.kind) for c in CHAIN]
    federation = Federation("a2m", [Member(c, s) for c, s in zip(CHAIN, stores, strict=True)], EventLog())
    await federation.open()
    result: Any = await connect(federation).call("memory/context", {"query": "tea"})
    assert [d["tier"] for d in result["degraded"]] == ["episodic", "semantic"]
    await federation.close()


def keys(result: Any) -> Sequence[str]:
    return [record["key"] for record in result["records"]]


async def test_the_facts_of_an_owner_load_in_one_call_by_key(memory: Client) -> None:
    assert keys(await memory.timeline(tier="semantic", order="key", owner="ann")) == ["a", "b", "d"]
    assert keys(await memory.timeline(order="key")) == ["a", "b", "c", "d"]
    assert keys(await memory.timeline(order="key", where={"key": ["b", "c"]}, limit=0)) == ["b", "c"]
    assert keys(await memory.timeline(order="key", key_prefix="d")) == ["d"]
    plain: Any = await memory.timeline(tier="semantic", order="seq")
    assert [record["id"] for record in plain["records"]] == ["ann-b", "ann-a", "bob-c", "None-d", "aside"]


@pytest.mark.parametrize("params", [{"order": "key", "limit": 3}, {"order": "score"}, {"order": 1}])
async def test_an_order_that_cannot_be_is_refused(memory: Client, params: Any) -> None:
    with pytest.raises(A2MError) as refused:
        await memory.timeline(**params)
    assert refused.value.code == Code.INVALID_PARAMS
