"""What an owner holds over all tiers: moves count once, and routers count together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from a2m_protocol.errors import A2MError
from a2m_router.federation import Federation
from a2m_router.link import PREFIX, connect
from a2m_router.tally import SharedTally
from a2m_server.contract import draft
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import Peer, Role, principal
from a2m_server.memory import MemoryTier
from a2m_server.quota import Quota
from a2m_server.values import EVERYONE, Filter

Stores = dict[str, MemoryTier]
ANN = principal("ann", "ann", frozenset({Role.AGENT}), (), pooled=True)


async def held(federation: Federation) -> int:
    return sum((await federation.held("ann")).values())


async def test_every_tier_counts_and_a_move_changes_nothing(federation: Federation, stores: Stores) -> None:
    drafts = [draft("x" * 1_000, owner="ann", session="s") for _ in range(3)]
    await federation.write([*drafts, draft("y" * 500, owner="ann", tier="semantic")], EVERYONE)
    await federation.write([draft("z" * 9_000, owner="bob"), draft("p" * 9_000)], EVERYONE)
    told = await federation.held("ann")
    assert {tier for tier, size in told.items() if size} == {"working", "semantic"}
    before = sum(told.values())
    assert 3_500 < before < 4_500
    await federation.close_session("s", EVERYONE)
    assert (await federation.held("ann"))["working"] == 0
    assert await held(federation) == before
    await federation.forget(Filter(ids=tuple(one.id for one in drafts)))
    assert 500 < await held(federation) < 900


async def test_while_records_move_none_is_counted_twice(federation: Federation) -> None:
    sessions = [f"s{n}" for n in range(20)]
    for session in sessions:
        await federation.write([draft("x" * 100, owner="ann", session=session)] * 1, EVERYONE)
    before = await held(federation)
    seen: list[int] = []
    moving = asyncio.gather(*(federation.close_session(session, EVERYONE) for session in sessions))
    while not moving.done():
        seen.append(await held(federation))
        await asyncio.sleep(0)
    await moving
    assert seen
    assert max(seen) <= before
    assert await held(federation) == before


async def test_a_principal_is_held_to_its_quota_over_all_tiers(federation: Federation) -> None:
    dispatcher = Dispatcher(federation, quota=Quota("10kB"))

    async def write(**fields: Any) -> Any:
        params: Any = {"records": [{"content": "x" * 4_000, **fields}]}
        message = {"jsonrpc": "2.0", "id": 1, "method": "memory/remember", "params": params}
        return await dispatcher.handle(message, Peer(ANN))

    assert "result" in await write(session="s")
    assert "result" in await write(tier="semantic")
    refused = await write(session="s")
    assert refused["error"]["code"] == -32006
    await federation.close_session("s", EVERYONE)
    assert "error" in await write(session="s", tier="episodic")


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    client = connect(valkey_url)
    await client.delete(*[key async for key in client.scan_iter(match=f"{PREFIX}*")], "nothing")
    yield client
    await client.aclose()


async def test_routers_add_to_what_one_of_them_measured(redis: Redis) -> None:
    one, other = SharedTally(redis), SharedTally(redis)
    assert await one.add({"ann": 5}) == {}
    await one.put("ann", 100)
    assert await other.add({"ann": 5, "bob": 1}) == {"ann": 105}
    assert await one.add({"ann": -10}) == {"ann": 95}
    await other.put("ann", 7)
    assert await one.add({"ann": 0}) == {"ann": 7}
    assert 0 < await redis.ttl(f"{PREFIX}held:ann") <= 86_400


async def test_a_tally_that_does_not_answer_says_so() -> None:
    client = connect("redis://127.0.0.1:1/0")
    with pytest.raises(A2MError) as failed:
        await SharedTally(client).add({"ann": 1})
    assert failed.value.retryable
    await client.aclose()
