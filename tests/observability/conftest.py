"""A federation whose every server sends its spans to a collector of the tests, and logs an object a line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from a2m_protocol.client import SyncClient

SERVICES = ("router", "working", "episodic", "semantic", "procedural")
SECRET = "zanzibar-cinnamon"
"""A word of contents, ids, keys and sessions that may be in no line, span or metric."""


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, str] = field(hash=False)
    failed: bool = False


class Collector:
    """What an OpenTelemetry collector is to a server: it takes spans over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def listening(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            told = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        told["service.name"],
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        {a.key: a.value.string_value for a in span.attributes},
                        span.status.code == 2,
                    )
                    for span in scope.spans
                ]

    def of(self, trace: str) -> list[Span]:
        return [span for span in [*self.spans] if span.trace == trace]


@dataclass(frozen=True)
class Observed:
    running: Any
    collector: Collector
    services = SERVICES
    secret = SECRET

    def metrics(self, service: str) -> str:
        return httpx.get(f"{self.running.urls[service]}/metrics", headers=self.shown(service)).text

    def shown(self, service: str) -> dict[str, str]:
        return {} if service == "router" else {"Authorization": f"Bearer {self.running.token}"}

    def log(self, service: str) -> str:
        return (self.running.data / "logs" / f"{service}.log").read_text()

    def lines(self, service: str) -> list[dict[str, Any]]:
        """The lines of requests."""
        parsed = [json.loads(line) for line in self.log(service).splitlines()]
        return [line for line in parsed if line["message"] == "answered"]


@pytest.fixture(scope="session")
def observed(
    launch: Callable[..., AbstractContextManager[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    """After some traffic of each kind."""
    settings = {f"A2M_{service.upper()}_LOG_FORMAT": "json" for service in SERVICES}
    with (
        Collector().listening() as collector,
        launch(
            tmp_path_factory.mktemp("observed"),
            A2M_ROUTER_EMBEDDING__KIND="none",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_BSP_SCHEDULE_DELAY="100",
            **settings,
        ) as running,
    ):
        observed = Observed(running, collector)
        _talk(observed)
        yield observed


def _talk(observed: Observed) -> None:
    url = observed.running.url
    with SyncClient.http(url) as client:
        turns = [{"content": f"{SECRET} says {n}", "id": f"{SECRET}-{n}", "role": "user"} for n in range(30)]
        client.remember(turns, session=SECRET)
        client.remember([{"content": SECRET, "key": f"{SECRET}/fact", "tier": "semantic"}])
        client.fetch(f"{SECRET}/fact")
        for _ in range(4):
            client.recall(SECRET)
        client.call("memory/consolidate")
        client.timeline(where={"session": SECRET})
        client.call("memory/session/close", {"session": SECRET})
    for body in (
        {"jsonrpc": "2.0", "id": 1, "method": f"memory/{SECRET}"},
        {"jsonrpc": "2.0", "id": SECRET, "method": "memory/recall", "params": {"limit": SECRET}},
        {"jsonrpc": "2.0", "method": "memory/recall", "params": {"query": SECRET}},
    ):
        httpx.post(url, json=body).raise_for_status()
    assert httpx.post(url, content=SECRET).status_code == 415
    assert httpx.get(f"{url}/{SECRET}").status_code == 404
