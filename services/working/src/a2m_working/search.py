"""Recall: candidates stream by, ranked by words and exactly by callers' vectors, or by both fused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from a2m_protocol.errors import embedding_mismatch
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import squash
from a2m_retrieval.metric import Metric
from a2m_retrieval.text import index_terms, query_terms, said
from a2m_server.values import Search
from a2m_working.buckets import Buckets
from a2m_working.ranking import Best, WordScores, vector_scores
from a2m_working.rows import Row
from a2m_working.selection import Selection

CACHE = 2_000
POOL = 256


async def ranked(buckets: Buckets, metric: Metric, search: Search) -> list[tuple[float, Row]]:
    """The best of what matches with their scores, best first."""
    if search.text is None and search.embedding is None:
        return await _newest(buckets, search)
    candidates = _Candidates(buckets, search)
    # A fused rank counts for little beyond a few hundred; one ranking alone needs no more than the limit.
    both = search.text is not None and search.embedding is not None
    pool = max(POOL, 4 * search.limit) if both else search.limit
    by_words, by_vector = Best(pool), Best(pool)
    words = None if search.text is None else WordScores(query_terms(search.text))
    if words is not None:
        async for batch in candidates.batches():
            for row in batch:
                words.count(_terms(row))
    async for batch in candidates.batches():
        if words is not None:
            _add_by_words(by_words, words, batch)
        if search.embedding is not None:
            _add_by_vector(by_vector, metric, search, batch)
    if both:
        return _fused(by_words, by_vector)[: search.limit]
    return (by_vector if words is None else by_words).ranked()


class _Candidates:
    """Active matching rows, walked as often as needed; few of them are read once."""

    def __init__(self, buckets: Buckets, search: Search) -> None:
        whole = search.vectors or search.embedding is not None
        self._selection = Selection(buckets, search.filter, whole=whole, active=True)
        self._kept: list[list[Row]] | None = None

    async def batches(self) -> AsyncIterator[list[Row]]:
        if self._kept is not None:
            for batch in self._kept:
                yield batch
            return
        keeping: list[list[Row]] | None = []
        room = CACHE
        async for batch in self._selection.batches():
            room -= len(batch)
            keeping = None if keeping is None or room < 0 else [*keeping, batch]
            yield batch
        self._kept = keeping


async def _newest(buckets: Buckets, search: Search) -> list[tuple[float, Row]]:
    best = Best(search.limit)
    selection = Selection(buckets, search.filter, whole=search.vectors, active=True, enough=search.limit)
    async for batch in selection.batches():
        for row in batch:
            best.add(0.0, row)
    return [(1 / (1 + at), row) for at, (_, row) in enumerate(best.ranked())]


def _add_by_words(best: Best, words: WordScores, batch: list[Row]) -> None:
    for row in batch:
        score = words.score(_terms(row))
        if score > 0:
            best.add(squash(score), row)


def _add_by_vector(best: Best, metric: Metric, search: Search, batch: list[Row]) -> None:
    query = np.asarray(search.embedding, np.float64)
    held = [
        row for row in batch if row.vector and row.fields.get("embedding_model") == search.embedding_model
    ]
    for row in held:
        if len(row.vector) != 4 * len(query):
            raise embedding_mismatch(len(row.vector) // 4, len(query))
    if held:
        for score, row in zip(vector_scores(metric, query, held), held, strict=True):
            best.add(score, row)


def _fused(by_words: Best, by_vector: Best) -> list[tuple[float, Row]]:
    rankings = [by_words.ranked(), by_vector.ranked()]
    rows = {row.id: row for ranking in rankings for _, row in ranking}
    scores = reciprocal_rank_fusion([[row.id for _, row in ranking] for ranking in rankings])
    found = [(score, rows[record_id]) for record_id, score in scores.items()]
    return sorted(found, key=lambda pair: (-pair[0], -pair[1].seq, pair[1].id))


def _terms(row: Row) -> list[str]:
    if not row.terms:
        row.terms.extend(index_terms(said(row.content, row.fields.get("metadata"))))
    return row.terms
