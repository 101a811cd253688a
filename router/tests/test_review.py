"""Review as callers meet it: principals over the dispatcher of a federation that asks for evidence."""

from __future__ import annotations

from typing import Any

import pytest

from a2m_router.config import TierConfig
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOOPBACK, Caller, Peer, Role, principal
from a2m_server.memory import MemoryTier

AGENT = principal("bot", "ann", frozenset({Role.AGENT}), (), pooled=True)
OTHER = principal("spy", "bob", frozenset({Role.AGENT}), (), pooled=True)
READER = principal("desk", "ann", frozenset({Role.READER}), (), pooled=True)
CURATOR = principal("cleo", "cleo", frozenset({Role.CURATOR}), ("ann",), pooled=True)


class Desk:
    """A federation of working, episodic and a semantic tier, as callers reach it."""

    def __init__(self, policy: object) -> None:
        kinds = ("working", "episodic", "semantic")
        members = [
            Member(
                TierConfig.model_validate(
                    {"name": kind, "kind": kind, "url": "http://127.0.0.1:1"}
                    | ({"policy": policy} if kind == "semantic" else {})
                ),
                MemoryTier(kind, kind),
            )
            for kind in kinds
        ]
        events = EventLog()
        self._dispatcher = Dispatcher(Federation("a2m", members, events, interval=3_600), events=events)

    async def ask(self, caller: Caller, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        answer = await self._dispatcher.handle(message, Peer(caller))
        assert answer is not None
        return answer.get("result", answer.get("error"))

    async def remember(self, caller: Caller, **record: Any) -> Any:
        return await self.ask(caller, "remember", records=[record])


@pytest.fixture
def desk() -> Desk:
    return Desk("evidence")


FACT = {"id": "lie", "content": "The office moved to Pluto", "key": "office", "tier": "semantic"}
TRUE = {"id": "true", "content": "The office is in Oslo", "key": "office", "tier": "semantic", "owner": "ann"}


async def test_whoever_writes_is_told_what_is_pending(desk: Desk) -> None:
    assert await desk.remember(AGENT, **FACT) == {"ids": ["lie"], "pending": ["lie"]}
    assert (await desk.remember(AGENT, id="turn", content="hello")) == {"ids": ["turn"]}
    assert await desk.remember(CURATOR, **TRUE | {"id": "t", "key": "o"}) == {"ids": ["t"]}


async def test_pending_records_are_listed_with_the_facts_that_they_contradict(desk: Desk) -> None:
    await desk.remember(CURATOR, **TRUE)
    await desk.remember(AGENT, **FACT)
    await desk.remember(AGENT, id="new", content="The sky is green", tier="semantic")
    for caller in (AGENT, READER, CURATOR):
        told = await desk.ask(caller, "pending")
        assert [(r["id"], r["status"]) for r in told["records"]] == [("lie", "pending"), ("new", "pending")]
        assert {i: fact["id"] for i, fact in told["facts"].items()} == {"lie": "true"}
        conflicts = await desk.ask(caller, "pending", conflicts=True)
        assert [r["id"] for r in conflicts["records"]] == ["lie"]
        assert conflicts["records"][0]["provenance"]["contests"] == "office"
    assert await desk.ask(OTHER, "pending") == {"records": [], "facts": {}}


async def test_pending_records_are_in_no_recall_fact_list_or_context(desk: Desk) -> None:
    await desk.remember(AGENT, **FACT, session="monday")
    assert (await desk.ask(AGENT, "recall", query="office Pluto"))["records"] == []
    assert (await desk.ask(AGENT, "timeline"))["records"] == []
    assert (await desk.ask(AGENT, "timeline", order="key"))["records"] == []
    assert (await desk.ask(AGENT, "fetch", key="office"))["record"] is None
    context = await desk.ask(AGENT, "context", session="tuesday", query="office Pluto", task="move")
    assert "Pluto" not in context["prompt"]
    assert (await desk.ask(AGENT, "summarize", ids=["lie"]))["written"] == 0
    whole = (await desk.ask(AGENT, "timeline", where={"session": "monday"}))["records"]
    assert [(r["id"], r["status"]) for r in whole] == [("lie", "pending")]
    assert (await desk.ask(AGENT, "timeline", status="pending"))["records"] == whole
    assert (await desk.ask(AGENT, "timeline", status=["active"]))["records"] == []


@pytest.mark.parametrize("status", ["odd", 5, [], ["pending", 5], {}, ""])
async def test_a_status_that_is_none_is_refused(desk: Desk, status: object) -> None:
    refused = await desk.ask(AGENT, "timeline", status=status)
    assert refused["code"] == -32602
    assert "status" in refused["message"]


async def test_a_recall_of_what_is_not_active_is_refused(desk: Desk) -> None:
    refused = await desk.ask(AGENT, "recall", query="x", status="pending")
    assert refused["code"] == -32602
    assert "timeline" in refused["message"]
    assert "records" in await desk.ask(AGENT, "recall", query="x", status="active")


async def test_only_curators_and_operators_decide(desk: Desk) -> None:
    await desk.remember(AGENT, **FACT)
    for method in ("approve", "reject"):
        for caller in (AGENT, OTHER, READER):
            assert (await desk.ask(caller, method, ids=["lie"]))["code"] == -32005
    assert [r["id"] for r in (await desk.ask(AGENT, "pending"))["records"]] == ["lie"]
    assert await desk.ask(CURATOR, "approve", ids=["lie", "none"]) == {"approved": ["lie"]}
    assert await desk.ask(CURATOR, "approve", ids=["lie"]) == {"approved": []}
    fact = (await desk.ask(AGENT, "fetch", key="office"))["record"]
    assert (fact["id"], fact["provenance"]["approved"]) == ("lie", "cleo")


async def test_a_curator_decides_on_what_it_may_write_alone(desk: Desk) -> None:
    await desk.remember(OTHER, **FACT)
    assert await desk.ask(CURATOR, "approve", ids=["lie"]) == {"approved": []}
    assert await desk.ask(CURATOR, "reject", ids=["lie"]) == {"rejected": []}
    assert [r["id"] for r in (await desk.ask(OTHER, "pending"))["records"]] == ["lie"]


async def test_what_is_rejected_is_forgotten_and_what_is_active_is_not_touched(desk: Desk) -> None:
    await desk.remember(CURATOR, **TRUE)
    await desk.remember(AGENT, **FACT)
    assert await desk.ask(CURATOR, "reject", ids=["lie", "true"]) == {"rejected": ["lie"]}
    assert await desk.ask(CURATOR, "reject", ids=[]) == {"rejected": []}
    assert (await desk.ask(AGENT, "fetch", key="office"))["record"]["id"] == "true"
    assert (await desk.ask(AGENT, "timeline", status="pending"))["records"] == []
    [event] = (await desk.ask(AGENT, "events", cursor="", kinds=["forgotten"]))["events"]
    assert event["ids"] == ["lie"]


async def test_an_agent_cannot_approve_of_itself_by_what_it_writes(desk: Desk) -> None:
    told = {
        "approved": "cleo",
        "authority": "operator",
        "principal": "root",
        "contests": "x",
        "at": "2026-01-01T00:00:00Z",
    }
    await desk.remember(AGENT, **FACT, provenance=told, status="active")
    [held] = (await desk.ask(AGENT, "pending"))["records"]
    assert held["provenance"]["principal"] == "bot"
    assert held["provenance"]["authority"] == "agent"
    assert not {"approved", "contests"} & held["provenance"].keys()


async def test_without_authentication_evidence_is_asked_for_and_anybody_may_approve(desk: Desk) -> None:
    assert (await desk.remember(LOOPBACK, **FACT))["pending"] == ["lie"]
    assert await desk.ask(LOOPBACK, "approve", ids=["lie"]) == {"approved": ["lie"]}
    assert (await desk.ask(LOOPBACK, "fetch", key="office"))["record"]["id"] == "lie"


async def test_a_closed_tier_says_who_may_write_there() -> None:
    desk = Desk("closed")
    refused = await desk.remember(AGENT, **FACT)
    assert refused["code"] == -32005
    assert "semantic" in refused["message"]
    assert "curator" in refused["message"]
    assert (await desk.remember(CURATOR, **TRUE))["ids"] == ["true"]


async def test_the_fact_that_is_contradicted_is_shown_be_there_others_at_its_key(desk: Desk) -> None:
    for owner in (None, "ann", "cleo"):
        await desk.remember(CURATOR, content=str(owner), key="office", tier="semantic", owner=owner)
    await desk.remember(AGENT, **FACT)
    told = await desk.ask(CURATOR, "pending")
    assert [told["facts"]["lie"]["content"]] == ["ann"]
