from typing import Any

import pytest

from a2m_protocol.types import Capability
from a2m_server.identity import ANONYMOUS
from a2m_server.params import Limits

OURS = {"memory/forget_if", "memory/list", "memory/read", "memory/tombstones", "memory/touch"}


async def test_a_tier_describes_itself(memory: Any) -> None:
    about = await memory.ok("describe")
    assert about["protocol"] == "a2m/0.1"
    assert about["name"] == "memory"
    assert set(about["capabilities"]) == set(Capability) - {"tiers"}
    assert about["limits"] == {
        "max_records_per_call": 500,
        "max_recall_limit": 1000,
        "max_content_length": 1_000_000,
    }
    assert about["embeddings"] == {
        "dimensions": None,
        "metric": "cosine",
        "metrics": ["cosine", "dot", "l2"],
        "model": None,
    }
    assert about["summarize"] == {"model": None}
    assert about["prompt"] == {
        "styles": ["facts", "transcript", "auto"],
        "methods": ["template", "none"],
        "model": None,
    }
    assert about["methods"] == sorted(about["methods"])
    assert set(about["methods"]) >= OURS
    assert "memory/promote" not in about["methods"]


async def test_the_first_vector_fixes_the_dimensions(memory: Any) -> None:
    await memory.remember({"content": "x", "embedding": [1, 0, 0]})
    assert (await memory.ok("describe"))["embeddings"]["dimensions"] == 3
    assert await memory.code("remember", records=[{"content": "y", "embedding": [1, 0]}]) == -32008


async def test_our_methods_are_listed_to_who_may_call_them_alone(connect: Any, memory: Any) -> None:
    stranger = connect(to=memory, caller=ANONYMOUS)
    assert not set((await stranger.ok("describe"))["methods"]) & OURS


async def test_tiers_are_listed_with_their_counts(stack: Any) -> None:
    await stack.remember({"content": "a", "owner": "ann"}, {"content": "b", "tier": "episodic"})
    about = await stack.ok("describe")
    assert about["tiers"] == [
        {
            "name": "working",
            "count": 1,
            "kind": "working",
            "capacity": 20,
            "per_session": True,
            "spill_to": "episodic",
        },
        {"name": "episodic", "count": 1, "kind": "episodic", "capacity": 0},
    ]
    mine = await stack.ok("describe", owner="bob")
    assert [tier["count"] for tier in mine["tiers"]] == [0, 1]


async def test_nothing_is_said_of_what_is_not_declared(varied: Any) -> None:
    about = await varied(capabilities=frozenset({Capability.CORE}), extensions=frozenset()).ok("describe")
    assert about["capabilities"] == ["core"]
    assert not {"embeddings", "events", "summarize", "prompt", "extensions", "tiers"} & about.keys()
    assert about["methods"] == [
        "memory/describe",
        "memory/forget",
        "memory/recall",
        "memory/remember",
        "memory/timeline",
    ]


@pytest.mark.parametrize("protocol", ["a2m/0.1", "a2m/0.1.7", None])
async def test_the_protocol_spoken_is_accepted(memory: Any, protocol: object) -> None:
    assert (await memory.ok("describe", protocol=protocol))["protocol"] == "a2m/0.1"


@pytest.mark.parametrize(
    "protocol", ["a2m/0.2", "a2m/1.0", "a2m/1.1", "a2m/0", "0.1", "mcp/0.1", "", "a2m/0.1\n"]
)
async def test_another_protocol_is_not(memory: Any, protocol: str) -> None:
    assert await memory.code("describe", protocol=protocol) == -32007


async def test_a_protocol_that_is_no_string_is_invalid(memory: Any) -> None:
    assert await memory.code("describe", protocol=0.1) == -32602


async def test_each_limit_is_enforced(connect: Any) -> None:
    small = connect(limits=Limits(max_records_per_call=2, max_recall_limit=3, max_content_length=4))
    assert (await small.ok("describe"))["limits"]["max_recall_limit"] == 3
    assert await small.code("remember", records=[{"content": "a"}] * 3) == -32602
    assert await small.code("remember", records=[{"content": "a"}, {"content": "12345"}]) == -32006
    assert await small.contents() == []
    for content in "abcd":
        await small.remember({"content": content})
    assert await small.code("recall", limit=4) == -32602
    assert len((await small.ok("recall", limit=0))["records"]) == 3
    assert len((await small.ok("recall"))["records"]) == 3
    assert len(await small.contents(limit=0)) == 4
