"""A view's records with the port's semantics over them: reads answer from it, writes are tried on a copy."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from a2m_procedural.shelf import View
from a2m_protocol.types import Record
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import bm25, squash
from a2m_retrieval.metric import Metric
from a2m_retrieval.text import index_terms, query_terms, said
from a2m_server.ledger import Ledger
from a2m_server.memory import MemoryTier
from a2m_server.values import Search, Tombstone

KIND = "procedural"


class Bench(MemoryTier):
    """`MemoryTier` over a copy of a view; `graves` are the tombstones that the call could meet."""

    def __init__(
        self,
        view: View,
        graves: Mapping[str, Tombstone],
        *,
        metric: Metric,
        dimensions: int | None,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(KIND, KIND, metric=metric, dimensions=dimensions or view.width, clock=clock)
        held = view.ledger
        self._ledger: Ledger = replace(
            held,
            records=dict(held.records),
            order=list(held.order),
            keys=dict(held.keys),
            aliases=dict(held.aliases),
            graves=dict(graves),
            dug={},
            latest=dict(held.latest),
            elsewhere=set(held.elsewhere),
        )
        self._terms = view.terms()

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def width(self) -> int | None:
        return self._width

    def _rank(self, found: Sequence[Record], search: Search) -> dict[int, float]:
        rankings: list[dict[int, float]] = []
        if search.text is not None:
            documents = [self._terms.get(r.id) or index_terms(said(r.content, r.metadata)) for r in found]
            scores = bm25(documents, query_terms(search.text))
            rankings.append({at: squash(score) for at, score in enumerate(scores) if score > 0})
        if search.embedding is not None:
            self._check_width(len(search.embedding), self._width or len(search.embedding))
            rankings.append(self._near(found, search.embedding, search.embedding_model))
        if not rankings:
            return {at: 1 / (1 + at) for at in range(len(found))}
        if len(rankings) == 1:
            return rankings[0]
        return reciprocal_rank_fusion([sorted(r, key=lambda at, r=r: -r[at]) for r in rankings])

    def _near(self, found: Sequence[Record], query: Sequence[float], model: str | None) -> dict[int, float]:
        places = [at for at, r in enumerate(found) if r.embedding is not None and r.embedding_model == model]
        if not places:
            return {}
        matrix = np.array([found[at].embedding for at in places], dtype=np.float64)
        vector = np.array(query, dtype=np.float64)
        scores = similarities(self._metric, matrix, vector)
        return dict(zip(places, scores, strict=True))

    def _etag(self) -> str:
        return secrets.token_hex(8)


def similarities(metric: Metric, matrix: np.ndarray, vector: np.ndarray) -> list[float]:
    """`a2m_retrieval.metric.similarity` of each row with a vector."""
    if metric == "l2":
        return (1 / (1 + np.linalg.norm(matrix - vector, axis=1))).tolist()
    dots = matrix @ vector
    if metric == "dot":
        return (0.5 * (1 + np.tanh(dots / 2))).tolist()
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
    cosines = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
    return ((1 + np.clip(cosines, -1, 1)) / 2).tolist()
