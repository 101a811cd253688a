"""One recall is one trace, from the router to its tiers to their databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

SERVER, CLIENT = 2, 3
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
DATABASES = {"working": "redis", "episodic": "postgresql", "semantic": "qdrant", "procedural": "git"}


def recall(observed: Any, trace: str, **headers: str) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "memory/recall", "params": {"query": "says"}}
    return httpx.post(observed.running.url, json=body, headers={"traceparent": trace, **headers})


def test_a_recall_is_one_trace_from_the_router_to_every_database(
    observed: Any, poll: Callable[..., Any]
) -> None:
    recall(observed, f"00-{TRACE}-{CALLER}-01").raise_for_status()

    def asked(service: str, kind: int) -> list[Any]:
        spans = [s for s in observed.collector.of(TRACE) if s.service == f"a2m-{service}"]
        return [s for s in spans if s.kind == kind]

    poll("spans of the router", lambda: len(asked("router", SERVER)) == 1)
    [whole] = asked("router", SERVER)
    assert (whole.name, whole.parent, whole.failed) == ("memory/recall", CALLER, False)
    for tier, database in DATABASES.items():
        poll(f"spans of {tier}", lambda t=tier: asked(t, CLIENT) and asked(t, SERVER))
        calls = {s.id: s for s in asked("router", CLIENT) if s.attributes.get("a2m.tier") == tier}
        served = {s.id: s for s in asked(tier, SERVER)}
        queries = asked(tier, CLIENT)
        assert calls, "a question to the tier is part of the request"
        assert all(s.parent in calls and s.name == calls[s.parent].name for s in served.values())
        assert "memory/recall" in {s.name for s in served.values()}
        assert {s.attributes["db.system.name"] for s in queries} == {database}
        assert all(s.parent in served for s in queries)
        assert all(s.parent == whole.id for s in calls.values())


def test_what_a_caller_does_not_want_to_be_recorded_is_not_recorded_anywhere(
    observed: Any, poll: Callable[..., Any]
) -> None:
    unwanted, wanted = "a" * 32, "b" * 32
    recall(observed, f"00-{unwanted}-{CALLER}-00").raise_for_status()
    recall(observed, f"00-{wanted}-{CALLER}-01").raise_for_status()
    services = {f"a2m-{service}" for service in ("router", *DATABASES)}
    poll("the other's spans", lambda: {s.service for s in observed.collector.of(wanted)} == services)
    assert observed.collector.of(unwanted) == []


def test_a_caller_that_tells_nonsense_of_a_trace_is_answered_in_one_of_its_own(
    observed: Any, poll: Callable[..., Any]
) -> None:
    answer = recall(observed, "00-nonsense-at-all", **{"x-request-id": "nonsense-1"})
    answer.raise_for_status()

    def found() -> list[Any]:
        spans = [*observed.collector.spans]
        return [s for s in spans if s.attributes.get("a2m.request") == "nonsense-1" and not s.parent]

    poll("its span", found)
    assert found()[0].service == "a2m-router"


def test_a_spill_is_a_trace_of_its_own(observed: Any, poll: Callable[..., Any]) -> None:
    def spills() -> list[Any]:
        return [s for s in [*observed.collector.spans] if s.name == "spill" and not s.parent]

    def services() -> set[str]:
        return {s.service for spill in spills() for s in observed.collector.of(spill.trace)}

    poll("a spill", lambda: {"a2m-router", "a2m-working", "a2m-episodic"} <= services())


def test_a_failure_shows_by_its_code_alone(observed: Any, poll: Callable[..., Any]) -> None:
    def failed() -> set[tuple[str, str]]:
        spans = [s for s in [*observed.collector.spans] if s.failed and s.service == "a2m-router"]
        return {(s.name, s.attributes["error.type"]) for s in spans if s.kind == SERVER}

    poll("spans that failed", lambda: {("other", "-32601"), ("memory/recall", "-32602")} <= failed())
