"""Valkey full or still loading: each is named, loses nothing and passes by itself."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from a2m_engines import valkey
from a2m_engines.valkey import Valkey
from a2m_protocol.errors import A2MError
from a2m_server.contract import draft, moved, name, within
from a2m_server.values import EVERYONE, Page, Tombstone
from a2m_working.settings import Layout, WorkingSettings
from a2m_working.store import WorkingStore


@pytest.fixture(params=["single", "cluster"])
async def either(own_valkey: Valkey, request: pytest.FixtureRequest) -> AsyncIterator[WorkingStore]:
    """A store in both layouts on a server of its own."""
    layout: Layout = request.param
    store = WorkingStore(WorkingSettings(url=own_valkey.url, layout=layout))
    await store.open()
    yield store
    await store.close()


async def contents(store: WorkingStore, session: str) -> list[str]:
    return [record.content for record in (await store.timeline(Page(within(session)))).records]


async def test_a_full_server_is_named_shows_nothing_half_written_and_is_used_again_when_it_has_room(
    either: WorkingStore, own_valkey: Valkey
) -> None:
    session = name()
    await either.write([draft(str(n), session=session) for n in range(20)], EVERYONE)
    held = await contents(either, session)
    batch = [draft("x" * 2_000, session=session, key=name("k")) for _ in range(20)]
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: either.write(batch, EVERYONE),
        lambda: either.transfer([draft("y", session=session, seq=1)]),
    ]
    async with Redis.from_url(own_valkey.url) as client:
        await client.config_set("maxmemory", "1mb")
        for call in calls:
            with pytest.raises(A2MError, match="raise maxmemory") as full:
                await call()
            assert full.value.retryable
        assert await contents(either, session) == held
        assert await either.read([one.id for one in batch]) == []
        await either.ready()
        await client.config_set("maxmemory", "0")
    assert [w.outcome for w in await either.write(batch, EVERYONE)] == ["created"] * 20
    assert len(await contents(either, session)) == 40


async def test_a_full_server_takes_tombstones_of_what_it_does_not_hold(
    own: WorkingStore, own_valkey: Valkey
) -> None:
    held, elsewhere = draft(session=name()), draft(session=name(), seq=5)
    await own.write([held], EVERYONE)
    [record] = await own.read([held.id])
    async with Redis.from_url(own_valkey.url) as client:
        await client.config_set("maxmemory", "1mb")
        graves = [Tombstone(elsewhere.id, "forgotten", 2**52), Tombstone(held.id, "forgotten", record.seq)]
        assert await own.bury(graves) == {elsewhere.id: "absent", held.id: "forgotten"}
        assert await own.bury([Tombstone(elsewhere.id, "forgotten", 7)]) == {elsewhere.id: "absent"}
        await client.config_set("maxmemory", "0")
    assert {g.id: g.seq for g in await own.tombstones([elsewhere.id, held.id])} == {
        elsewhere.id: 2**52,
        held.id: record.seq,
    }
    for one in (elsewhere, moved(record)):
        [refused] = await own.transfer([one])
        assert refused.reason == "forgotten"


async def test_a_server_that_is_not_set_to_be_durable_is_complained_of(
    own_valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    settings = WorkingSettings(url=own_valkey.url)
    for wanted in ({}, {"appendfsync": "everysec", "maxmemory-policy": "allkeys-lru"}):
        async with Redis.from_url(own_valkey.url) as client:
            for name_, value in wanted.items():
                await client.config_set(name_, value)
        caplog.clear()
        store = WorkingStore(settings)
        await store.open()
        await store.close()
        said = [record.getMessage() for record in caplog.records if "may lose" in record.getMessage()]
        assert len(said) == len(wanted)
        assert all(name_ in caplog.text for name_ in wanted)


async def test_a_server_that_is_still_loading_is_named_and_waited_for(
    own: WorkingStore, own_valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = name()
    for part in range(10):
        await own.write([draft(f"{part}.{n}", session=session, key=name("k")) for n in range(100)], EVERYONE)
    held = await contents(own, session)
    async with Redis.from_url(own_valkey.url) as client:
        # Only the base of the log is loaded slowly, key by key.
        await client.bgrewriteaof()

        async def rewritten() -> bool:
            return not (await client.info("persistence"))["aof_rewrite_in_progress"]

        await until(rewritten)
    own_valkey.kill()
    slowly = "key-load-delay 500\nloading-process-events-interval-bytes 1024\n"
    configuration = valkey._CONFIGURATION + slowly  # pyright: ignore[reportPrivateUsage] no test else needs it
    monkeypatch.setattr(valkey, "_CONFIGURATION", configuration)
    own_valkey.prepare()
    command, environment = own_valkey.command(), dict(own_valkey.environment())
    said: set[str] = set()

    async def answers() -> bool:
        try:
            await own.write([draft("meanwhile")], EVERYONE)
            await own.ready()
        except A2MError as error:
            said.add(f"{error.message} {error.data}")
            return False
        return True

    server = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=own_valkey.working_directory, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await until(answers)
        assert await contents(own, session) == held
    finally:
        server.terminate()
        await server.wait()
    assert any("loading" in message for message in said), said
    assert all("'retryable': True" in message for message in said), said


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def test_the_size_is_told_beside_what_the_server_may_hold(
    own: WorkingStore, own_valkey: Valkey
) -> None:
    await own.write([draft("one"), draft("two")], EVERYONE)
    size = await own.size()
    assert (size.records, size.limit) == (2, None)
    async with Redis.from_url(own_valkey.url) as client:
        await client.config_set("maxmemory", "64mb")
    size = await own.size()
    assert size.bytes is not None
    assert size.limit == 64 * 2**20 > size.bytes > 100_000
