"""The engine uses the indexes that the queries were written for."""

from collections.abc import Callable

import psycopg
import pytest
from pydantic import SecretStr

from a2m_episodic import rows as shape
from a2m_episodic.filters import compile_filter
from a2m_episodic.queries import query
from a2m_episodic.reading import by_bucket
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_protocol.where import parse_where
from a2m_server.contract import FIELDS, draft
from a2m_server.values import EVERYONE, Filter, Scope


@pytest.fixture(scope="module")
def database(postgres_database: Callable[[], str]) -> list[str]:
    return [postgres_database()]


@pytest.fixture
async def explain(database: list[str]) -> Callable[[str, dict[str, object]], str]:
    [url, *filled] = database
    if not filled:
        store = EpisodicStore(EpisodicSettings(url=SecretStr(url), maintenance_interval=3600))
        await store.open()
        for start in range(0, 3_000, 500):
            batch = [
                draft(
                    f"text {n} " + " ".join(f"w{n * i % 997}" for i in range(1, 40)),
                    session=f"s{n % 80}",
                    owner=f"o{n % 40}",
                    key=f"k/{n % 100}/{n}",
                    metadata={"n": n},
                    group=f"g{n // 2}",
                )
                for n in range(start, start + 500)
            ]
            await store.write(batch, EVERYONE)
        await store.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        database.append("filled")

    def plan(sql: str, values: dict[str, object]) -> str:
        with psycopg.connect(url, options="-c search_path=episodic,public") as connection:
            lines = connection.execute(f"EXPLAIN {sql}".encode(), values).fetchall()
        return "\n".join(line for (line,) in lines)

    return plan


def pinned(scope: Scope = EVERYONE, **conditions: object) -> Filter:
    return Filter(scope, parse_where(conditions, FIELDS))


@pytest.mark.parametrize("scope", [EVERYONE, Scope.of("o3")])
@pytest.mark.parametrize("name", ["timeline", "entries"])
def test_a_session_is_read_in_order_from_its_index(
    explain: Callable[[str, dict[str, object]], str], scope: Scope, name: str
) -> None:
    found = compile_filter(pinned(scope, session="s3"))
    values = {**found.values, "limit": 10, "vectors": False, "seq": 0, "id": ""}
    plan = explain(by_bucket("read", name, found, columns=shape.columns(shape.ENTRY)), values)
    assert "records_timeline" in plan
    assert "Seq Scan on records" not in plan


@pytest.mark.parametrize(
    ("selected", "index"),
    [
        (pinned(n=17), "records_facts"),
        (pinned(group="g5"), "records_group"),
        (Filter(key_prefix="k/7"), "records_key"),
        (Filter(ids=("x", "y")), "records_id_key"),
        (Filter(Scope.of("o3")), "records_owner"),
        (Filter(words=("17",)), "words_marks"),
    ],
)
def test_a_selective_filter_uses_its_index(
    explain: Callable[[str, dict[str, object]], str], selected: Filter, index: str
) -> None:
    found = compile_filter(selected)
    plan = explain(query("search", "candidates", filter=found.all), {**found.values, "limit": 3_001})
    assert index in plan
