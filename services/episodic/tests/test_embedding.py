"""Vectors of another width, their index, and what a database from before is found to lack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from pydantic import SecretStr

from a2m_episodic import indexes
from a2m_episodic.queries import migrations
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_protocol.errors import A2MError, Code
from a2m_server.contract import draft
from a2m_server.values import EVERYONE, Filter, Search, Seen

INDEXES = "SELECT indexname FROM pg_indexes WHERE tablename = 'vectors' AND indexname LIKE 'vectors_cosine%'"
BLANKS = ["", " \t\r\n", "\u3000\u00a0\u2003", "\x1c\x1f\x85"]


async def test_the_index_of_the_old_width_goes_and_one_of_the_new_is_built(
    postgres_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "WORTH", 4)
    url = postgres_database()
    store = EpisodicStore(EpisodicSettings(url=SecretStr(url)))
    await store.open()
    drafts = [draft(f"fact {n}", embedding=[1.0, float(n)], embedding_model="m") for n in range(40)]
    await store.write(drafts, EVERYONE)
    await store.maintenance.step()
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(INDEXES).fetchall() == [("vectors_cosine_2",)]
        records = await store.read([d.id for d in drafts])
        seen = [Seen(r.id, r.etag, [1.0, 0.0, float(n)], "wide") for n, r in enumerate(records)]
        assert (await store.embed(seen[:1]))[seen[0].id]
        assert connection.execute("SELECT count(*) FROM episodic.vectors").fetchall() == [(1,)]
        assert ("vectors_cosine_2",) not in connection.execute(INDEXES).fetchall()
        records = await store.read([d.id for d in drafts[1:]])
        seen = [Seen(r.id, r.etag, [1.0, 0.0, float(n)], "wide") for n, r in enumerate(records)]
        assert all((await store.embed(seen)).values())
        await store.maintenance.step()
        assert connection.execute(INDEXES).fetchall() == [("vectors_cosine_3",)]
    near = Search(Filter(), 40, embedding=[1.0, 0.0, 0.0], embedding_model="wide")
    assert len((await store.search(near)).records) == 40
    await store.close()


async def test_another_process_learns_of_a_new_width(postgres_database: Callable[[], str]) -> None:
    settings = EpisodicSettings(url=SecretStr(postgres_database()))
    first, second = EpisodicStore(settings), EpisodicStore(settings)
    await first.open()
    await second.open()
    one = draft("fact", embedding=[1.0, 0.0], embedding_model="m")
    await first.write([one], EVERYONE)
    assert (await second.info()).dimensions == 2
    [record] = await first.read([one.id])
    await first.embed([Seen(record.id, record.etag, [0.0, 0.0, 1.0], "wide")])
    near = Search(Filter(), 1, embedding=[0.0, 0.0, 1.0], embedding_model="wide")
    assert [r.id for r in (await second.search(near)).records] == [one.id]
    await second.write([draft("more", embedding=[0.0, 1.0, 0.0], embedding_model="wide")], EVERYONE)
    with pytest.raises(A2MError) as caught:
        await second.write([draft("late", embedding=[0.0, 1.0], embedding_model="m")], EVERYONE)
    assert caught.value.code == Code.EMBEDDING_MISMATCH
    await first.close()
    await second.close()


async def test_a_change_of_width_ends_though_the_request_has_timed_out(
    postgres_database: Callable[[], str],
) -> None:
    url = postgres_database()
    store = EpisodicStore(EpisodicSettings(url=SecretStr(url)))
    await store.open()
    one = draft("fact", embedding=[1.0, 0.0], embedding_model="m")
    [wrote] = await store.write([one], EVERYONE)
    with psycopg.connect(url) as reader:
        # As long as somebody reads the old vectors they cannot be cleared.
        reader.execute("SELECT FROM episodic.vectors")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await store.embed([Seen(one.id, wrote.etag, [0.0, 0.0, 1.0], "wide")])
        assert (await store.info()).dimensions == 2
    async with asyncio.timeout(10):
        while (await store.info()).dimensions != 3:  # noqa: ASYNC110 the change tells nobody
            await asyncio.sleep(0.02)
    [kept] = await store.read([one.id])
    assert kept.embedding == [0.0, 0.0, 1.0]
    await store.close()


async def test_what_is_not_there_fixes_no_width(postgres_database: Callable[[], str]) -> None:
    store = EpisodicStore(EpisodicSettings(url=SecretStr(postgres_database())))
    await store.open()
    assert await store.embed([Seen("nobody", "", [0.0, 1.0], "m")]) == {"nobody": False}
    await store.write([draft("wide", embedding=[0.0, 0.0, 1.0])], EVERYONE)
    assert (await store.info()).dimensions == 3
    await store.close()


async def test_a_width_that_the_settings_fix_stays(postgres_database: Callable[[], str]) -> None:
    store = EpisodicStore(EpisodicSettings(url=SecretStr(postgres_database()), dimensions=2))
    await store.open()
    one = draft("fact")
    [wrote] = await store.write([one], EVERYONE)
    with pytest.raises(A2MError) as caught:
        await store.embed([Seen(one.id, wrote.etag, [0.0, 0.0, 1.0], "wide")])
    assert caught.value.code == Code.EMBEDDING_MISMATCH
    await store.close()


async def test_a_database_from_before_lists_what_has_no_vector(postgres_database: Callable[[], str]) -> None:
    url = postgres_database()
    store = EpisodicStore(EpisodicSettings(url=SecretStr(url)))
    await store.open()
    bare, whole = draft("bare"), draft("whole", embedding=[1.0], embedding_model="m")
    await store.write([bare, whole, *map(draft, BLANKS)], EVERYONE)
    await store.close()
    last = max(number for number, (name, _) in migrations().items() if name == "unseen")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = episodic, public")
        connection.execute("ALTER TABLE records DROP COLUMN unseen")
        connection.execute("DROP INDEX records_model")
        connection.execute("DELETE FROM migrations WHERE number = %s", [last])
    store = EpisodicStore(EpisodicSettings(url=SecretStr(url)))
    await store.open()
    assert [entry.id for entry in await store.entries(Filter(without=""), 10, None)] == [bare.id]
    await store.close()
