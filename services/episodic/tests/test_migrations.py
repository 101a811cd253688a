"""Starting over a database."""

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from pydantic import SecretStr

from a2m_episodic.migrations import migrate
from a2m_episodic.queries import migrations
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_protocol.errors import A2MError
from a2m_server.contract import draft
from a2m_server.values import EVERYONE


async def test_migrations_run_once_however_many_start_together(postgres_database: Callable[[], str]) -> None:
    settings = EpisodicSettings(url=SecretStr(postgres_database()))
    applied = await asyncio.gather(*(migrate(settings) for _ in range(4)))
    assert sorted(applied) == sorted([[], [], [], list(migrations())])
    assert await migrate(settings) == []


async def test_stores_that_start_together_share_a_database(postgres_database: Callable[[], str]) -> None:
    settings = EpisodicSettings(url=SecretStr(postgres_database()))
    first, second = EpisodicStore(settings), EpisodicStore(settings)
    await asyncio.gather(first.open(), second.open())
    one = draft("shared", embedding=[1.0, 2.0])
    await first.write([one], EVERYONE)
    assert [r.content for r in await second.read([one.id])] == ["shared"]
    assert (await second.info()).dimensions == 2
    await asyncio.gather(first.close(), second.close())


async def test_a_database_of_a_newer_version_is_left_alone(postgres_database: Callable[[], str]) -> None:
    url = postgres_database()
    settings = EpisodicSettings(url=SecretStr(url))
    await migrate(settings)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO episodic.migrations (number, name) VALUES (9999, 'later')")
    with pytest.raises(A2MError, match="9999"):
        await migrate(settings)


async def test_a_width_that_the_database_contradicts_is_refused(postgres_database: Callable[[], str]) -> None:
    url = SecretStr(postgres_database())
    store = EpisodicStore(EpisodicSettings(url=url, dimensions=8))
    await store.open()
    assert (await store.info()).dimensions == 8
    await store.close()
    with pytest.raises(A2MError, match="8 numbers"):
        await EpisodicStore(EpisodicSettings(url=url, dimensions=9)).open()
