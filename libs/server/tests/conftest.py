"""A handler with known behaviour, served over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, Code, JsonObject, unavailable
from a2m_server.http import serve_handler
from a2m_server.identity import Peer
from a2m_server.listen import Server, bind, url_of
from a2m_server.settings import ServerSettings


class Echo:
    """Answers with what it was sent; some methods misbehave on purpose."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.seen: list[Any] = []
        self.down = False
        self.cancelled = 0
        self.problem: A2MError | None = None

    async def open(self) -> None:
        self.opened += 1
        if self.problem is not None:
            raise self.problem

    async def close(self) -> None:
        self.closed += 1

    async def ready(self) -> None:
        if self.down:
            raise unavailable("the database", "it was switched off")

    async def describe(self, peer: Peer) -> JsonObject:
        return {"protocol": "a2m/0.1", "trusted": peer.caller.trusted}

    async def handle(self, message: object, peer: Peer) -> JsonObject | None:
        self.seen.append(message)
        if not isinstance(message, dict):
            raise A2MError(Code.INVALID_REQUEST, "not an object")
        params = message.get("params") or {}
        match message.get("method"):
            case "memory/crash":
                raise RuntimeError("a secret of the inside")
            case "memory/surrogate":
                raise A2MError(Code.INVALID_PARAMS, "bad text \ud800")
            case "memory/slow":
                if peer.push:
                    peer.notify(jsonrpc.notification("memory/event", {"started": True}))
                try:
                    await asyncio.sleep(params.get("seconds", 60))
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            case "memory/print":
                print("a stray print")
                os.system("echo a stray child")  # noqa: ASYNC221 a server of one client
            case "memory/push":
                for number in range(params["count"]):
                    peer.notify(jsonrpc.notification("memory/event", {"number": number}))
            case "memory/later":
                loop = asyncio.get_running_loop()
                event = jsonrpc.notification("memory/event", {"number": -1})
                loop.call_later(0.05, peer.notify, event)
            case _:
                pass
        if "id" not in message:
            return None
        roles: Any = sorted(peer.caller.roles)
        result: JsonObject = {"params": params, "trusted": peer.caller.trusted, "roles": roles}
        return jsonrpc.success(message["id"], result)


class Served:
    """A server in a thread of its own."""

    def __init__(self, handler: Echo, url: str, port: int) -> None:
        self.handler = handler
        self.url = url
        self.port = port
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=20)
        self.stop: Callable[[], None] = lambda: None

    def post(self, body: object, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else jsonrpc.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/", content=content, headers={"Content-Type": "application/json"} | named)

    def call(self, method: str, params: JsonObject | None = None, **headers: str) -> Any:
        response = self.post(jsonrpc.request(1, method, params or {}), **headers)
        assert response.status_code == 200, response.text
        return response.json()

    def raw(self, data: bytes, *, finish: bool = False) -> bytes:
        """What comes back for bytes sent as they are, until the server closes or nothing more comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(data)
            if finish:
                connection.shutdown(socket.SHUT_WR)
            return read_response(connection)


def read_response(connection: socket.socket) -> bytes:
    """One response with a Content-Length, or all until the connection closes."""
    got = b""
    while True:
        head, end, rest = got.partition(b"\r\n\r\n")
        if end:
            lengths = [
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ]
            if len(rest) >= (lengths[0] if lengths else 0):
                return got
        chunk = connection.recv(65_536)
        if not chunk:
            return got
        got += chunk


Serve = Callable[..., contextlib.AbstractContextManager[Served]]


@contextlib.contextmanager
def serving(handler: Echo | None = None, **given: Any) -> Iterator[Served]:
    handler = handler or Echo()
    settings = ServerSettings(port=0, **given)
    with bind(settings) as listener:
        served = Served(handler, url_of(listener), listener.getsockname()[1])
        server = Server(serve_handler(handler, settings), settings)
        served.stop = lambda: server.handle_exit(signal.SIGTERM, None)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            yield served
        finally:
            server.should_exit = True
            thread.join(60)
            served.client.close()
            assert not thread.is_alive()


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def serve() -> Serve:
    """Start a server with settings of one's own: `with serve(max_body=2048) as served`."""
    return serving


@pytest.fixture
def eventually() -> Callable[..., None]:
    return wait_until


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server with the default settings."""
    with serving() as server:
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first-token\n")
    return path


@pytest.fixture
def python() -> str:
    return sys.executable
