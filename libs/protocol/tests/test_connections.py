"""What happens to connections between calls and around failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from a2m_protocol.connections import Address, Connections, ExchangeError

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def served(serve: Serve, most: int = 10, connect: float = 5.0) -> AsyncIterator[Connections]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    address = Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    connections = Connections(address, most, connect)
    try:
        yield connections
    finally:
        await connections.close()
        server.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    opened = 0
    closed = asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await request(reader)
        writer.write(OK)
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with served(once) as connections:
        for _ in range(20):
            closed.clear()
            assert (await connections.post([], b"x", 5)).body == b"ok"
            await closed.wait()
    assert opened == 20


async def test_an_answer_that_asks_to_close_ends_the_connection() -> None:
    opened = 0

    async def last(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while True:
            await request(reader)
            writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    async with served(last) as connections:
        for _ in range(3):
            await connections.post([], b"x", 5)
    assert opened == 3


async def test_a_chunked_answer_and_one_that_ends_with_the_connection_are_read_whole() -> None:
    answers = iter(
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.0 200 OK\r\n\r\nabc",
        ]
    )

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(next(answers))

    async with served(one) as connections:
        for _ in range(3):
            assert (await connections.post([], b"x", 5)).body == b"abc"


async def test_no_more_connections_are_made_than_allowed_and_who_waits_for_one_has_sent_nothing() -> None:
    opened = 0
    received = asyncio.Semaphore(0)
    go = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while True:
            await request(reader)
            received.release()
            await go.wait()
            writer.write(OK)

    async with served(wait, most=2) as connections:
        busy = [asyncio.create_task(connections.post([], b"x", 10)) for _ in range(2)]
        for _ in busy:
            await received.acquire()
        with pytest.raises(ExchangeError, match="no answer within") as caught:
            await connections.post([], b"x", 0.2)
        assert not caught.value.sent
        go.set()
        await asyncio.gather(*busy)
        await asyncio.gather(*(connections.post([], b"x", 10) for _ in range(20)))
    assert opened == 2


async def test_an_answer_that_comes_before_the_body_was_sent_is_the_answer() -> None:
    stop = asyncio.Event()

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await stop.wait()

    async with served(early) as connections:
        answer = await connections.post([], b"x" * 50_000_000, 10)
        assert (answer.status, answer.reason) == (413, "Too Large")
        stop.set()


async def test_a_cancelled_call_leaves_no_answer_for_the_next() -> None:
    received = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            body = await request(reader)
            if body == b"slow":
                received.set()
                await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)

    async with served(echo, most=1) as connections:
        task = asyncio.create_task(connections.post([], b"slow", 10))
        await received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await connections.post([], b"next", 10)).body == b"next"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 100_000,
    ],
    ids=["nothing", "no-http", "bad-length", "long-head"],
)
async def test_what_is_no_http_is_an_error_of_a_request_that_was_sent(answer: bytes) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(answer)

    async with served(say) as connections:
        with pytest.raises(ExchangeError) as caught:
            await connections.post([], b"x", 10)
    assert caught.value.sent
    assert str(caught.value)


async def test_a_host_that_does_not_exist_has_been_sent_nothing() -> None:
    connections = Connections(Address.of("http://no-such-host.invalid"), 1, 5)
    with pytest.raises(ExchangeError) as caught:
        await connections.post([], b"x", 10)
    assert not caught.value.sent


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "header"),
    [
        ("http://localhost:8778", "localhost", 8778, b"/", b"localhost:8778"),
        ("https://memory.example/a2m?x=1", "memory.example", 443, b"/a2m?x=1", b"memory.example"),
        ("http://[::1]:80/", "::1", 80, b"/", b"[::1]:80"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, target: bytes, header: bytes) -> None:
    address = Address.of(url)
    assert (address.host, address.port, address.target, address.header) == (host, port, target, header)
    assert address.secure is url.startswith("https")


@pytest.mark.parametrize(
    "url", ["", "localhost:8778", "ftp://a", "http://", "http://u:p@a/", "http://a:99999", "http://a/é"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Address.of(url)
