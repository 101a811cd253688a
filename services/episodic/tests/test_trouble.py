"""Postgres out of connections, time, room or the right to write: each is named, loses nothing and passes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from a2m_engines.postgres import Postgres
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_protocol.errors import A2MError
from a2m_server.contract import draft, name, within
from a2m_server.values import EVERYONE, Filter, Page


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server of these tests' own, to be starved."""
    with Postgres(tmp_path_factory.mktemp("postgres"), durable=False) as started:
        yield started


@asynccontextmanager
async def opened(url: str, **settings: float) -> AsyncIterator[EpisodicStore]:
    given = {"pool_min": 1, "pool_max": 2, "pool_wait": 1.0, "maintenance_interval": 3_600, **settings}
    store = EpisodicStore(EpisodicSettings.model_validate({"url": SecretStr(url), **given}))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


async def works(store: EpisodicStore) -> bool:
    try:
        await store.ready()
        await store.write([draft()], EVERYONE)
    except A2MError:
        return False
    return True


async def contents(store: EpisodicStore, session: str) -> list[str]:
    found = await store.timeline(Page(within(session)))
    listed = {info.session: info.records for info in (await store.sessions(EVERYONE)).sessions}
    assert listed.get(session, 0) == len(found.records)
    return [record.content for record in found.records]


async def test_others_that_take_all_connections_are_named_and_it_goes_on_when_they_leave(
    engine: Postgres,
) -> None:
    session = name()
    async with opened(engine.url) as store, AsyncExitStack() as others:
        await store.write([draft("before", session=session)], EVERYONE)
        first = await others.enter_async_context(await psycopg.AsyncConnection.connect(engine.url))

        async def crowd() -> None:
            while True:
                try:
                    other = await psycopg.AsyncConnection.connect(engine.url)
                except psycopg.OperationalError:
                    return
                await others.enter_async_context(other)

        await crowd()
        # Whoever holds a connection keeps it.
        assert await contents(store, session) == ["before"]
        await first.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a2m-episodic'"
        )
        await crowd()
        for call in (
            lambda: store.write([draft("meanwhile", session=session)], EVERYONE),
            lambda: store.timeline(Page(Filter())),
            store.ready,
        ):
            with pytest.raises(A2MError, match="raise max_connections") as refused:
                await call()
            assert refused.value.retryable
        await others.aclose()
        await until(lambda: works(store))
        assert await contents(store, session) == ["before"]


async def test_a_query_that_is_cancelled_leaves_nothing_and_says_by_what(engine: Postgres) -> None:
    session = name()
    held = draft("held", session=session, key=name("k"))
    async with opened(engine.url, statement_timeout=0.3) as store:
        await store.write([held], EVERYONE)
        async with await psycopg.AsyncConnection.connect(engine.url) as other:
            await other.execute("LOCK TABLE episodic.vectors IN ACCESS EXCLUSIVE MODE")
            again = draft("rewritten", session=session, key=held.key, embedding=[1.0, 2.0])
            batch = [draft("new", session=session), again]
            with pytest.raises(A2MError, match="A2M_EPISODIC_STATEMENT_TIMEOUT") as cancelled:
                await store.write(batch, EVERYONE)
            assert cancelled.value.retryable
            await other.rollback()
        assert await contents(store, session) == ["held"]
        assert [w.outcome for w in await store.write(batch, EVERYONE)] == ["created", "replaced"]
        assert await contents(store, session) == ["rewritten", "new"]


async def test_a_server_that_takes_no_writes_still_reads_and_is_tried_anew(
    postgres_database: Callable[[], str],
) -> None:
    session, url = name(), postgres_database()
    async with opened(url) as store, await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
        await store.write([draft("before", session=session)], EVERYONE)
        database = psycopg.sql.Identifier(admin.info.dbname)
        alter = psycopg.sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        await admin.execute(alter.format(database, psycopg.sql.SQL("on")))
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'a2m-episodic' AND datname = current_database()"
        )

        async def refused() -> bool:
            with pytest.raises(A2MError) as raised:
                await store.write([draft("meanwhile", session=session)], EVERYONE)
            assert raised.value.retryable
            return "it takes no writes" in raised.value.message

        await until(refused)
        assert await contents(store, session) == ["before"]
        await admin.execute("SET default_transaction_read_only = off")
        await admin.execute(alter.format(database, psycopg.sql.SQL("off")))
        await until(lambda: works(store))
        assert await contents(store, session) == ["before"]


async def test_a_server_that_is_not_set_to_be_durable_is_complained_of(
    engine: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(engine.url):
        assert "fsync is off: a loss of power can ruin the whole database" in caplog.text
        assert "full_page_writes" not in caplog.text


async def test_a_server_that_is_starting_is_told_from_one_that_is_not_there(
    tmp_path: Path, postgres_database: Callable[[], str]
) -> None:
    for url, why in (
        (f"host={tmp_path} dbname=x", "nothing listens there"),
        (_missing(postgres_database), "exist"),
    ):
        with pytest.raises(A2MError, match=why) as refused:
            await EpisodicStore(EpisodicSettings(url=SecretStr(url))).open()
        assert refused.value.retryable


def _missing(postgres_database: Callable[[], str]) -> str:
    """The URL of a database that there is not, on a server that there is."""
    address, mark, query = postgres_database().partition("?")
    return f"{address.rpartition('/')[0]}/nowhere{mark}{query}"
