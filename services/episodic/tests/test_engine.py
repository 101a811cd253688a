"""The engine killed, away, or out of connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from a2m_engines.postgres import Postgres
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_protocol.errors import A2MError
from a2m_server.contract import draft, name, within
from a2m_server.values import EVERYONE, Filter, Page, Search


@pytest.fixture
def engine(tmp_path: Path) -> Postgres:
    return Postgres(tmp_path / "postgres").start()


@pytest.fixture
async def killable(engine: Postgres) -> AsyncIterator[EpisodicStore]:
    settings = EpisodicSettings(url=SecretStr(engine.url), pool_wait=1.0, maintenance_interval=0.2)
    store = EpisodicStore(settings)
    await store.open()
    yield store
    await store.close()
    engine.stop()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


async def test_a_killed_engine_loses_nothing_acknowledged_and_is_found_again(
    engine: Postgres, killable: EpisodicStore
) -> None:
    session = name()
    acknowledged: list[str] = []
    attempted: list[str] = []

    async def write() -> None:
        while True:
            batch = [draft(str(n), session=session, key=name("k"), embedding=[1.0, n]) for n in range(5)]
            attempted.extend(d.id for d in batch)
            await killable.write(batch, EVERYONE)
            acknowledged.extend(d.id for d in batch)

    writers = [asyncio.create_task(write()) for _ in range(4)]

    async def busy() -> bool:
        return len(acknowledged) > 100

    await until(busy)
    engine.kill()
    ended = await asyncio.gather(*writers, return_exceptions=True)
    assert all(isinstance(e, A2MError) and e.retryable for e in ended), ended
    with pytest.raises(A2MError) as down:
        await killable.ready()
    assert down.value.retryable
    engine.start()

    async def answers() -> bool:
        try:
            await killable.ready()
        except A2MError:
            return False
        return True

    await until(answers)
    held = {r.id for r in (await killable.timeline(Page(within(session)))).records}
    assert set(acknowledged) <= held <= set(attempted)
    assert len(held) % 5 == 0
    found = await killable.search(Search(within(session), 1_000, embedding=[1.0, 0.0]))
    assert {r.id for r in found.records} == held
    [listed] = (await killable.sessions(EVERYONE)).sessions
    assert listed.records == len(held)
    await killable.write([draft()], EVERYONE)


async def test_out_of_connections_is_an_error_that_may_be_tried_again(
    postgres_database: Callable[[], str],
) -> None:
    settings = EpisodicSettings(
        url=SecretStr(url := postgres_database()),
        pool_min=1,
        pool_max=1,
        pool_wait=0.2,
        pool_waiting=2,
        maintenance_interval=3600,
    )
    store = EpisodicStore(settings)
    await store.open()
    one = draft(key=name("k"))
    await store.write([one], EVERYONE)
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute("LOCK TABLE episodic.records IN ACCESS EXCLUSIVE MODE")
        stuck = asyncio.create_task(store.touch([one.id], "2026-01-01T00:00:00.000Z"))
        await asyncio.sleep(0)
        outcomes = await asyncio.gather(*(store.read([one.id]) for _ in range(6)), return_exceptions=True)
        assert all(isinstance(o, A2MError) and o.retryable for o in outcomes), outcomes
    await stuck
    assert (await store.read([one.id]))[0].access_count == 1
    await store.close()


async def test_a_server_that_is_away_at_the_start_is_named(tmp_path: Path) -> None:
    store = EpisodicStore(EpisodicSettings(url=SecretStr(f"host={tmp_path} dbname=postgres")))
    with pytest.raises(A2MError, match="Postgres is not available") as away:
        await store.open()
    assert away.value.retryable


async def test_an_error_of_the_engine_does_not_quote_records(store: EpisodicStore) -> None:
    one = draft("a secret", salience=1.7e308)
    await store.write([one], EVERYONE)
    with pytest.raises(A2MError) as overflow:
        await store.reinforce([one.id], 1.7e308, EVERYONE)
    assert "secret" not in overflow.value.message
    assert (await store.timeline(Page(Filter(ids=(one.id,))))).records[0].salience == 1.7e308
