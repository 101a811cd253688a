"""Whatever bytes come in over HTTP, an answer comes out soon: of a process with principals."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from a2m_server.identity import Role
from a2m_server.principals import Principal, make_token
from a2m_server.register import editing


def _beside(name: str) -> Any:
    """Another test module, whose strategies serve here too."""
    path = Path(__file__).parent / "dispatcher" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"of_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CALLS: st.SearchStrategy[Any] = _beside("test_fuzz").CALLS
BATCH = 25
SOON = 5.0
"""Seconds for any answer."""
GROWTH = 24_000_000
"""Bytes by which the second half of the requests may raise the server's memory."""
ROLES = (Role.AGENT, Role.READER, Role.CURATOR, Role.OPERATOR)
CHUNK = 65_536


@dataclass
class Target:
    """The server, its tokens, and one connection that is opened anew whenever it was closed."""

    port: int
    process: psutil.Process
    tokens: list[str]
    log: Path
    statuses: Counter[int] = field(default_factory=Counter[int])
    slowest: float = 0.0
    connection: socket.socket | None = None

    def send(self, raw: bytes, *, whole: bool) -> tuple[int, bytes]:
        """The status (0 where it hung up without a word) and body; a request that is not whole is ended."""
        begun = time.monotonic()
        for attempt in (0, 1):
            fresh = self.connection is None
            answer = self._once(raw, whole)
            # A connection that the server was about to close says nothing about this request.
            if answer[0] or fresh or attempt:
                break
        took = time.monotonic() - begun
        self.slowest = max(self.slowest, took)
        self.statuses[answer[0]] += 1
        assert took < SOON, raw[:500]
        return answer

    def _once(self, raw: bytes, whole: bool) -> tuple[int, bytes]:
        connection = self.connection or socket.create_connection(("127.0.0.1", self.port), timeout=2 * SOON)
        self.connection = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(raw)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
            status, body, last = _response(connection)
        except (ConnectionError, BrokenPipeError):
            status, body, last = 0, b"", True
        if last or not whole:
            self.close()
        return status, body

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def forget_all(self) -> None:
        """What was written by chance goes, so that memory is what the requests themselves left."""
        body = b'{"jsonrpc":"2.0","id":1,"method":"memory/forget","params":{"where":{"id":{"exists":true}}}}'
        status, _ = self.send(request(body, {"Authorization": f"Bearer {self.tokens[-1]}"}), whole=True)
        assert status == 200

    @property
    def memory(self) -> int:
        return self.process.memory_info().rss


def _response(connection: socket.socket, got: bytes = b"") -> tuple[int, bytes, bool]:
    while b"\r\n\r\n" not in got:
        chunk = connection.recv(CHUNK)
        if not chunk:
            return 0, got, True
        got += chunk
    head, _, body = got.partition(b"\r\n\r\n")
    if head.split()[1] == b"100":
        return _response(connection, body)
    lowered = head.lower()
    length = re.search(rb"content-length: *(\d+)", lowered)
    while length is None or len(body) < int(length[1]):
        chunk = connection.recv(CHUNK)
        if not chunk:
            return int(head.split()[1]), body, True
        body += chunk
    return int(head.split()[1]), body, b"connection: close" in lowered


def request(body: bytes, headers: dict[str, str], method: str = "POST", path: str = "/") -> bytes:
    given = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    } | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    tokens: list[str] = []
    with editing(folder / "principals.json") as edit:
        for role in ROLES:
            text, token = make_token(time.time_ns() // 1_000_000)
            tokens.append(text)
            edit.principals = edit.principals.with_(Principal(name=role, roles=(role,), tokens=(token,)))
    log = folder / "log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("A2M_")}
    environment |= {
        "A2M_SERVER_BODY_TIMEOUT": "1",
        "A2M_SERVER_KEEP_ALIVE": "2",
        "A2M_SERVER_MAX_BODY": "65536",
    }
    command = [sys.executable, "-m", "a2m_server", "--port", "0"]
    command += ["--principals-file", str(folder / "principals.json")]
    with log.open("wb") as out, subprocess.Popen(command, stderr=out, stdout=out, env=environment) as process:
        try:
            deadline = time.monotonic() + 60
            while (found := re.search(r"serving on http://127.0.0.1:(\d+)", log.read_text())) is None:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)
            made = Target(int(found[1]), psutil.Process(process.pid), tokens, log)
            yield made
            made.close()
            assert process.poll() is None
        finally:
            process.kill()


TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF), max_size=20)
NAMES = st.sampled_from(
    [
        "Authorization",
        "Content-Type",
        "Content-Encoding",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "Host",
        "Origin",
        "A2M-Protocol-Version",
        "User-Agent",
        "X-Forwarded-For",
        "Upgrade",
        "Cookie",
        "Range",
    ]
)
VALUES = TEXT | st.sampled_from(
    [
        *("", "Bearer", "Bearer ", "Bearer a2m_00000000_x", "gzip", "chunked", "close", "100-continue", "0"),
        *("-1", "application/json", "text/html", "application/json; charset=utf-16", "a2m/0.1", "a2m/9"),
        *("h2c", "null"),
    ]
)
PATHS = st.sampled_from(
    [
        "/",
        "/metrics",
        "/healthz",
        "/readyz",
        "/.well-known/a2m-server.json",
        "/docs",
        "//",
        "/..",
        "/%00",
        "*",
    ]
)
VERBS = st.sampled_from(["POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "A"])
NUMBERS = st.none() | st.integers() | st.text(max_size=3) | st.just([])


def _message(call: Any, number: Any, extra: Any) -> bytes:
    """A request as a client sends it, or one that has been bent."""
    fields = {"jsonrpc": "2.0", "id": number, "method": call[0], "params": call[1]}
    return json.dumps({**fields, **extra}).encode()


BENT = st.just({}) | st.dictionaries(
    st.sampled_from(["jsonrpc", "method", "params", "id"]),
    st.none() | st.integers() | TEXT | st.lists(TEXT),
    max_size=2,
)
BODIES = (
    st.builds(_message, CALLS, st.integers(), st.just({}))
    | st.builds(_message, CALLS, NUMBERS, BENT)
    | st.binary(max_size=200)
    | st.builds(lambda body, at: body[:at], st.builds(_message, CALLS, NUMBERS, BENT), st.integers(0, 80))
    | st.builds(
        lambda text, count: text * count,
        st.sampled_from([b"[", b'{"a":', b"[[],", b"9"]),
        st.integers(1, 9_000),
    )
)


def _seldom(strategy: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([False] * 11 + [True]).flatmap(lambda odd: strategy if odd else st.just(otherwise))


REQUESTS = st.tuples(
    BODIES,
    st.sampled_from([-1, *range(len(ROLES)), len(ROLES) - 1]),
    _seldom(st.dictionaries(NAMES, VALUES, max_size=2), {}),
    _seldom(VERBS, "POST"),
    _seldom(PATHS, "/"),
    _seldom(st.binary(min_size=1, max_size=60), None),
)


def check(target: Target, made: Any) -> None:
    body, who, headers, method, path, garbage = made
    if who >= 0:
        headers = {"Authorization": f"Bearer {target.tokens[who]}", **headers}
    raw = request(body, headers, method, path)
    framed = not {"Content-Length", "Transfer-Encoding", "Expect", "Upgrade", "Connection"} & headers.keys()
    if garbage is not None:
        raw = garbage + raw
    status, answer = target.send(raw, whole=framed and garbage is None and method not in ("HEAD", "CONNECT"))
    assert status < 500, (made, answer)
    assert b"Traceback" not in answer
    assert b'File "' not in answer
    if status == 200 and path == "/":
        told = json.loads(answer)
        if "error" in told:
            assert told["error"]["code"] != -32603, (made, answer)


def fuzz(target: Target, count: int) -> str:
    """Send `count` requests made up by chance; returns the figures."""
    sent, begun, memory = 0, time.monotonic(), [target.memory]

    @settings(
        max_examples=count // BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(REQUESTS, min_size=BATCH, max_size=BATCH))
    def run(batch: Any) -> None:
        nonlocal sent
        for made in batch:
            check(target, made)
        sent += len(batch)
        if sent % (count // 10) < BATCH:
            target.forget_all()
            memory.append(target.memory)

    run()
    half = memory[len(memory) // 2]
    assert memory[-1] - half < GROWTH, memory
    log = target.log.read_text(errors="replace")
    assert "Traceback" not in log, log[-3_000:]
    told = ", ".join(f"{status or 'hung up'}: {n}" for status, n in sorted(target.statuses.items()))
    return (
        f"{sent} requests in {time.monotonic() - begun:.0f} s ({told}), "
        f"slowest {target.slowest * 1e3:.0f} ms, memory {', '.join(f'{m / 1e6:.1f}' for m in memory)} MB"
    )


def test_any_bytes_are_answered_soon_and_with_nothing_of_the_inside(target: Target) -> None:
    print(fuzz(target, 1_500))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_twenty_thousand_requests_made_up_by_chance(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = fuzz(target, 20_000)
    with capsys.disabled():
        print(f"\nfuzzed: {figures}")
