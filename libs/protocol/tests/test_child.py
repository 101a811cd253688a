"""The client against child processes that misbehave, each written for its test."""

from __future__ import annotations

import asyncio
import sys

import pytest

from a2m_protocol.client import Client, StdioTransport, SyncClient
from a2m_protocol.errors import TransportError


def child(program: str) -> list[str]:
    return [sys.executable, "-u", "-c", "import sys, json, time\n" + program]


ANSWER = """
for line in sys.stdin:
    m = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"got": m["params"]}}))
"""


async def test_a_child_process_is_spoken_to_by_lines() -> None:
    async with Client(StdioTransport(child(ANSWER))) as client:
        answers = await asyncio.gather(*(client.call("memory/x", {"n": n, "text": "é\n"}) for n in range(20)))
        process = client.transport.process  # pyright: ignore[reportAttributeAccessIssue]
    assert [answer["got"]["n"] for answer in answers] == list(range(20))
    assert process.returncode == 0


async def test_large_messages_pass_both_ways() -> None:
    text = "x" * 3_000_000
    async with Client(StdioTransport(child(ANSWER))) as client:
        assert (await client.call("memory/x", {"text": text}))["got"] == {"text": text}


async def test_a_child_that_ends_fails_what_waits_and_what_follows() -> None:
    async with Client(StdioTransport(child("sys.stdin.readline()"))) as client:
        with pytest.raises(TransportError, match="ended before it answered") as caught:
            await client.describe()
        assert caught.value.maybe_received
        with pytest.raises(TransportError, match="has ended") as caught:
            await client.describe()
        assert not caught.value.maybe_received


async def test_a_child_that_says_garbage_fails_the_call_at_once_and_may_go_on() -> None:
    for garbage in ("hello", "[]", '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"eh"}}'):
        program = f"sys.stdin.readline(); print({garbage!r})\n{ANSWER}"
        async with Client(StdioTransport(child(program)), timeout=10) as client:
            with pytest.raises(TransportError):
                await client.describe()
            assert await client.call("memory/x", {"n": 1}) == {"got": {"n": 1}}


async def test_a_child_that_does_not_answer_is_not_waited_for() -> None:
    async with Client(StdioTransport(child("for line in sys.stdin: pass")), timeout=0.2) as client:
        with pytest.raises(TransportError, match="no answer within"):
            await client.describe()


async def test_a_late_answer_is_not_taken_for_another_call() -> None:
    program = """
first = json.loads(sys.stdin.readline())
second = json.loads(sys.stdin.readline())
for m in (first, second):
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"id": m["id"]}}))
sys.stdin.read()
"""
    async with Client(StdioTransport(child(program))) as client:
        with pytest.raises(TransportError):
            await client.call("memory/x", timeout=0.2)
        assert await client.call("memory/x") == {"id": 2}


async def test_a_child_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2m_protocol.child._GOODBYE_SECONDS", 0.2)
    client = Client(StdioTransport(child("time.sleep(60)")))
    async with client:
        process = client.transport.process  # pyright: ignore[reportAttributeAccessIssue]
    assert process.returncode == -9


async def test_a_command_that_does_not_exist_says_so() -> None:
    with pytest.raises(TransportError, match="cannot start 'no-such-command-here'"):
        async with Client.stdio("no-such-command-here --stdio"):
            pass


async def test_pushed_events_are_iterated() -> None:
    program = """
m = json.loads(sys.stdin.readline())
for n in range(3):
    print(json.dumps({"jsonrpc": "2.0", "method": "memory/event", "params": {"n": n}}))
print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"subscribed": True}}))
sys.stdin.read()
"""
    async with Client(StdioTransport(child(program))) as client:
        assert await client.subscribe() == {"subscribed": True}
        events = client.notifications()
        assert [await anext(events) for _ in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_the_synchronous_client_has_the_same_methods() -> None:
    with SyncClient(Client(StdioTransport(child(ANSWER)))) as client:
        assert client.recall("q", owner=None) == {"got": {"query": "q", "owner": None}}
        assert client.call("memory/x", {"n": 1}) == {"got": {"n": 1}}
    with pytest.raises(TransportError, match="not open"):
        client.describe()


def test_the_synchronous_client_raises_the_same_errors() -> None:
    with SyncClient.http("http://127.0.0.1:9", timeout=2) as client, pytest.raises(TransportError) as caught:
        client.describe()
    assert not caught.value.maybe_received
