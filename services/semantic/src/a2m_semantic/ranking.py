"""Recall: by words, by vector, by both fused, or the newest."""

from __future__ import annotations

from collections.abc import Sequence

from a2m_protocol.types import Record
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import squash
from a2m_retrieval.metric import Metric, squash_dot
from a2m_retrieval.text import query_terms
from a2m_semantic import reading
from a2m_semantic.engine import All, AnyOf, Clause, Engine, Stored
from a2m_semantic.lexical import query_vector
from a2m_semantic.points import BRIEF, origin_token, record_of, scaled
from a2m_server.values import Search

FUSED = 2
"""How many times the limit each ranking is taken when two are fused."""


class Ranking:
    """Searches by the engine, with scores in 0..1."""

    def __init__(self, engine: Engine, metric: Metric) -> None:
        self._engine = engine
        self._metric: Metric = metric

    async def search(self, search: Search, where: Clause, *, with_vectors: bool) -> list[Record]:
        """What `where` leaves, ranked as `search` asks; without vectors in the store, none is compared."""
        fields = [*BRIEF]
        if search.vectors:
            fields.append("embedding")
        if search.features:
            fields.append("features")
        if search.text is None and search.embedding is None:
            return await self._recent(where, fields, search.limit)
        if search.text is not None and search.embedding is not None:
            return await self._both(search, where, fields, with_vectors=with_vectors)
        if search.text is not None:
            found = await self._by_words(search.text, where, fields, search.limit)
        else:
            found = await self._by_vector(search, where, fields, search.limit) if with_vectors else []
        return [_scored(stored, score) for stored, score in found]

    async def _both(
        self, search: Search, where: Clause, fields: Sequence[str], *, with_vectors: bool
    ) -> list[Record]:
        """Both rankings fused by place; what the records are is read of those alone that are returned."""
        depth = max(search.limit * FUSED, 100)
        words = await self._by_words(search.text or "", where, (), depth)
        near = await self._by_vector(search, where, (), depth) if with_vectors else []
        held = {stored.id: stored for stored, _ in (*words, *near)}
        scores = reciprocal_rank_fusion([[stored.id for stored, _ in ranking] for ranking in (words, near)])
        ranked = sorted(scores.items(), key=lambda pair: (-pair[1], *_newest_first(held[pair[0]])))
        read = await self._engine.retrieve([point for point, _ in ranked[: search.limit]], fields)
        # Where one was forgotten meanwhile, there is a tombstone.
        bodies = {stored.id: stored for stored in read if "record" in stored.payload}
        return [_scored(bodies[point], score) for point, score in ranked if point in bodies]

    async def _recent(self, where: Clause, fields: Sequence[str], limit: int) -> list[Record]:
        found = await reading.newest(self._engine, where, fields, limit)
        found.sort(key=_newest_first)
        return [_scored(stored, 1 / (1 + at)) for at, stored in enumerate(found[:limit])]

    async def _by_words(
        self, text: str, where: Clause, fields: Sequence[str], limit: int
    ) -> list[tuple[Stored, float]]:
        query = query_vector(query_terms(text))
        if query is None:
            return []
        found = await reading.best(self._engine, query, where, fields, limit)
        return [(stored, squash(stored.score)) for stored in found]

    async def _by_vector(
        self, search: Search, where: Clause, fields: Sequence[str], limit: int
    ) -> list[tuple[Stored, float]]:
        origin = AnyOf("origin", (origin_token(search.embedding_model),))
        vector = scaled(search.embedding or (), self._metric)
        found = await reading.best(self._engine, vector, All((where, origin)), fields, limit)
        return [(stored, self._similarity(stored.score)) for stored in found]

    def _similarity(self, score: float) -> float:
        if self._metric == "dot":
            return squash_dot(score)
        if self._metric == "l2":
            return 1 / (1 + abs(score))
        return (1 + max(-1.0, min(1.0, score))) / 2


def _newest_first(stored: Stored) -> tuple[int, str]:
    return -stored.payload["seq"], stored.payload["id"]


def _scored(stored: Stored, score: float) -> Record:
    return record_of(stored).model_copy(update={"score": score})
