"""Recall: as many as there are, in the right order, whatever the filter leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import FIELDS, Draft
from a2m_protocol.where import parse_where
from a2m_retrieval.lexical import bm25
from a2m_retrieval.metric import Metric, similarity
from a2m_retrieval.text import index_terms, query_terms
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.server import IN_MEMORY, ServerEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Page, Search

RECORD_FIELDS = frozenset(name for names in FIELDS.values() for name in names) - {"tier"}
MANY = 10_000
WIDTH = 8


def only(**conditions: object) -> Filter:
    return Filter(where=parse_where(conditions, RECORD_FIELDS))


def draft(content: str, **fields: object) -> Draft:
    return Draft.model_validate({"id": content, "content": content, **fields})


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 10,000 records, of which 1, 10 and 1,000 are marked."""
    folder = tmp_path_factory.mktemp("full")
    asyncio.run(_fill(folder))
    return folder


async def _fill(folder: Path) -> None:
    store = SemanticStore(EdgeEngine(folder, "cosine"))
    await store.open()
    vectors = np.random.default_rng(7).standard_normal((MANY, WIDTH)).tolist()
    for start in range(0, MANY, 500):
        await store.write([_record(n, vectors[n]) for n in range(start, start + 500)], EVERYONE)
    await store.close()


def _record(n: int, vector: list[float]) -> Draft:
    marks: JsonObject = {"n": n, "of1": n == 4_321, "of10": n % 1_000 == 7, "of1000": n % 10 == 3}
    return draft(f"fact number {n} of a kind", metadata=marks, embedding=vector, session=f"s{n % 40}")


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "matching"), [("of1", 1), ("of10", 10), ("of1000", 1_000)])
@pytest.mark.parametrize("limit", [1, 10, 100, 1_000])
async def test_a_filtered_search_returns_as_many_as_match(
    full: Path, mark: str, matching: int, limit: int
) -> None:
    store = SemanticStore(EdgeEngine(full, "cosine"))
    await store.open()
    selected, vector = only(**{mark: True}), [1.0] * WIDTH
    for search in (
        Search(selected, limit),
        Search(selected, limit, text="fact"),
        Search(selected, limit, embedding=vector),
        Search(selected, limit, text="kind facts", embedding=vector),
    ):
        found = (await store.search(search)).records
        assert len(found) == len({record.id for record in found}) == min(limit, matching)
        assert all(record.metadata is not None and record.metadata[mark] for record in found)
    page = (await store.timeline(Page(selected, limit))).records
    assert len(page) == min(limit, matching)
    assert len((await store.timeline(Page(selected))).records) == matching
    await store.close()


@pytest.mark.slow
async def test_everything_loads_in_pages_and_in_order(full: Path) -> None:
    store = SemanticStore(EdgeEngine(full, "cosine"))
    await store.open()
    found = (await store.timeline(Page(only(n={"lt": 2_500})))).records
    assert [record.metadata and record.metadata["n"] for record in found] == [*range(2_500)]
    newest = (await store.timeline(Page(Filter(), 2_345))).records
    assert [record.metadata and record.metadata["n"] for record in newest] == [*range(MANY - 2_345, MANY)]
    assert [s.records for s in (await store.sessions(EVERYONE)).sessions] == [250] * 40
    await store.close()


async def test_ties_are_the_newest_first_however_many_there_are(store: SemanticStore) -> None:
    vector = [1.0, 2.0]
    for start in range(0, 60, 20):
        twins = [
            draft(f"{n}", embedding=vector).model_copy(update={"content": "twin of " + "another " * 14})
            for n in range(start, start + 20)
        ]
        await store.write(twins, EVERYONE)
    for search in (
        Search(Filter(), 5, text="twin"),
        Search(Filter(), 5, embedding=vector),
        Search(Filter(), 5),
    ):
        found = (await store.search(search)).records
        assert [record.id for record in found] == ["59", "58", "57", "56", "55"]


async def test_records_of_one_seq_are_ordered_by_id(store: SemanticStore) -> None:
    seqs = [5, 5, 5, 5, 7, -3, 5, 5]
    drafts = [draft(f"r{n}", seq=seq, session=f"s{n}") for n, seq in enumerate(seqs)]
    await store.transfer(drafts)
    order = ["r5", "r0", "r1", "r2", "r3", "r6", "r7", "r4"]
    for limit in (1, 2, 3, 6, 7, 8, 20):
        found = (await store.timeline(Page(Filter(), limit))).records
        assert [record.id for record in found] == order[-limit:]
        seen: list[str] = []
        after = None
        while entries := await store.entries(Filter(), limit, after):
            seen += [entry.id for entry in entries]
            after = (entries[-1].seq, entries[-1].id)
        assert seen == order
    recent = (await store.search(Search(Filter(), 3))).records
    assert [record.id for record in recent] == ["r4", "r0", "r1"]


async def test_words_rank_as_bm25_does(store: SemanticStore) -> None:
    texts = [
        "the deployment failed because the database was full",
        "database database database",
        "we deploy on fridays",
        "a full moon over the harbour, and a very long sentence about nothing at all in particular",
        "coffee is served at nine",
    ]
    await store.write([draft(text) for text in texts], EVERYONE)
    for query in ("database", "full database", "deployments", "moon coffee"):
        scores = bm25([index_terms(text) for text in texts], query_terms(query))
        ranked = sorted((-score, text) for score, text in zip(scores, texts, strict=True) if score > 0)
        found = (await store.search(Search(Filter(), 10, text=query))).records
        assert found[0].content == ranked[0][1]
        assert {record.content for record in found} == {text for _, text in ranked}


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("kind", ["edge", "memory"])
async def test_each_metric_ranks_and_scores_as_it_says(metric: Metric, kind: str, edge_folder: Path) -> None:
    engine = EdgeEngine(edge_folder, metric) if kind == "edge" else ServerEngine(IN_MEMORY, "c", metric)
    store = SemanticStore(engine, metric=metric)
    await store.open()
    vectors = [[1.0, 0.0], [3.0, 3.0], [0.0, 0.0], [-1.0, 0.5], [1e15, 1.0], [1e-30, 0.0]]
    await store.write([draft(str(n), embedding=v) for n, v in enumerate(vectors)], EVERYONE)
    query = [2.0, 1.0]
    found = (await store.search(Search(Filter(), 10, embedding=query, vectors=True))).records
    assert len(found) == len(vectors)
    for record in found:
        assert record.embedding is not None
        assert record.score == pytest.approx(similarity(metric, query, record.embedding), abs=1e-5)
    await store.close()


async def test_a_vector_added_or_dropped_by_a_rewrite_is_found_or_not(store: SemanticStore) -> None:
    nearest = Search(Filter(), 5, embedding=[1.0, 0.0])
    assert (await store.search(nearest)).records == []
    await store.write([draft("a", key="k")], EVERYONE)
    assert (await store.search(nearest)).records == []
    await store.write([draft("b", key="k", embedding=[1.0, 0.0])], EVERYONE)
    assert [record.content for record in (await store.search(nearest)).records] == ["b"]
    await store.write([draft("c", key="k")], EVERYONE)
    assert (await store.search(nearest)).records == []
    assert [r.content for r in (await store.search(Search(Filter(), 5, text="c"))).records] == ["c"]
    assert (await store.search(Search(Filter(), 5, text="b"))).records == []
