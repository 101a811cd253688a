"""Tracing is off unless it is asked for, and passes on what a caller told of a trace all the same."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from a2m_protocol.errors import JsonObject
from a2m_server import requests, tracing
from a2m_server.dispatch import Dispatcher
from a2m_server.exchange import Exchange
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.metrics import Metrics

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_without_a_collector_a_span_is_nothing() -> None:
    spans = [tracing.answering("one"), tracing.querying("redis", "EVALSHA"), tracing.working("sweep")]
    assert all(isinstance(span, nullcontext) for span in spans)


async def test_a_trace_and_a_request_id_go_on_to_who_is_asked() -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    class Tier(MemoryTier):
        async def sessions(self, scope: Any) -> Any:
            seen.append(requests.carried())
            return await super().sessions(scope)

    exchange = Exchange(Dispatcher(Tier()), 10.0, Metrics())
    body = b'{"jsonrpc":"2.0","id":1,"method":"memory/session/list"}'
    told = requests.told({"x-request-id": "mine-1", "traceparent": PARENT, "tracestate": "a=b"})
    with requests.under_way(told):
        await exchange.answer(body, Peer(LOCAL))
    await exchange.answer(body, Peer(LOCAL))
    first, second = map(dict, seen)
    assert first == {b"traceparent": PARENT.encode(), b"tracestate": b"a=b", b"x-request-id": b"mine-1"}
    assert second.keys() == {b"x-request-id"}
    assert requests.carried() == [], "and after that nothing is left"


@pytest.mark.parametrize("given", ["", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "x" * 9000])
def test_a_traceparent_that_is_none_is_no_trace(given: str) -> None:
    assert requests.told({"traceparent": given}).parent is None


def started(**environment: str) -> str:
    """What a server says that is started so."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", "from a2m_server import tracing; tracing.start('x'); print('started')"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean | environment,
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
        {ENDPOINT: "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:9"},
    ],
)
def test_a_server_starts_whether_a_collector_answers_or_not(environment: dict[str, str]) -> None:
    assert started(**environment) == "started"


def test_a_server_ends_soon_though_its_collector_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code = "from a2m_server import tracing; tracing.start('x')\nwith tracing.working('sweep'): pass"
        environment = {**os.environ, ENDPOINT: f"http://127.0.0.1:{silent.getsockname()[1]}"}
        done = subprocess.run([sys.executable, "-c", code], timeout=8, env=environment, capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_EXPORTER", "zipkin")]
)
def test_what_is_asked_for_and_is_not_here_is_said(name: str, value: str) -> None:
    said = started(**{ENDPOINT: "http://127.0.0.1:9", name: value})
    assert said.startswith("ValueError")
    assert value in said


def test_metrics_have_no_label_that_others_make_up() -> None:
    metrics = Metrics()
    metrics.count("memory/invented", -1234567, 0.1)
    metrics.read("memory/remember", found=True)
    text = metrics.text()
    assert 'a2m_requests_total{code="other",method="other"} 1.0' in text
    assert "invented" not in text
    assert "remember" not in text


async def test_a_read_is_counted_by_whether_it_found_something() -> None:
    metrics = Metrics()
    exchange = Exchange(Dispatcher(MemoryTier()), 10.0, metrics)

    async def call(method: str, params: str) -> None:
        body = f'{{"jsonrpc":"2.0","id":1,"method":"memory/{method}","params":{params}}}'
        answer = await exchange.answer(body.encode(), Peer(LOCAL))
        assert answer is not None
        assert b'"result"' in answer

    await call("recall", '{"query":"bread"}')
    await call("remember", '{"records":[{"content":"bread and butter"}]}')
    await call("recall", '{"query":"bread"}')
    found = metrics.registry.get_sample_value
    assert found("a2m_reads_total", {"method": "memory/recall", "found": "true"}) == 1
    assert found("a2m_reads_total", {"method": "memory/recall", "found": "false"}) == 1
    assert found("a2m_requests_in_flight") == 0


def test_what_http_refuses_is_counted_by_status(serve: Any, token_file: Any) -> None:
    message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "memory/echo"}
    with serve(token_file=token_file, require_token=True) as served:
        refused = served.post(message)
        assert refused.status_code == 401
        assert refused.headers["x-request-id"]
        told = served.client.get("/metrics", headers={"Authorization": "Bearer first-token"}).text
    assert 'a2m_http_refusals_total{status="401"} 1.0' in told
