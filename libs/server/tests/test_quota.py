import asyncio
import math
from collections.abc import Mapping
from typing import Any

import pytest

from a2m_protocol.errors import unavailable
from a2m_server import quota as module
from a2m_server.contract import draft
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import LOCAL, Caller, Peer, Role, principal
from a2m_server.memory import MemoryTier
from a2m_server.quota import Quota, quotas_of
from a2m_server.settings import ServerSettings
from a2m_server.values import Filter


def named(name: str, *roles: Role, quota: int | None = None) -> Caller:
    return principal(name, name, frozenset(roles or (Role.AGENT,)), (), pooled=True, quota=quota)


class Weighed(MemoryTier):
    """Counts how often it is asked what is held."""

    asked = 0
    wait = 0.0
    away = False

    async def held(self, owner: str | None) -> dict[str, int]:
        self.asked += 1
        await asyncio.sleep(self.wait)
        if self.away:
            raise unavailable("the tier", "it was switched off")
        return await super().held(owner)


class Server:
    def __init__(self, quotas: str | None = "10kB", store: Weighed | None = None, tally: Any = None) -> None:
        self.store = store or Weighed()
        self.quota = Quota(quotas, tally)
        self._dispatcher = Dispatcher(self.store, quota=self.quota)

    async def ask(self, caller: Caller, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return await self._dispatcher.handle(message, Peer(caller))

    async def write(self, caller: Caller, *sizes: int, **fields: Any) -> Any:
        return await self.ask(caller, "remember", records=[{"content": "x" * n, **fields} for n in sizes])

    async def close(self) -> None:
        await self._dispatcher.close()


ANN, BOB = named("ann"), named("bob")


async def test_a_write_beyond_the_quota_is_refused_and_leaves_nothing() -> None:
    server = Server()
    assert "result" in await server.write(ANN, 6_000)
    error = (await server.write(ANN, 1_000, 1_000, 3_000))["error"]
    assert error["code"] == -32006
    assert error["data"]["limit"] == 10_000
    assert 6_000 < error["data"]["held"] < 6_500
    assert 5_000 < error["data"]["needed"] < 6_000
    assert "10,000 are allowed" in error["message"]
    assert "forget" in error["message"]
    assert "result" in await server.write(BOB, 6_000)
    assert "result" in await server.write(ANN, 3_000)
    assert (await server.ask(ANN, "held"))["result"]["bytes"] < 10_000
    assert (await server.ask(ANN, "describe"))["result"]["limits"]["max_bytes_held"] == 10_000
    assert "max_bytes_held" not in (await server.ask(LOCAL, "describe"))["result"]["limits"]


async def test_what_is_forgotten_makes_room_at_once() -> None:
    server = Server()
    (first,) = (await server.write(ANN, 9_000))["result"]["ids"]
    assert "error" in await server.write(ANN, 9_000)
    await server.ask(ANN, "forget", ids=[first])
    assert "result" in await server.write(ANN, 9_000)


async def test_retries_do_not_add_up_and_rewrites_are_measured_before_they_are_refused() -> None:
    server = Server()
    for _ in range(10):
        assert "result" in await server.write(ANN, 3_000, id="one")
    assert server.store.asked == 1
    for _ in range(10):
        assert "result" in await server.write(ANN, 2_500, key="fact")
    assert 1 < server.store.asked < 12


async def test_writes_ask_nobody_but_before_the_first() -> None:
    server = Server()
    for _ in range(20):
        await server.write(ANN, 10)
    assert server.store.asked == 1
    for _ in range(20):
        assert "error" in await server.write(ANN, 20_000)
    assert server.store.asked <= 3


async def test_writes_at_once_do_not_pass_together() -> None:
    server = Server()
    done = await asyncio.gather(*(server.write(ANN, 2_000) for _ in range(20)))
    assert sum("result" in one for one in done) == 4
    assert (await server.ask(ANN, "held"))["result"]["bytes"] <= 10_000


async def test_a_restart_forgets_nothing_of_what_is_held() -> None:
    server = Server()
    await server.write(ANN, 9_000)
    again = Server(store=server.store)
    assert "error" in await again.write(ANN, 2_000)


async def test_a_tier_that_does_not_answer_holds_nobody_up(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    server = Server()
    server.store.away = True
    assert "result" in await server.write(ANN, 9_000)
    slow = Server()
    slow.store.wait = 3_600.0
    assert "result" in await slow.write(ANN, 9_000)
    assert "result" in await slow.write(ANN, 10)
    assert slow.store.asked == 1
    await slow.close()


async def test_now_and_then_an_owner_is_measured_anew_behind_the_writes(monkeypatch: Any) -> None:
    server = Server()
    await server.write(ANN, 1_000)
    # As another server over the same tiers would.
    await server.store.write([draft("x" * 9_500, owner="ann")], Filter().scope)
    assert "result" in await server.write(ANN, 10)
    monkeypatch.setattr(module, "SOUND", -math.inf)
    async with asyncio.timeout(10):
        while "result" in await server.write(ANN, 10):  # noqa: ASYNC110 it is what others wrote that is waited for
            await asyncio.sleep(0)
    await server.close()


@pytest.mark.parametrize(
    ("caller", "limit"),
    [
        (ANN, 100),
        (named("c", Role.CURATOR), 2_000),
        (named("b", Role.AGENT, Role.CURATOR), 2_000),
        (named("o", Role.OPERATOR), None),
        (named("o", Role.OPERATOR, quota=7), 7),
        (named("a", quota=5_000), 5_000),
        (LOCAL, None),
    ],
)
def test_who_may_hold_how_much(caller: Caller, limit: int | None) -> None:
    assert Quota("100B; curator=2kB").limit_of(caller) == limit


@pytest.mark.parametrize("text", ["", "much", "agent", "king=1MB", "1MB; 2MB", "agent=1MB; agent=1MB", "-5"])
def test_a_quota_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        quotas_of(text)
    with pytest.raises(ValueError, match="expected a size"):
        ServerSettings(quota=text)


async def test_without_a_quota_nothing_is_counted_or_asked() -> None:
    server = Server(quotas=None)
    assert "result" in await server.write(ANN, 500_000)
    assert server.store.asked == 0


async def test_what_an_operator_writes_for_an_owner_counts_for_that_owner() -> None:
    server = Server()
    await server.write(ANN, 10)
    root = named("root", Role.OPERATOR)
    assert "result" in await server.write(root, 20_000, owner="ann")
    assert "error" in await server.write(ANN, 10)
    assert "result" in await server.write(root, 20_000)


async def test_a_summary_counts_too() -> None:
    server = Server()
    await server.write(ANN, 9_000)
    texts = [f"The pump number {n} stops at noon." for n in range(10)]
    root = named("root", Role.OPERATOR)
    await server.ask(root, "remember", owner="ann", records=[{"content": text} for text in texts])
    assert (await server.ask(ANN, "summarize", where={"owner": "ann"}))["error"]["code"] == -32006


class Shared:
    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.away = False

    async def add(self, added: Mapping[str, int]) -> Mapping[str, int]:
        if self.away:
            raise unavailable("the database", "it was switched off")
        for owner, size in added.items():
            if owner in self.totals:
                self.totals[owner] += size
        return {owner: self.totals[owner] for owner in added if owner in self.totals}

    async def put(self, owner: str, total: int) -> None:
        if self.away:
            raise unavailable("the database", "it was switched off")
        self.totals[owner] = total


async def test_servers_that_share_a_count_know_of_each_other_s_writes(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "SHARING", 0.01)
    tally, store = Shared(), Weighed()
    servers = [Server(store=store, tally=tally) for _ in range(2)]
    for server in servers:
        await server.quota.open()
    for server in servers:
        assert "result" in await server.write(ANN, 100)
    assert "result" in await servers[0].write(ANN, 8_000)
    async with asyncio.timeout(10):
        while tally.totals["ann"] < 8_000:  # noqa: ASYNC110 a background task is waited for
            await asyncio.sleep(0.01)
        while "result" in await servers[1].write(ANN, 1_900):  # noqa: ASYNC110 so is the next exchange
            await asyncio.sleep(0.01)
    assert sum((await store.held("ann")).values()) <= 10_000 + 2_500
    tally.away = True
    assert "result" in await servers[1].write(BOB, 100)
    await asyncio.sleep(0.05)
    assert "error" in await servers[1].write(BOB, 20_000)
    for server in servers:
        await server.close()
