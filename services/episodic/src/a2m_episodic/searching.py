"""Search: words by BM25, vectors by the index or exactly, both fused by rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgvector import Vector

from a2m_episodic import rows as shape
from a2m_episodic.database import Connection, Database, rows
from a2m_episodic.embedding import dimensions
from a2m_episodic.filters import Conditions, Value, compile_filter
from a2m_episodic.indexes import OPERATORS, index_type
from a2m_episodic.queries import query
from a2m_episodic.reading import by_bucket
from a2m_episodic.state import State
from a2m_episodic.terms import query_vector, term_marks
from a2m_protocol.errors import embedding_mismatch
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import squash
from a2m_retrieval.metric import Metric, squash_dot
from a2m_retrieval.text import query_terms
from a2m_server.values import Found, Search

FEW = 3_000
"""Up to so many records that match a filter are all compared, which is exact and quicker than an index."""
MANY = 5_000
"""From so many records on, the size of the corpus is what the maintenance counted last."""
DEPTH = 100
MAX_TERMS = 256
RARE = 0.15
"""Below this share of records holding any of the terms, the index of marks is quicker than reading all."""

Ranking = dict[int, float]


@dataclass(frozen=True, slots=True)
class Over:
    """Which records a ranking is over: SQL in which `@.` stands for the alias of a table, and its values.

    `few` says that they are listed by number, so that comparing all of them is cheap.
    """

    filter: str
    joined: bool
    values: Mapping[str, Value]
    few: bool

    def parts(self, alias: str) -> dict[str, str]:
        join = f"JOIN records r ON r.pk = {alias}.pk" if self.joined else ""
        return {"join": join, "filter": self.filter.replace("@.", f"{alias}.")}


class Searcher:
    def __init__(self, database: Database, state: State, metric: Metric) -> None:
        self._database = database
        self._state = state
        self._metric: Metric = metric

    async def search(self, search: Search) -> Found:
        found = compile_filter(search.filter)
        async with self._database.connection() as connection:
            if search.embedding is not None:
                await self._check_width(connection, len(search.embedding))
            scores = await self._rank(connection, found, search)
            values = {"pks": list(scores), "vectors": search.vectors}
            columns = shape.columns(shape.WHOLE if search.features else shape.RECORD)
            sql = query("read", "found", columns=columns)
            read = await rows(connection, sql, values) if scores else []
        records = [shape.record(row, scores[row["pk"]]) for row in read]
        records.sort(key=lambda r: (r.score, r.seq, r.id), reverse=True)
        return Found(records)

    async def _check_width(self, connection: Connection, width: int) -> None:
        if width != (self._state.dimensions or width):
            # Another process may have changed it.
            held = await dimensions(connection) or width
            self._state.fixed(held)
            if held != width:
                raise embedding_mismatch(held, width)

    async def _rank(self, connection: Connection, found: Conditions, search: Search) -> Ranking:
        """Scores of the best, at most `limit`, by number."""
        if search.text is None and search.embedding is None:
            return await _recent(connection, found, search.limit)
        terms = [] if search.text is None else term_marks(query_terms(search.text)[:MAX_TERMS])
        if not terms and search.embedding is None:
            return {}
        over = await _over(connection, found)
        if over is None:
            return {}
        if search.embedding is None:
            return await _lexical(connection, over, terms, search.limit)
        if search.text is None:
            return await self._nearest(connection, over, search, search.limit)
        depth = max(2 * search.limit, DEPTH)
        rankings = [
            await _lexical(connection, over, terms, depth) if terms else {},
            await self._nearest(connection, over, search, depth),
        ]
        fused = reciprocal_rank_fusion([list(ranking) for ranking in rankings])
        return dict(list(fused.items())[: search.limit])

    async def _nearest(self, connection: Connection, over: Over, search: Search, limit: int) -> Ranking:
        embedding = search.embedding or ()
        values = {
            **over.values,
            "query": Vector(list(embedding)),
            "model": search.embedding_model,
            "limit": limit,
        }
        # Not `IS NOT DISTINCT FROM`: the planner takes that to leave next to nothing, and spares the index.
        model = "IS NULL" if search.embedding_model is None else "= %(model)s"
        parts = {"operator": OPERATORS[self._metric].sign, "model": model, **over.parts("v")}
        read: Sequence[shape.Row] = []
        if self._state.indexed and not over.few:
            indexed = index_type(len(embedding))
            factor = "2" if indexed.startswith("halfvec") else "1"
            read = await rows(
                connection, query("search", "nearest", type=indexed, factor=factor, **parts), values
            )
        if len(read) < limit:
            read = await rows(connection, query("search", "exact", **parts), values)
        return {row["pk"]: _similarity(self._metric, row["distance"]) for row in read}


async def _over(connection: Connection, found: Conditions) -> Over | None:
    """What to rank: the records themselves when the filter leaves few, None when it leaves none."""
    if found.everything:
        return Over("TRUE", joined=False, values={}, few=False)
    sql = query("search", "candidates", filter=found.all)
    read = await rows(connection, sql, {**found.values, "limit": FEW + 1})
    if not read:
        return None
    if len(read) <= FEW:
        pks = [row["pk"] for row in read]
        return Over("@.pk = ANY(%(pks)s::bigint[])", joined=False, values={"pks": pks}, few=True)
    if not found.rest:
        return Over(found.owners, joined=False, values=found.values, few=False)
    return Over(found.all, joined=True, values=found.values, few=False)


async def _recent(connection: Connection, found: Conditions, limit: int) -> Ranking:
    read = await rows(connection, by_bucket("search", "recent", found), {**found.values, "limit": limit})
    return {row["pk"]: 1 / (1 + at) for at, row in enumerate(read)}


async def _lexical(connection: Connection, over: Over, terms: Sequence[int], limit: int) -> Ranking:
    statistics = query("search", "statistics_of" if over.few else "statistics")
    counted = await rows(connection, statistics, {**over.values, "terms": terms, "many": MANY})
    frequencies = {row["term"]: row["held"] for row in counted if row["held"]}
    if not frequencies:
        return {}
    documents = max(counted[0]["documents"], *frequencies.values())
    parts = over.parts("l")
    if not over.few and sum(frequencies.values()) < RARE * documents:
        parts["filter"] += " AND " + query("search", "holding")
    values = {**over.values, "terms": terms, "query": query_vector(frequencies, documents), "limit": limit}
    read = await rows(connection, query("search", "lexical", **parts), values)
    return {row["pk"]: squash(-row["score"]) for row in read}


def _similarity(metric: Metric, distance: float) -> float:
    """The score of a distance as pgvector gives it, the same as `a2m_retrieval.metric.similarity`."""
    if metric == "l2":
        return 1 / (1 + distance)
    if metric == "dot":
        return squash_dot(-distance)
    return 0.5 if math.isnan(distance) else 1 - min(max(distance, 0.0), 2.0) / 2
