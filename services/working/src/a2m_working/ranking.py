"""Ranking of candidates that stream by: what is kept is bounded by what is asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from a2m_retrieval.lexical import idf, weight
from a2m_retrieval.metric import Metric, squash_cosine, squash_dot
from a2m_working.rows import Row


class Best:
    """The `limit` rows of highest score so far; equal scores by newest, then id. An id counts once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[str, tuple[float, Row]] = {}

    def add(self, score: float, row: Row) -> None:
        self._rows[row.id] = (score, row)
        if len(self._rows) >= 2 * self._limit + 256:
            self._rows = {row.id: (score, row) for score, row in self.ranked()}

    def ranked(self) -> list[tuple[float, Row]]:
        """Best first."""
        ordered = sorted(self._rows.values(), key=lambda pair: (-pair[0], -pair[1].seq, pair[1].id))
        return ordered[: self._limit]


class WordScores:
    """BM25 in two passes over the candidates: `count` each, then `score` each."""

    def __init__(self, query: Sequence[str]) -> None:
        self._wanted = frozenset(query)
        self._documents = 0
        self._length = 0
        self._holding: Counter[str] = Counter()

    def count(self, terms: Sequence[str]) -> None:
        self._documents += 1
        self._length += len(terms)
        self._holding.update(self._wanted.intersection(terms))

    def score(self, terms: Sequence[str]) -> float:
        held = Counter(term for term in terms if term in self._wanted)
        mean = self._length / self._documents if self._documents else 0.0
        return math.fsum(
            idf(self._documents, min(self._holding[term], self._documents)) * weight(n, len(terms), mean)
            for term, n in held.items()
        )


def vector_scores(metric: Metric, query: NDArray[np.float64], rows: Sequence[Row]) -> list[float]:
    """Exact similarity of a query to each row's vector, in 0..1; all are of the query's width."""
    held = np.frombuffer(b"".join(row.vector for row in rows), "<f4").astype(np.float64)
    matrix = held.reshape(len(rows), len(query))
    if metric == "l2":
        return [1 / (1 + float(distance)) for distance in np.linalg.norm(matrix - query, axis=1)]
    dots = matrix @ query
    if metric == "dot":
        return [squash_dot(float(dot)) for dot in dots]
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
    return [squash_cosine(float(dot), float(length)) for dot, length in zip(dots, lengths, strict=True)]
