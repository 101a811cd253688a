"""One line a request, known by one id in every server, and nothing in it that a record holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest


def test_a_request_has_one_line_in_each_server_under_one_id(observed: Any, poll: Callable[..., Any]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "memory/recall", "params": {"query": observed.secret}}
    answer = httpx.post(observed.running.url, json=body, headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"

    def lines(service: str) -> list[dict[str, Any]]:
        return [line for line in observed.lines(service) if line["request"] == "mine-1"]

    [line] = poll("the router's line", lambda: lines("router"))
    assert (line["method"], line["code"], line["service"]) == ("memory/recall", 0, "router")
    assert line["ms"] > 0
    assert sorted(line["tiers"]) == ["episodic", "procedural", "semantic", "working"]
    for service in observed.services[1:]:
        told = poll(f"{service}'s line", lambda s=service: lines(s))
        assert "memory/recall" in {line["method"] for line in told}
        assert {line["trace"] for line in told} == {line["trace"]}


@pytest.mark.parametrize("given", ["", "x" * 65, "two words", 'a"b', "a\tb", "ü"])
def test_an_id_that_is_not_well_formed_is_not_taken(observed: Any, given: str) -> None:
    told = httpx.get(f"{observed.running.url}/healthz", headers={"x-request-id": given.encode()})
    assert told.headers["x-request-id"] != given
    assert len(told.headers["x-request-id"]) == 16


def test_requests_that_were_refused_have_a_line_too(observed: Any, poll: Callable[..., Any]) -> None:
    def told() -> set[tuple[str, int]]:
        return {(line["method"], line["code"]) for line in observed.lines("router")}

    wanted = {("other", -32601), ("memory/recall", -32602), ("HTTP", 415), ("HTTP", 404)}
    poll("lines", lambda: wanted <= told())
    assert ("memory/recall", None) in told(), "of a notification, nobody waits for the end"


def test_nothing_that_a_caller_wrote_is_in_a_line_a_span_or_a_metric(
    observed: Any, poll: Callable[..., Any]
) -> None:
    poll("the lines of the traffic", lambda: len(observed.lines("router")) > 10)
    poll("its spans", lambda: {s.service for s in observed.collector.spans} >= {"a2m-semantic", "a2m-router"})
    for service in observed.services:
        assert observed.secret not in observed.log(service), service
        assert observed.secret not in observed.metrics(service), service
    assert observed.secret.encode() not in observed.collector.raw
    assert observed.running.token.encode() not in observed.collector.raw
