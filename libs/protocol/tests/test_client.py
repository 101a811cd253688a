"""The client against HTTP servers that misbehave, each written for its test, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from a2m_protocol import jsonrpc
from a2m_protocol.client import UNSET, Client, HttpTransport, LocalTransport
from a2m_protocol.errors import A2MError, TransportError

Answer = Callable[[dict[str, Any], dict[str, str]], Awaitable[bytes | None]]


def http(body: object, status: str = "200 OK", **headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Content-Length": str(len(data))} | {k.replace("_", "-"): v for k, v in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


def result(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": fields}


class Stub:
    """A server that answers each request as it is told; None closes the connection without a word."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                message = json.loads(body)
                self.requests.append(message)
                answer = await self.answer(message, headers)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def stub(answer: Answer) -> AsyncIterator[Stub]:
    it = Stub(answer)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()


def saying(body: Any, status: str = "200 OK", **headers: str) -> Answer:
    async def answer(message: dict[str, Any], _: dict[str, str]) -> bytes:
        return http(body(message) if callable(body) else body, status, **headers)

    return answer


async def failure(answer: Answer, **options: Any) -> A2MError:
    """How a call to a server that answers like this fails, at once unless retries are asked for."""
    async with stub(answer) as server, Client.http(server.url, **({"retries": 0} | options)) as client:
        with pytest.raises(A2MError) as caught:
            await client.describe()
        return caught.value


async def test_a_call_sends_its_params_and_returns_the_result() -> None:
    async with (
        stub(saying(lambda m: result(m, got=m["params"], method=m["method"]))) as server,
        Client.http(server.url) as client,
    ):
        assert await client.call("memory/recall", {"query": "é"}) == {
            "got": {"query": "é"},
            "method": "memory/recall",
        }


async def test_calls_share_one_connection() -> None:
    async with stub(saying(lambda m: result(m))) as server, Client.http(server.url) as client:
        for _ in range(5):
            await client.describe()
        assert server.connections == 1
        assert [message["id"] for message in server.requests] == [1, 2, 3, 4, 5]


async def test_an_error_is_raised_with_its_code_message_and_data() -> None:
    error = {"code": -32602, "message": "no", "data": {"a": 1}}
    caught = await failure(saying(lambda m: {"jsonrpc": "2.0", "id": m["id"], "error": error}))
    assert not isinstance(caught, TransportError)
    assert (caught.code, caught.message, caught.data) == (-32602, "no", {"a": 1})


async def test_data_of_an_error_that_is_no_object_is_kept() -> None:
    error = {"code": 5, "message": "no", "data": [1]}
    caught = await failure(saying(lambda m: {"jsonrpc": "2.0", "id": m["id"], "error": error}))
    assert (caught.code, caught.data) == (5, {"detail": [1]})


async def test_an_error_without_an_id_is_an_error_of_the_call() -> None:
    caught = await failure(
        saying({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what"}})
    )
    assert caught.code == -32700


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"jsonrpc":"2.0","id":2,"result":{}}',
        b'{"jsonrpc":"2.0","id":"1","result":{}}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.0,"result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"error":"no"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"no"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        b"[" * 100_000,
    ],
    ids=range(19),
)
async def test_garbage_for_an_answer_is_a_transport_error(body: bytes) -> None:
    caught = await failure(saying(body))
    assert isinstance(caught, TransportError)
    assert caught.code == -32603
    assert caught.maybe_received
    assert caught.retryable


@pytest.mark.parametrize(
    ("status", "received", "retryable"),
    [
        ("500 Oops", True, True),
        ("503 Busy", True, True),
        ("429 Slow", False, True),
        ("401 Who", False, False),
        ("413 Large", False, False),
        ("404 Where", False, False),
        ("302 There", False, False),
        ("202 Accepted", False, False),
    ],
)
async def test_another_status_says_whether_the_request_was_received(
    status: str, received: bool, retryable: bool
) -> None:
    caught = await failure(saying({"error": "because"}, status, Location="http://127.0.0.1:9/"))
    assert isinstance(caught, TransportError)
    assert (caught.maybe_received, caught.retryable) == (received, retryable)
    assert status.partition(" ")[0] in caught.message
    assert "because" in caught.message


async def test_a_json_rpc_error_under_another_status_is_that_error() -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32007, "message": "old"}}
    assert (await failure(saying(error, "400 Bad"))).code == -32007


async def test_a_refused_connection_was_certainly_not_received() -> None:
    async with stub(saying(b"")) as server:
        url = server.url
    async with Client.http(url, retries=0) as client:
        with pytest.raises(TransportError) as caught:
            await client.describe()
    assert not caught.value.maybe_received
    assert caught.value.retryable


async def hang(_: dict[str, Any], __: dict[str, str]) -> bytes | None:
    return None


async def test_a_connection_that_closes_without_an_answer_may_have_been_received() -> None:
    caught = await failure(hang)
    assert isinstance(caught, TransportError)
    assert caught.maybe_received


async def test_an_answer_that_is_cut_off_may_have_been_received() -> None:
    async def cut(message: dict[str, Any], _: dict[str, str]) -> bytes:
        return http(result(message, text="x" * 1_000))[:-500]

    async def answer(message: dict[str, Any], headers: dict[str, str]) -> bytes | None:
        return await cut(message, headers) if len(server.requests) == 1 else None

    async with stub(answer) as server, Client.http(server.url, timeout=0.5, retries=0) as client:
        with pytest.raises(TransportError) as caught:
            await client.describe()
    assert caught.value.maybe_received


async def test_a_call_without_an_answer_ends_in_time() -> None:
    stop = asyncio.Event()

    async def wait(_: dict[str, Any], __: dict[str, str]) -> None:
        await stop.wait()

    async with stub(wait) as server, Client.http(server.url) as client:
        with pytest.raises(TransportError, match=r"no answer within 0\.1 s") as caught:
            await client.call("memory/describe", timeout=0.1)
        assert caught.value.maybe_received
        stop.set()


async def test_an_answer_that_drips_in_ends_in_time_too() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Client.http(url, timeout=0.2, retries=0) as client:
        with pytest.raises(TransportError, match="no answer"):
            await client.describe()


async def test_an_error_does_not_repeat_a_password_in_the_url() -> None:
    async with Client.http("http://someone:secret@127.0.0.1:1", retries=0) as client:
        with pytest.raises(TransportError, match=r"^http://127\.0\.0\.1:1: ") as caught:
            await client.describe()
    assert "secret" not in str(caught.value)


async def test_the_token_and_the_version_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    shown: list[dict[str, str]] = []

    async def note(message: dict[str, Any], headers: dict[str, str]) -> bytes:
        shown.append(headers)
        return http(result(message))

    async with stub(note) as server, Client.http(server.url, token_file=path) as client:
        await client.describe()
        path.write_text("other\n")
        await client.describe()
    assert [headers["authorization"] for headers in shown] == ["Bearer one", "Bearer other"]
    assert shown[0]["a2m-protocol-version"] == "a2m/0.1"
    assert shown[0]["content-type"] == "application/json"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with stub(saying(lambda m: result(m))) as server, Client.http(server.url) as client:
        assert await client.describe() == {}


def failing(times: int, then: Answer) -> tuple[Answer, list[str]]:
    seen: list[str] = []

    async def answer(message: dict[str, Any], headers: dict[str, str]) -> bytes | None:
        seen.append(message["method"])
        return None if len(seen) <= times else await then(message, headers)

    return answer, seen


async def test_a_client_that_is_to_retry_nothing_does_not() -> None:
    answer, seen = failing(1, saying(lambda m: result(m)))
    assert isinstance(await failure(answer, retries=0), TransportError)
    assert len(seen) == 1


async def test_without_being_asked_a_server_that_restarts_is_waited_for() -> None:
    async with stub(saying(b"")) as server:
        port = int(server.url.rpartition(":")[2])
    async with Client.http(server.url) as client:
        asking = asyncio.create_task(client.describe())
        await asyncio.wait([asking], timeout=0.5)
        assert not asking.done()
        again = Stub(saying(lambda m: result(m, back=True)))
        async with await asyncio.start_server(again.serve, "127.0.0.1", port):
            assert await asking == {"back": True}


async def test_a_read_is_retried_a_bounded_number_of_times() -> None:
    answer, seen = failing(2, saying(lambda m: result(m, ok=True)))
    async with stub(answer) as server, Client.http(server.url, retries=2) as client:
        assert await client.timeline() == {"ok": True}
    assert len(seen) == 3
    answer, seen = failing(3, saying(lambda m: result(m)))
    assert isinstance(await failure(answer, retries=2), TransportError)
    assert len(seen) == 3


async def test_a_remember_is_retried_with_the_same_ids_which_the_client_gives_where_there_are_none() -> None:
    sent: list[list[dict[str, Any]]] = []

    async def answer(message: dict[str, Any], _: dict[str, str]) -> bytes | None:
        sent.append(message["params"]["records"])
        return None if len(sent) == 1 else http(result(message, ids=[r["id"] for r in sent[0]]))

    records = [{"content": "a", "id": "1"}, {"content": "b"}, {"content": "c", "id": None}]
    async with stub(answer) as server, Client.http(server.url) as client:
        told = await client.remember(records)
    assert sent[0] == sent[1]
    assert told["ids"] == [record["id"] for record in sent[0]]
    assert sent[0][0]["id"] == "1"
    assert len({record["id"] for record in sent[0]}) == 3
    assert records[1:] == [{"content": "b"}, {"content": "c", "id": None}]


async def test_a_client_that_is_to_retry_nothing_sends_records_as_they_are() -> None:
    answer = saying(lambda m: result(m, got=m["params"]))
    async with stub(answer) as server, Client.http(server.url, retries=0) as client:
        assert (await client.remember([{"content": "a"}]))["got"] == {"records": [{"content": "a"}]}


@pytest.mark.parametrize(
    ("selected", "calls"),
    [
        ({"ids": ["a"]}, 2),
        ({"ids": ["a"], "owner": "ann"}, 2),
        ({"ids": ["a"], "query": "tea"}, 1),
        ({"ids": ["a"], "tier": "working"}, 1),
        ({"where": {"role": "user"}}, 1),
        ({"query": "tea"}, 1),
        ({"key_prefix": "k"}, 1),
    ],
)
async def test_a_forget_is_retried_only_by_ids(selected: dict[str, Any], calls: int) -> None:
    answer, seen = failing(1, saying(lambda m: result(m, forgotten=1)))
    async with stub(answer) as server, Client.http(server.url, retries=3) as client:
        with suppress(TransportError):
            await client.forget(**selected)
    assert len(seen) == calls


async def test_of_notifications_that_nobody_takes_the_newest_are_kept() -> None:
    async def answer(message: Any) -> Any:
        return result(message)

    transport = LocalTransport(answer)
    async with Client(transport) as client:
        assert transport.deliver is not None
        for n in range(5_000):
            transport.deliver(jsonrpc.notification("memory/event", {"n": n}))
        pushed = client.notifications()
        found = [await anext(pushed) for _ in range(4_097)]
        assert found[0] == {"kind": "reset"}
        assert [event["n"] for event in found[1:]] == [*range(5_000 - 4_096, 5_000)]
        transport.deliver(jsonrpc.notification("memory/event", {"n": 5_000}))
        assert await anext(pushed) == {"n": 5_000}


async def test_what_is_not_idempotent_is_never_sent_twice() -> None:
    answer, seen = failing(1, saying(lambda m: result(m)))
    async with stub(answer) as server, Client.http(server.url, retries=3) as client:
        with pytest.raises(TransportError):
            await client.reinforce(["a"], amount=1.0)
    assert len(seen) == 1


async def test_an_error_that_the_server_calls_retryable_is_retried() -> None:
    busy = {"code": -32603, "message": "busy", "data": {"retryable": True}}
    count = 0

    def body(message: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {"jsonrpc": "2.0", "id": message["id"], "error": busy} if count == 1 else result(message)

    async with stub(saying(body)) as server, Client.http(server.url, retries=1) as client:
        assert await client.fetch("k") == {}
    assert count == 2


async def test_retries_end_with_the_time_of_the_call() -> None:
    answer, seen = failing(1_000, hang)
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert isinstance(await failure(answer, retries=1_000, timeout=0.5), TransportError)
    assert loop.time() - started < 1.0
    assert 1 < len(seen) < 20


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(TransportError, match="not open"):
        await Client.http("http://127.0.0.1:9").describe()


async def test_the_helpers_leave_out_what_is_not_given() -> None:
    sent: list[Any] = []

    async def note(message: object) -> Any:
        assert isinstance(message, dict)
        sent.append((message["method"], message["params"]))
        return result(message)

    async with Client(LocalTransport(note)) as client:
        await client.describe()
        await client.recall("q", owner=None, limit=3, embeddings=True)
        await client.recall(owner="me", owner_model=None)
        await client.remember([{"content": "a"}], session="s", transfer=True)
        await client.timeline(where={"role": ["user"]}, owner=UNSET)
        await client.forget(ids=[])
        await client.promote(["a"], "semantic", salience=0.5)
        await client.consolidate()
        await client.reinforce(["a"], amount=2)
        await client.fetch("k", owner="me")
        await client.sessions(owner=None)
        await client.close_session("s")
        await client.events(cursor="c", kinds=["written"])
        await client.subscribe(kinds=["written"])
        await client.unsubscribe()
        await client.summarize(key_prefix="a", into="semantic", key="k")
    assert sent == [
        ("memory/describe", {}),
        ("memory/recall", {"query": "q", "owner": None, "limit": 3, "embeddings": True}),
        ("memory/recall", {"owner": "me", "owner_model": None}),
        ("memory/remember", {"records": [{"content": "a"}], "session": "s", "transfer": True}),
        ("memory/timeline", {"where": {"role": ["user"]}}),
        ("memory/forget", {"ids": []}),
        ("memory/promote", {"ids": ["a"], "tier": "semantic", "salience": 0.5}),
        ("memory/consolidate", {}),
        ("memory/reinforce", {"ids": ["a"], "amount": 2}),
        ("memory/fetch", {"key": "k", "owner": "me"}),
        ("memory/session/list", {"owner": None}),
        ("memory/session/close", {"session": "s"}),
        ("memory/events", {"cursor": "c", "kinds": ["written"]}),
        ("memory/events/subscribe", {"kinds": ["written"]}),
        ("memory/events/unsubscribe", {}),
        ("memory/summarize", {"key_prefix": "a", "into": "semantic", "key": "k"}),
    ]


async def test_in_process_both_directions_pass_through_json() -> None:
    inside: Any = {"tuple": (1, 2)}

    async def handle(message: object) -> Any:
        assert isinstance(message, dict)
        assert message["params"] is not params
        return result(message, seen=message["params"], inside=inside)

    params: Any = {"pair": (1, 2)}
    async with Client(LocalTransport(handle)) as client:
        got = await client.call("memory/x", params)
    assert got == {"seen": {"pair": [1, 2]}, "inside": {"tuple": [1, 2]}}


async def test_watching_goes_on_from_the_cursor_and_tells_of_a_reset() -> None:
    pages: list[Any] = [
        {"events": [], "cursor": "0"},
        {"events": [{"kind": "a"}, {"kind": "b"}], "cursor": "2", "more": True},
        {"events": [{"kind": "c"}], "cursor": "3", "reset": True},
    ]
    cursors: list[Any] = []

    async def handle(message: object) -> Any:
        assert isinstance(message, dict)
        cursors.append(message["params"].get("cursor"))
        return result(message, **pages[len(cursors) - 1])

    async with Client(LocalTransport(handle)) as client:
        events = client.watch(interval=0)
        kinds = [(await anext(events))["kind"] for _ in range(4)]
    assert kinds == ["a", "b", "reset", "c"]
    assert cursors == [None, "0", "2"]


def test_a_transport_is_reusable_after_it_was_closed() -> None:
    async def twice() -> None:
        async with stub(saying(lambda m: result(m))) as server:
            client = Client(HttpTransport(server.url))
            for _ in range(2):
                async with client:
                    assert await client.describe() == {}

    asyncio.run(twice())
