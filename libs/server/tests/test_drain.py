"""What a server that was asked to end still does, and for how long."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

CALL = b'{"jsonrpc":"2.0","id":1,"method":"memory/describe"}'
JSON = {"Content-Type": "application/json"}


@contextmanager
def started(drain: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of its own process, and where it is."""
    environment = {**os.environ, "A2M_SERVER_DRAIN_SECONDS": str(drain)}
    command = [sys.executable, "-m", "a2m_server", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            yield process, next(line for line in process.stderr if "serving on" in line).split()[-1]
        finally:
            process.kill()


def is_draining(url: str) -> bool:
    answer = httpx.get(f"{url}/readyz", trust_env=False)
    return answer.status_code == 503 and answer.json()["status"] == "draining"


def test_a_drain_says_not_ready_and_serves_all_who_come_once_more(eventually: Callable[..., None]) -> None:
    with started(60) as (process, url), httpx.Client(base_url=url, trust_env=False) as client:
        before = client.post("/", content=CALL, headers=JSON)
        assert "connection" not in before.headers
        process.send_signal(signal.SIGTERM)
        eventually(lambda: is_draining(url))
        # On a connection that was kept, and on one made meanwhile.
        for caller in (client, httpx):
            answer = caller.post(url, content=CALL, headers=JSON)
            assert answer.json()["result"]["protocol"] == "a2m/0.1"
            assert answer.headers["connection"] == "close"
        assert client.get("/healthz").status_code == 200
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_drain_ends_by_itself() -> None:
    with started(0.5) as (process, url):
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - begun >= 0.5
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)


def test_a_person_who_interrupts_does_not_wait_for_a_drain() -> None:
    with started(60) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_an_answer_under_way_when_the_drain_begins_closes_its_connection(
    serve: Any, eventually: Callable[..., None]
) -> None:
    with serve(drain_seconds=0.5) as served, socket.create_connection(("127.0.0.1", served.port)) as talk:
        body = b'{"jsonrpc":"2.0","id":1,"method":"memory/slow","params":{"seconds":0.7}}'
        lines = ("POST / HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
        talk.sendall(head.encode() + body)
        eventually(lambda: bool(served.handler.seen))
        served.stop()
        talk.settimeout(20)
        got = b""
        while chunk := talk.recv(65_536):
            got += chunk
        assert got.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in got.lower()
        assert b'"seconds":0.7' in got
