"""The same conversation with the in-memory store over HTTP, over stdio and in process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError
from a2m_server.dispatch import Dispatcher
from a2m_server.http import create_app
from a2m_server.identity import LOOPBACK
from a2m_server.listen import Server, bind, url_of
from a2m_server.local import attach, connect
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings


@asynccontextmanager
async def over_http() -> AsyncIterator[Client]:
    settings = ServerSettings(port=0)
    with bind(settings) as listener:
        server = Server(create_app(MemoryTier(), settings), settings)
        running = asyncio.create_task(server.serve([listener]))
        try:
            async with Client.http(url_of(listener)) as client:
                yield client
        finally:
            server.should_exit = True
            await running


WAYS = {
    "http": over_http,
    "stdio": lambda: Client.stdio([sys.executable, "-W", "error", "-m", "a2m_server", "--stdio"]),
    "local": lambda: connect(MemoryTier()),
}


@pytest.fixture(params=WAYS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with WAYS[request.param]() as it:
        yield it


async def test_what_is_remembered_is_read_back(client: Client) -> None:
    record: Any = {"id": "a", "content": "žluťoučký 🐎\n", "metadata": {"n": [2**70, -0.0, None, "\u2028"]}}
    assert (await client.remember([record]))["ids"] == ["a"]
    found: Any = (await client.timeline())["records"]
    assert [(r["id"], r["content"], r["metadata"]) for r in found] == [
        ("a", record["content"], record["metadata"])
    ]


async def test_a_large_batch_passes_both_ways(client: Client) -> None:
    records = [{"id": f"r{n}", "content": "x" * 20_000} for n in range(200)]
    await client.remember(records)
    found: Any = (await client.timeline())["records"]
    assert [record["id"] for record in found] == [record["id"] for record in records]


async def test_calls_at_the_same_time_get_their_own_answers(client: Client) -> None:
    async def one(number: int) -> None:
        result = await client.remember([{"id": f"r{number}", "content": "x"}])
        assert result["ids"] == [f"r{number}"]

    await asyncio.gather(*(one(number) for number in range(50)))


async def test_errors_come_with_their_codes(client: Client) -> None:
    for method, params, code in (
        ("memory/fetch", {}, -32602),
        ("memory/no-such", {}, -32601),
        ("memory/promote", {"ids": [], "tier": "x"}, -32003),
    ):
        with pytest.raises(A2MError) as caught:
            await client.call(method, params)
        assert caught.value.code == code


async def test_events_are_watched(client: Client) -> None:
    cursor: Any = (await client.events())["cursor"]
    await client.remember([{"id": "a", "content": "x"}])
    event = await anext(client.watch(cursor=cursor))
    assert (event["kind"], event["id"]) == ("written", "a")


async def test_scopes_are_shown_where_the_owner_is_believed(client: Client, request: Any) -> None:
    capabilities: Any = (await client.describe())["capabilities"]
    assert ("scopes" in capabilities) == ("http" not in request.node.name)


async def test_events_are_pushed_where_the_transport_can(client: Client, request: Any) -> None:
    if "http" in request.node.name:
        with pytest.raises(A2MError) as caught:
            await client.subscribe()
        assert caught.value.code == -32003
        return
    await client.remember([{"id": "before", "content": "x"}])
    assert await client.subscribe() == {"subscribed": True}
    await client.remember([{"id": "a", "content": "x"}, {"id": "b", "content": "x"}])
    pushed = client.notifications()
    async with asyncio.timeout(10):
        assert [(await anext(pushed))["id"] for _ in range(2)] == ["a", "b"]
    assert await client.unsubscribe() == {"subscribed": False}
    await client.remember([{"id": "after", "content": "x"}])
    await client.describe()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(pushed)


async def test_two_connections_in_process_are_told_of_each_others_writes() -> None:
    handler = Dispatcher(MemoryTier())
    await handler.open()
    async with attach(handler) as one, attach(handler, caller=LOOPBACK) as other:
        await one.subscribe()
        await other.remember([{"id": "a", "content": "x"}])
        async with asyncio.timeout(10):
            assert (await anext(one.notifications()))["id"] == "a"
    await handler.close()
