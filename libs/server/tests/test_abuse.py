"""Requests that no honest client sends, over raw sockets; what became of them is printed."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from a2m_server.dispatch import Dispatcher
from a2m_server.identity import Role
from a2m_server.memory import MemoryTier
from a2m_server.principals import Principal, make_token
from a2m_server.register import editing

CALL = b'{"jsonrpc":"2.0","id":1,"method":"memory/echo"}'


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A file of principals, and a token of an agent and of a reader."""
    path, made = tmp_path / "principals.json", dict[str, str]()
    with editing(path) as edit:
        for role in (Role.AGENT, Role.READER):
            made[role], token = make_token(time.time_ns() // 1_000_000)
            edit.principals = edit.principals.with_(Principal(name=role, roles=(role,), tokens=(token,)))
    return path, made


def raw(body: bytes, *lines: str, version: str = "1.1", length: bool = True) -> bytes:
    said = [f"POST / HTTP/{version}", "Host: localhost", "Content-Type: application/json", *lines]
    if length:
        said.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*said, "", ""]).encode("latin-1") + body


def answers(port: int, data: bytes, seconds: float = 5.0) -> list[tuple[int, Any]]:
    """Every answer to some bytes, until the server hangs up or says nothing for a while."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65_536):
                got += chunk
    found: list[tuple[int, Any]] = []
    while got:
        head, end, got = got.partition(b"\r\n\r\n")
        assert end, head
        named = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        length = int(named.get(b"content-length", len(got)))
        body, got = got[:length], got[length:]
        told = json.loads(body) if named.get(b"content-type") == b"application/json" else body
        found.append((int(head.split()[1]), told))
    return found


def roles(told: Any) -> list[str]:
    return told["result"]["roles"]


def test_of_requests_in_one_connection_none_inherits_the_credential_of_another(
    serve: Any, tokens: tuple[Path, dict[str, str]]
) -> None:
    path, made = tokens
    agent, reader = (raw(CALL, f"Authorization: Bearer {made[role]}") for role in ("agent", "reader"))
    with serve(principals_file=path) as served:
        got = answers(served.port, agent + reader + agent + raw(CALL) + reader)
        assert [(status, roles(told)) for status, told in got[:3]] == [
            (200, ["agent"]),
            (200, ["reader"]),
            (200, ["agent"]),
        ]
        assert got[3][0] == 401
        # What came after a refusal is answered for itself or not at all.
        assert [roles(told) for status, told in got[4:] if status == 200] in ([], [["reader"]])
        print(f"pipelined as agent, reader, agent, nobody, reader: {[status for status, _ in got]}")


def test_more_than_one_credential_is_none(serve: Any, tokens: tuple[Path, dict[str, str]]) -> None:
    path, made = tokens
    agent, reader = made["agent"], made["reader"]
    with serve(principals_file=path) as served:
        for lines in (
            (f"Authorization: Bearer {agent}", f"Authorization: Bearer {reader}"),
            (f"Authorization: Bearer {agent}", f"Authorization: Bearer {agent}"),
            (f"Authorization: Bearer {agent}", "Authorization:"),
            (f"Authorization: Bearer {agent}, Bearer {reader}",),
            (f"Authorization: Bearer {agent} {reader}",),
            (f"Authorization: Bearer\t{agent}",),
            (f"Authorization: {agent}",),
            (f"X-Forwarded-Authorization: Bearer {agent}",),
            (f"Authorization: Bearer {agent}\x00",),
            ("Authorization: Bearer " + "x" * 8_000,),
            ("Authorization: Bearer " + "x" * 200_000,),
            ("Authorization: Bearer " + ".".join(["e30"] * 5_000),),
        ):
            [(status, told)] = answers(served.port, raw(CALL, *lines))
            assert status in (400, 401, 431), lines
            assert agent not in json.dumps(str(told))
            print(f"{len(lines)} credentials of {max(map(len, lines))} characters: {status}")
        assert served.handler.seen == []


SMUGGLED = raw(b'{"jsonrpc":"2.0","id":2,"method":"memory/smuggled"}')
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(CALL), CALL)
FRAMES = {
    "chunked and a length": raw(
        CHUNKED + SMUGGLED, "Transfer-Encoding: chunked", f"Content-Length: {len(CHUNKED)}", length=False
    ),
    "chunked and a length of zero": raw(
        CHUNKED, "Content-Length: 0", "Transfer-Encoding: chunked", length=False
    ),
    "two lengths": raw(CALL + SMUGGLED, f"Content-Length: {len(CALL)}", "Content-Length: 0", length=False),
    "a list of lengths": raw(CALL + SMUGGLED, f"Content-Length: {len(CALL)}, 5", length=False),
    "a signed length": raw(CALL, f"Content-Length: +{len(CALL)}", length=False),
    "a negative length": raw(CALL, "Content-Length: -1", length=False),
    "an endless length": raw(CALL, "Content-Length: " + "9" * 40, length=False),
    "chunked twice": raw(CHUNKED, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", length=False),
    "chunked, then not": raw(CHUNKED, "Transfer-Encoding: chunked, identity", length=False),
    "chunked by another name": raw(CHUNKED, "Transfer-Encoding: xchunked", length=False),
    "a blank before the colon": raw(CALL, f"Content-Length : {len(CALL)}", length=False),
    "a chunk of no size": raw(
        b"zz\r\n" + CALL + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=False
    ),
    "a chunk too large": raw(
        b"f" * 20 + b"\r\n" + CALL + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=False
    ),
    "a bare CR": raw(CALL, "X-A: a\rX-B: b"),
    "a NUL": raw(CALL, "X-A: a\x00b"),
    "a header without a name": raw(CALL, ": b"),
    "a header without a colon": raw(CALL, "X-A"),
    "two hosts": raw(CALL, "Host: localhost"),
    "a foreign second host": raw(CALL, "Host: evil.example"),
    "no host": raw(CALL).replace(b"Host: localhost\r\n", b""),
    "a folded host": raw(CALL).replace(b"Host: localhost", b"Host: localhost\r\n .evil.example"),
    "an absolute target": raw(CALL)
    .replace(b"POST / ", b"POST http://evil.example/ ")
    .replace(b"Host: localhost", b"Host: evil.example"),
    "a blank in the target": raw(CALL).replace(b"POST / ", b"POST / / "),
    "HTTP/0.9": b"POST /\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
    "ten thousand headers": raw(CALL, *(f"X-{n}: {n}" for n in range(10_000))),
    "a rebound name": raw(CALL).replace(b"Host: localhost", b"Host: rebound.example"),
    "a foreign page": raw(CALL, "Origin: https://evil.example"),
}
"""Framings and names that two servers may read differently, by what is wrong with them."""


@pytest.mark.parametrize("what", FRAMES)
def test_what_can_be_read_in_two_ways_is_refused(serve: Any, what: str) -> None:
    with serve(header_timeout=2, body_timeout=2) as served:
        got = answers(served.port, FRAMES[what])
        methods = [message["method"] for message in served.handler.seen if isinstance(message, dict)]
        print(f"{what}: {[status for status, _ in got] or 'hung up'}, handled {methods}")
        assert all(400 <= status < 500 for status, _ in got), got
        assert methods == []
        assert served.call("memory/echo")["result"]


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("obs-fold", raw(CALL, "X-A: a\r\n b")),
        ("bare LF", raw(CALL, "X-A: a").replace(b"\r\n\r\n", b"\n\n", 1)),
        ("a line before", b"\r\n" + raw(CALL)),
    ],
)
def test_what_can_be_read_in_one_way_alone_is_read_once(serve: Any, what: str, data: bytes) -> None:
    with serve() as served:
        got = answers(served.port, data)
        print(f"{what}: {[status for status, _ in got]}, handled {len(served.handler.seen)}")
        assert [status for status, _ in got] in ([200], [400])
        assert len(served.handler.seen) == [status for status, _ in got].count(200)


def test_http_1_0_is_answered_once_and_hung_up_on(serve: Any, tokens: tuple[Path, dict[str, str]]) -> None:
    path, made = tokens
    with serve(principals_file=path) as served:
        with_token = raw(CALL, f"Authorization: Bearer {made['agent']}", version="1.0")
        got = answers(served.port, with_token + raw(CALL, version="1.0") + with_token)
        assert [status for status, _ in got] == [200]
        assert [status for status, _ in answers(served.port, raw(CALL, version="1.0"))] == [401]


def test_ten_million_entries_within_the_cap_are_refused_and_let_go(
    serve: Any, tokens: tuple[Path, dict[str, str]]
) -> None:
    path, made = tokens
    count = 10_000_000
    bodies = {
        "numbers": b'{"jsonrpc":"2.0","id":1,"method":"memory/forget","params":{"ids":['
        + b"0," * count
        + b"0]}}",
        "a batch": b"[" + b"1," * count + b"1]",
        "records": b'{"jsonrpc":"2.0","id":1,"method":"memory/remember","params":{"records":['
        + b"{}," * count
        + b"{}]}}",
    }
    with serve(Dispatcher(MemoryTier()), principals_file=path) as served:
        named = {"Authorization": f"Bearer {made['agent']}"}
        before = psutil.Process().memory_info().rss
        for what, body in bodies.items():
            begun = time.monotonic()
            response = served.post(body, **named)
            took = time.monotonic() - begun
            print(
                f"{count} entries as {what}, {len(body) / 1e6:.0f} MB: {response.status_code} in {took:.2f} s"
            )
            assert response.status_code == 200
            assert response.json()["error"]["code"] in (-32600, -32602)
            assert took < 20
        grown = psutil.Process().memory_info().rss - before
        print(f"memory after: {grown / 1e6:+.0f} MB")


def waits(served: Any, token: str, seconds: float) -> list[float]:
    """How long calls of another caller take, one after another, in milliseconds."""
    taken: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.perf_counter()
        assert served.post(CALL, Authorization=f"Bearer {token}").status_code == 200
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken


@contextlib.contextmanager
def slow(port: int, count: int, begun: bytes, drop: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent the beginning of a request, and go on a byte at a time."""
    connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.2):
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.send(drop)

    for connection in connections:
        connection.sendall(begun)
    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield connections
    finally:
        over.set()
        thread.join()
        for connection in connections:
            connection.close()


def test_slow_clients_keep_nobody_waiting(serve: Any, tokens: tuple[Path, dict[str, str]]) -> None:
    path, made = tokens
    count, named = 300, f"Authorization: Bearer {made['agent']}"
    head = raw(b"", named)
    kinds = {
        "no request at all": (b"", b""),
        "slow heads": (head[:40], b"x"),
        "slow bodies": (raw(b"", named, "Content-Length: 100000", length=False) + b"{", b" "),
        "bodies without a credential": (raw(b"", "Content-Length: 100000", length=False) + b"{", b" "),
        "slow chunks": (raw(b"", named, "Transfer-Encoding: chunked", length=False), b"1\r\n \r\n"),
    }
    with serve(
        principals_file=path, keep_alive=60, header_timeout=60, body_timeout=60, shutdown_timeout=0
    ) as served:
        alone = statistics.median(waits(served, made["agent"], 0.5))
        for what, (begun, drop) in kinds.items():
            with slow(served.port, count, begun, drop):
                taken = sorted(waits(served, made["agent"], 1.0))
                p50, p99 = statistics.median(taken), taken[int(len(taken) * 0.99)]
                print(
                    f"beside {count} {what}: {len(taken)} calls, p50 {p50:.1f} ms, p99 {p99:.1f} ms "
                    f"(alone {alone:.1f} ms)"
                )
                assert p50 < 20 * alone + 20
                assert p99 < 1_000


def test_slow_clients_are_given_up_in_time(serve: Any, tokens: tuple[Path, dict[str, str]]) -> None:
    path, made = tokens
    named = f"Authorization: Bearer {made['agent']}"
    with serve(principals_file=path, header_timeout=1, body_timeout=1) as served:
        for begun, drop in (
            (raw(b"", named)[:40], b"x"),
            (raw(b"", named, "Content-Length: 100000", length=False) + b"{", b" "),
            (raw(b"", named, "Transfer-Encoding: chunked", length=False), b"1\r\n \r\n"),
        ):
            with slow(served.port, 20, begun, drop) as connections:
                at = time.monotonic()
                for connection in connections:
                    with contextlib.suppress(ConnectionResetError):
                        while connection.recv(65_536):
                            pass
                print(f"20 slow connections were ended after {time.monotonic() - at:.2f} s")
                assert time.monotonic() - at < 8
