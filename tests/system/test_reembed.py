"""A federation changes its model, of another width, while it serves; whatever is killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

WIDTHS = {"small": 8, "wide": 12}
FACTS, SKILLS = 700, 6
OPEN = 100_000
"""Calls that the endpoint answers when nobody is to be killed."""

pytestmark = pytest.mark.timeout(300)


class _Endpoint(BaseHTTPRequestHandler):
    """Answers as many calls as `gate` lets through; the others wait, so that somebody can be killed."""

    protocol_version = "HTTP/1.1"
    gate = threading.Semaphore(OPEN)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.gate.acquire()
        width = WIDTHS[asked["model"]]
        data = [{"index": at, "embedding": _vector(text, width)} for at, text in enumerate(asked["input"])]
        body = json.dumps({"object": "list", "model": asked["model"], "data": data}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _vector(text: str, width: int) -> list[float]:
    numbers = [1.0] + [0.0] * (width - 1)
    for word in text.split():
        numbers[1 + sum(word.encode()) % (width - 1)] += 1.0
    return numbers


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def settings(endpoint: str, model: str) -> dict[str, str]:
    given = {"KIND": "openai", "URL": endpoint, "MODEL": model}
    return {f"A2M_ROUTER_EMBEDDING__{name}": value for name, value in given.items()}


def test_a_store_is_moved_to_another_model_and_width(
    launch: Callable[..., Any], endpoint: str, tmp_path: Path, poll: Callable[..., Any], http: httpx.Client
) -> None:
    def call(running: Any, method: str, *, tier: str = "router", **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        headers = {"authorization": f"Bearer {running.token}"}
        answer = http.post(running.urls[tier], json=message, headers=headers).json()
        assert "error" not in answer, answer
        return answer["result"]

    def lacking(running: Any, model: str) -> dict[str, int]:
        tiers = ("episodic", "semantic", "procedural")
        return {t: len(call(running, "list", tier=t, without=model)["entries"]) for t in tiers}

    def due(running: Any) -> set[str]:
        return {told["tier"] for told in call(running, "describe")["embeddings"].get("reembed", [])}

    _Endpoint.gate = gate = threading.Semaphore(6)
    with launch(tmp_path, **settings(endpoint, "small")) as running:
        for at in range(0, FACTS, 100):
            records = [{"id": f"e{n}", "content": f"fact {n} of rivers"} for n in range(at, at + 100)]
            call(running, "remember", records=[{**record, "tier": "episodic"} for record in records])
        skills = [{"id": f"p{n}", "content": f"skill {n}", "key": f"skills/{n}"} for n in range(SKILLS)]
        call(running, "remember", records=[{**skill, "tier": "procedural"} for skill in skills])
        call(running, "remember", records=[{"id": "s", "content": "a fact of fire", "tier": "semantic"}])
        none = {"episodic": 0, "semantic": 0, "procedural": 0}
        # Found in the background, though the router dies while it is at it.
        poll("some vectors", lambda: 0 < lacking(running, "")["episodic"] < FACTS)
        running.kill("router")
        gate.release(OPEN)
        poll("vectors of all", lambda: lacking(running, "") == none, 60.0)
        poll("the router", running.serves, 60.0)
        before = {r["id"]: r for r in call(running, "timeline")["records"]}
        assert call(running, "describe")["embeddings"]["dimensions"] == WIDTHS["small"]

    with launch(tmp_path, **settings(endpoint, "wide")) as running:
        assert lacking(running, "wide") == {"episodic": FACTS, "semantic": 1, "procedural": SKILLS}
        poll("that it is due", lambda: due(running) == none.keys())
        status = [sys.executable, "-m", "a2m_cli", "status", "--url", running.url]
        shown = subprocess.run(status, capture_output=True, text=True, timeout=60, check=True).stdout
        assert f"episodic ({FACTS} records): " in shown
        command = [sys.executable, "-m", "a2m_cli", "reembed", "--url", running.url]
        _Endpoint.gate = gate = threading.Semaphore(8)
        first = subprocess.Popen([*command, "--tier", "episodic"], stdout=subprocess.PIPE)
        poll("the half of it", lambda: lacking(running, "wide")["episodic"] < FACTS // 2)
        first.kill()
        first.communicate()
        running.kill("router")
        gate.release(OPEN)
        left = lacking(running, "wide")
        assert 0 < left["episodic"] < FACTS
        assert left["semantic"] == 1
        found = call(running, "recall", tier="episodic", query="rivers")["records"]
        assert found, "the tier serves all the while"
        poll("the router", running.serves, 60.0)
        said = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=True)
        assert json.loads(said.stdout)["model"] == "wide"
        assert lacking(running, "wide") == none
        poll("that nothing is due", lambda: not due(running))
        described = call(running, "describe")["embeddings"]
        assert (described["dimensions"], described["model"]) == (WIDTHS["wide"], "wide")
        after = {r["id"]: r for r in call(running, "timeline")["records"]}
        kept = ("content", "created_at", "seq", "tier", "key", "revision", "salience")
        assert {i: {k: r.get(k) for k in kept} for i, r in after.items()} == {
            i: {k: r.get(k) for k in kept} for i, r in before.items()
        }
        held = call(running, "read", tier="semantic", ids=["s"])["records"]
        assert [(r["embedding_model"], len(r["embedding"])) for r in held] == [("wide", WIDTHS["wide"])]
        near = call(running, "recall", query="fire", limit=3)["records"]
        assert near[0]["id"] == "s"
