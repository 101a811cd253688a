"""A cross-encoder behind a real endpoint on a socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from a2m_protocol.errors import A2MError
from a2m_retrieval.cross import CrossEncoder, RerankSettings

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


class Endpoint:
    """Answers `/v1/rerank` as `answer` says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Answer = lambda asked: (200, scores(*(0.5 for _ in asked["documents"])))
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.asked.append(asked)
                endpoint.keys.append(self.headers["authorization"])
                status, told = endpoint.answer(asked) if self.path == "/v1/rerank" else (404, {})
                body = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def scores(*values: float) -> dict[str, Any]:
    return {"results": [{"index": at, "relevance_score": v} for at, v in enumerate(values)][::-1]}


async def relevance(settings: RerankSettings, query: str, *texts: str) -> list[float]:
    encoder = CrossEncoder(settings)
    await encoder.open()
    try:
        return await encoder.relevance(query, texts)
    finally:
        await encoder.close()


async def test_scores_come_in_the_order_of_the_texts(endpoint: Endpoint, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-1\n")
    endpoint.answer = lambda _: (200, scores(0.1, 0.9))
    settings = RerankSettings(url=endpoint.url, model="reader", key_file=key, max_characters=5)
    assert await relevance(settings, "what is it?", "one\ud800", "two too long") == [0.1, 0.9]
    [asked] = endpoint.asked
    assert asked["model"] == "reader"
    assert asked["documents"] == ["one?", "two t"]
    assert endpoint.keys == ["Bearer secret-1"]


async def test_logits_become_numbers_between_zero_and_one_of_the_same_order(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (200, scores(-3.0, 4.0, 0.0))
    low, high, middle = await relevance(RerankSettings(url=endpoint.url), "q", "a", "b", "c")
    assert 0 <= low < middle < high <= 1


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (500, {}),
        (401, {"error": "secret-1"}),
        (200, {"results": []}),
        (200, {"results": [{"index": 5, "relevance_score": 1.0}]}),
        (200, {"results": [{"index": 0, "relevance_score": "high"}]}),
        (200, [1, 2]),
    ],
)
async def test_any_other_answer_is_an_error_without_a_secret(
    endpoint: Endpoint, status: int, told: object
) -> None:
    endpoint.answer = lambda _: (status, told)
    with pytest.raises(A2MError) as failed:
        await relevance(RerankSettings(url=endpoint.url), "q", "a")
    assert failed.value.retryable
    assert "secret" not in failed.value.message


async def test_an_endpoint_that_is_away_is_an_error_too() -> None:
    with pytest.raises(A2MError, match="does not answer"):
        await relevance(RerankSettings(url="http://127.0.0.1:9/v1"), "q", "a")


@pytest.mark.parametrize(
    "given",
    [
        {"url": "ftp://x"},
        {"url": "http://user:pass@x"},
        {"url": "http://[::1"},
        {"model": "m"},
        {"url": "http://x", "odd": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        RerankSettings(**given)
