"""What an agent loads before a model call, from the real engines."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

KEYS = ("b/2", "a", "B", "b", "ключ", "b/10", "a b")
TIERS = ("working", "episodic", "semantic", "procedural")


@pytest.mark.parametrize("tier", TIERS)
def test_facts_load_by_key_from_every_tier_and_over_the_router(
    tiers: dict[str, Any], router: Any, tier: str
) -> None:
    mark = uuid4().hex
    records = [{"content": f"fact {key}", "key": f"{mark}/{key}"} for key in KEYS]
    records.append({"content": f"no fact {mark}", "metadata": {"mark": mark}})
    router.call("remember", records=[{**record, "tier": tier} for record in records])
    expected = sorted(f"{mark}/{key}" for key in KEYS)
    for server in (tiers[tier], router):
        found = server.call("timeline", order="key", key_prefix=mark)["records"]
        assert [record["key"] for record in found] == expected
        found = server.call("timeline", order="key")["records"]
        assert [r["key"] for r in found if r["key"].startswith(mark)] == expected
        assert server.call("timeline", order="key", where={"mark": mark})["records"] == []
        assert len(server.call("timeline", where={"mark": mark})["records"]) == 1


def test_a_context_comes_from_all_tiers_in_one_call(router: Any) -> None:
    mark = uuid4().hex
    turns = [{"content": f"{mark} turn {n}", "role": "user", "session": mark} for n in range(30)]
    for turn in turns:
        router.call("remember", records=[turn])
    past = {"content": f"we moored the {mark} barge", "role": "user", "session": f"past-{mark}"}
    router.call("remember", records=[{**past, "tier": "episodic"}])
    router.call("remember", records=[{"content": "a fact", "key": f"{mark}/f", "tier": "semantic"}])
    way = {"content": f"To moor {mark}: throw the rope.", "key": f"{mark}-moor", "tier": "procedural"}
    router.call("remember", records=[way])
    asked = {"session": mark, "query": f"{mark} barge", "task": f"moor {mark}", "limits": {"facts": 1_000}}
    found = router.call("context", **asked)
    assert "degraded" not in found
    assert [r["content"] for r in found["transcript"]] == [turn["content"] for turn in turns]
    assert f"{mark}/f" in [r["key"] for r in found["facts"]]
    assert found["episodes"][0]["content"] == past["content"]
    assert found["procedures"][0]["key"] == f"{mark}-moor"
    assert not {r["id"] for r in found["transcript"]} & {r["id"] for r in found["episodes"]}
    short = router.call("context", **asked, budget={"tokens": 150})
    assert 0 < len(short["prompt"].encode()) <= 600
    assert short["transcript"][-1]["content"] == turns[-1]["content"]
