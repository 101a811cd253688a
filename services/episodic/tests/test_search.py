"""Search returns what was asked for, under any filter."""

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy
import psycopg
import pytest
from pgvector.psycopg import register_vector
from psycopg.rows import DictRow
from pydantic import SecretStr

from a2m_episodic import indexes, searching
from a2m_episodic.database import Connection, Values, rows
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_protocol.types import Draft, float32
from a2m_protocol.where import parse_where
from a2m_retrieval.metric import Metric
from a2m_retrieval.text import index_terms, query_terms
from a2m_server.contract import FIELDS, draft, name, within
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Scope, Search

ROWS = 20_000
WIDTH = 24
WORDS = [
    "river",
    "stone",
    "cloud",
    "lamp",
    "violet",
    "harbour",
    "copper",
    "maple",
    "winter",
    "signal",
    "table",
    "bread",
    "field",
    "engine",
    "paper",
    "window",
]


def vector(rng: random.Random) -> list[float]:
    return [rng.gauss(0, 1) for _ in range(WIDTH)]


@pytest.fixture(scope="module")
def large(postgres_database: Callable[[], str]) -> list[str]:
    return [postgres_database()]


@pytest.fixture
async def crowded(large: list[str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EpisodicStore]:
    """A store of 20,000 records with an index of vectors, made once."""
    store = EpisodicStore(EpisodicSettings(url=SecretStr(large[0]), maintenance_interval=3600))
    await store.open()
    if len(large) == 1:
        rng = random.Random(7)
        first = [*range(1_000), *range(4_000, ROWS, 4_000)]
        for start in range(0, len(first), 500):
            await store.write([_crowd(rng, n) for n in first[start : start + 500]], EVERYONE)
        with psycopg.connect(large[0], options="-c search_path=episodic,public") as connection:
            connection.execute((Path(__file__).parent / "crowd.sql").read_bytes())
            connection.commit()
            connection.execute("ANALYZE")
        large.append("filled")
    monkeypatch.setattr(indexes, "WORTH", 1)
    await store.maintenance.step()
    yield store
    await store.close()


def _crowd(rng: random.Random, n: int) -> Draft:
    return draft(
        " ".join([WORDS[n % 10], *rng.choices(WORDS, k=7)]) + (" unicorn" if n % 4_000 == 0 else ""),
        id=f"r{n}",
        chosen=False,
        owner=f"o{n % 20}",
        session=f"s{n % 400}",
        role="user" if n % 2 else "assistant",
        metadata={"n": n, "one": n == 4_321, "ten": n % 2_000 == 7, "thousand": n % 20 == 3, "half": n % 2},
        embedding=vector(rng),
    )


FILTERS: list[tuple[dict[str, object], int]] = [
    ({"one": True}, 1),
    ({"ten": True}, 10),
    ({"thousand": True}, 1_000),
    ({"n": 77}, 1),
    ({"n": {"gte": 500, "lt": 510}}, 10),
    ({"n": {"lt": 1_000}}, 1_000),
    ({"session": "s3"}, 50),
    ({"role": "user"}, 10_000),
    ({"half": 1}, 10_000),
    ({"role": "user", "n": {"gte": 15_000}}, 2_500),
    ({"n": {"gte": 10**30}}, 0),
    ({}, ROWS),
]


async def test_a_filtered_search_returns_all_that_match_up_to_the_limit(crowded: EpisodicStore) -> None:
    rng = random.Random(1)
    for conditions, matching in FILTERS:
        selected = Filter(where=parse_where(conditions, FIELDS))
        for limit in (1, 10, 200, 1_000):
            expected = min(limit, matching)
            by_vector = Search(selected, limit, embedding=vector(rng))
            assert len((await crowded.search(by_vector)).records) == expected, (conditions, limit)
            # Every record holds one of these words that is no stop word.
            by_text = Search(selected, limit, text=" ".join(WORDS))
            assert len((await crowded.search(by_text)).records) == expected, (conditions, limit)
        both = Search(selected, 100, text="river stone", embedding=vector(rng))
        assert len((await crowded.search(both)).records) == min(100, matching), conditions
        newest = await crowded.search(Search(selected, 30))
        assert len(newest.records) == min(30, matching)


@pytest.mark.parametrize(("mark", "matching"), [("one", 1), ("ten", 10), ("thousand", 1_000), ("n", ROWS)])
async def test_every_way_to_search_returns_exactly_what_matches(
    crowded: EpisodicStore, mark: str, matching: int
) -> None:
    rng = random.Random(4)
    condition: object = {"exists": True} if mark == "n" else True
    selected = Filter(where=parse_where({mark: condition}, FIELDS))
    for limit in (1, 10, 1_000):
        for search in (
            Search(selected, limit),
            Search(selected, limit, text=" ".join(WORDS)),
            Search(selected, limit, embedding=vector(rng)),
            Search(selected, limit, text="river stone", embedding=vector(rng)),
        ):
            found = (await crowded.search(search)).records
            assert len(found) == len({record.id for record in found}) == min(limit, matching)
            assert all(
                record.metadata is not None and record.metadata[mark] for record in found if mark != "n"
            )


async def test_an_owner_s_search_returns_only_and_all_of_theirs(crowded: EpisodicStore) -> None:
    rng = random.Random(2)
    for owners, matching in ((["o3"], 1_000), ([f"o{n}" for n in range(8)], 8_000), (["nobody"], 0)):
        selected = Filter(Scope(frozenset(owners)))
        for search in (
            Search(selected, 900, embedding=vector(rng)),
            Search(selected, 900, text=" ".join(WORDS)),
        ):
            found = (await crowded.search(search)).records
            assert len(found) == min(900, matching)
            assert {r.owner for r in found} <= set(owners)


async def test_rare_words_are_found_among_common_ones(crowded: EpisodicStore) -> None:
    found = (await crowded.search(Search(Filter(), 10, text="the unicorn of the river"))).records
    assert {r.id for r in found[:5]} == {f"r{n}" for n in range(0, ROWS, 4_000)}
    alone = (await crowded.search(Search(Filter(), 10, text="unicorns"))).records
    assert len(alone) == 5
    assert (await crowded.search(Search(Filter(), 10, text="dragon"))).records == []


async def test_the_index_finds_nearly_all_of_the_nearest(crowded: EpisodicStore) -> None:
    rng = random.Random(3)
    held = await crowded.read([f"r{n}" for n in range(ROWS)])
    matrix = numpy.array([r.embedding for r in held])
    matrix /= numpy.linalg.norm(matrix, axis=1, keepdims=True)
    for _ in range(5):
        query = vector(rng)
        cosines = matrix @ numpy.array(query) / numpy.linalg.norm(query)
        exact = {held[n].id: (1 + cosines[n]) / 2 for n in numpy.argsort(-cosines)[:20]}
        found = (await crowded.search(Search(Filter(), 20, embedding=query))).records
        assert len({r.id for r in found} & set(exact)) >= 17
        for record in found:
            assert record.score == pytest.approx(exact.get(record.id, record.score), abs=1e-5)


async def test_vectors_of_callers_are_searched_by_the_index(
    crowded: EpisodicStore, large: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Values | None]] = []

    async def noted(connection: Connection, sql: str, values: Values | None = None) -> list[DictRow]:
        asked.append((sql, values))
        return await rows(connection, sql, values)

    monkeypatch.setattr(searching, "rows", noted)
    conditions: list[dict[str, object]] = [{}, {"n": {"exists": True}}]
    for condition in conditions:
        asked.clear()
        selected = Filter(where=parse_where(condition, FIELDS))
        await crowded.search(Search(selected, 10, embedding=vector(random.Random(6))))
        [(sql, values)] = [(sql, values) for sql, values in asked if "ORDER BY v.vec::" in sql]
        with psycopg.connect(large[0], options="-c search_path=episodic,public") as connection:
            register_vector(connection)
            plan = connection.execute(f"EXPLAIN {sql}".encode(), values).fetchall()
        assert f"vectors_cosine_{WIDTH}" in str(plan)


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
async def test_scores_are_those_of_the_reference(
    postgres_database: Callable[[], str], metric: Metric
) -> None:
    store = EpisodicStore(EpisodicSettings(url=SecretStr(postgres_database()), metric=metric))
    await store.open()
    reference = MemoryTier(metric=metric)
    rng = random.Random(5)
    drafts = [draft(f"{n}", embedding=vector(rng)) for n in range(50)]
    drafts.append(draft("zero", embedding=[0.0] * WIDTH))
    for tier in (store, reference):
        await tier.write(drafts, EVERYONE)
    for query in (vector(rng), [0.0] * WIDTH):
        search = Search(Filter(), 51, embedding=float32(query))
        expected = {r.id: r.score for r in (await reference.search(search)).records}
        found = {r.id: r.score for r in (await store.search(search)).records}
        assert found == pytest.approx(expected, abs=1e-5)
    await store.close()


async def test_vectors_too_wide_for_full_precision_are_indexed_in_half(
    fresh: EpisodicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "WORTH", 1)
    rng = random.Random(9)
    drafts = [draft(embedding=[rng.gauss(0, 1) for _ in range(2_500)]) for _ in range(40)]
    await fresh.write(drafts, EVERYONE)
    await fresh.maintenance.step()
    for one in drafts[:3]:
        found = (await fresh.search(Search(Filter(), 5, embedding=one.embedding, vectors=True))).records
        assert (found[0].id, found[0].embedding) == (one.id, one.embedding)
        assert len(found) == 5


async def test_ranking_by_words_agrees_with_the_reference(fresh: EpisodicStore) -> None:
    reference = MemoryTier()
    rng = random.Random(11)
    texts = [" ".join(rng.choices(WORDS, weights=range(1, 17), k=rng.randint(3, 30))) for _ in range(300)]
    drafts = [draft(text) for text in texts]
    for tier in (fresh, reference):
        await tier.write(drafts, EVERYONE)
    await fresh.maintenance.step()
    for text in ("river of stone", "copper lamp", "the maple", "winter signal and the harbour"):
        search = Search(Filter(), 300, text=text)
        expected = (await reference.search(search)).records
        found = (await fresh.search(search)).records
        assert {r.id for r in found} == {r.id for r in expected}
        wanted = set(query_terms(text))
        assert {r.id for r in found} == {d.id for d in drafts if wanted & set(index_terms(d.content))}
        scores = {r.id: r.score for r in expected}
        assert {r.id: r.score for r in found} == pytest.approx(scores, rel=0.02)


async def test_ties_are_broken_by_the_order_of_writing(store: EpisodicStore) -> None:
    session = name()
    drafts = [draft("same words", session=session, embedding=[1.0] * 4) for _ in range(20)]
    await store.write(drafts, EVERYONE)
    newest = [d.id for d in drafts[:-6:-1]]
    for search in (
        Search(within(session), 5, text="words"),
        Search(within(session), 5, embedding=[1.0] * 4),
        Search(within(session), 5, text="words", embedding=[1.0] * 4),
    ):
        assert [r.id for r in (await store.search(search)).records] == newest
