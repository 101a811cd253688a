"""What is done in the background."""

import random
import time
from collections.abc import Callable

import psycopg
import pytest
from pydantic import SecretStr

from a2m_episodic import indexes
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_server.contract import draft, name
from a2m_server.values import EVERYONE, Filter, Search


def quiet(url: str, **settings: object) -> EpisodicStore:
    return EpisodicStore(
        EpisodicSettings.model_validate({"url": SecretStr(url), "maintenance_interval": 3600, **settings})
    )


async def test_tombstones_are_purged_when_they_expire(postgres_database: Callable[[], str]) -> None:
    store = quiet(url := postgres_database(), tombstone_days=2)
    await store.open()
    drafts = [draft(session=name()) for _ in range(3)]
    await store.write(drafts, EVERYONE)
    ids = [d.id for d in drafts]
    await store.forget(Filter(ids=tuple(ids)))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "UPDATE episodic.tombstones SET buried_at = buried_at - interval '49 hours' WHERE id <> %s",
            [ids[0]],
        )
    await store.maintenance.step()
    assert [grave.id for grave in await store.tombstones(ids)] == [ids[0]]
    await store.close()


async def test_nothing_of_a_forgotten_text_is_left_in_any_table(postgres_database: Callable[[], str]) -> None:
    store = quiet(url := postgres_database())
    await store.open()
    one = draft(
        "xyzzy plugh", role="xyzzy", metadata={"xyzzy": "xyzzy"}, features="xyzzy", uri="xyzzy", group="xyzzy"
    )
    await store.write([one, draft("other")], EVERYONE)
    await store.forget(Filter(ids=(one.id,)))
    await store.maintenance.step()
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'episodic'"
        ).fetchall()
        held = [
            row
            for (table,) in tables
            for row in connection.execute(f"SELECT t::text FROM episodic.{table} t".encode()).fetchall()
        ]
    assert not [row for row in held if "xyzzy" in row[0]]
    assert (await store.search(Search(Filter(), 5, text="xyzzy"))).records == []
    await store.close()


async def test_an_index_that_was_left_half_built_is_built_again(
    postgres_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "WORTH", 1)
    store = quiet(url := postgres_database(), dimensions=4)
    await store.open()
    rng = random.Random(1)
    await store.write([draft(embedding=[rng.random() for _ in range(4)]) for _ in range(50)], EVERYONE)
    await store.maintenance.step()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = episodic, public")
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'vectors_cosine_4'::regclass"
        assert connection.execute(valid).fetchone() == (True,)
        connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'vectors_cosine_4'::regclass"
        )
        await store.maintenance.step()
        assert connection.execute(valid).fetchone() == (True,)
    await store.close()


async def test_weights_follow_the_mean_length_of_the_corpus(postgres_database: Callable[[], str]) -> None:
    store = quiet(url := postgres_database())
    await store.open()
    speaker = {"speaker": "Ann"}
    drafts = [draft("word " * 200 + str(n), metadata=speaker) for n in range(250)]
    await store.write(drafts, EVERYONE)
    await store.maintenance.step()
    late = draft("word " * 201, metadata=speaker)
    await store.write([late], EVERYONE)
    with psycopg.connect(url) as connection:
        baked = connection.execute("SELECT DISTINCT baked FROM episodic.lexical").fetchall()
        counted = connection.execute("SELECT documents FROM episodic.corpus").fetchone()
    assert baked == [(202.0,)]
    assert counted == (250,)
    await store.close()


async def test_one_process_at_a_time_does_it(postgres_database: Callable[[], str]) -> None:
    first, second = quiet(url := postgres_database()), quiet(url)
    await first.open()
    await second.open()
    started = time.monotonic()
    await first.maintenance.step()
    await second.maintenance.step()
    assert time.monotonic() - started < 10
    await first.close()
    await second.close()
