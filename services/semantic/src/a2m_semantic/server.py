"""Qdrant by URL: a collection of a server or cluster, or of the client's own memory in tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_retrieval.metric import Metric
from a2m_semantic.engine import (
    DENSE,
    TERMS,
    All,
    AnyOf,
    Between,
    Clause,
    ConflictError,
    HasVector,
    Not,
    Point,
    Points,
    Prefix,
    Seen,
    Some,
    Stored,
    Terms,
    Within,
    names_of,
)
from a2m_semantic.points import FLOATS, INTEGERS, KEYWORDS, NUMBER_HIGH, NUMBER_KEY, NUMBERS_ARRAY
from a2m_server import tracing

IN_MEMORY = ":memory:"
CONFLICT = 409
SERVER_ERROR = 500
PAGE = 256

_DISTANCES = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT, "l2": models.Distance.EUCLID}


class ServerEngine:
    """An `Engine` on `qdrant_client`; a write is acknowledged when the server has logged and applied it.

    Several services may share the collection: every overwrite names the version of the point that it read, so
    that one of two concurrent writers of a point sees a `ConflictError`.
    """

    def __init__(
        self, url: str, collection: str, metric: Metric, api_key: str | None = None, timeout: int = 10
    ) -> None:
        self._url = url
        self._collection = collection
        self._distance = _DISTANCES[metric]
        self._api_key = api_key
        self._timeout = timeout
        self._opened: AsyncQdrantClient | None = None

    @property
    def shared(self) -> bool:
        return self._url != IN_MEMORY

    async def open(self) -> None:
        if self.shared:
            self._opened = AsyncQdrantClient(
                url=self._url, api_key=self._api_key, timeout=self._timeout, check_compatibility=False
            )
        else:
            self._opened = AsyncQdrantClient(location=IN_MEMORY)
        async with self._calling() as client:
            if not await client.collection_exists(self._collection):
                await self._create(client)
            if self.shared:  # the client's own memory has no indexes, and warns when asked for one
                await self._index(client)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def fix_width(self, width: int) -> int:
        async with self._calling() as client:
            held = await self._width(client)
            if held is not None:
                return held
            config = models.DenseVectorNameConfig(
                dense=models.DenseVectorConfig(size=width, distance=self._distance)
            )
            await client.create_vector_name(self._collection, DENSE, config)
            return await self._width(client) or width

    async def refit(self, width: int) -> None:
        async with self._calling() as client:
            held = await self._width(client)
            if held is not None and held != width:
                await client.delete_vector_name(self._collection, DENSE)
        await self.fix_width(width)

    async def upsert(self, points: Sequence[Point], expected: frozenset[str]) -> None:
        wanted = [_point(point) for point in points]
        async with self._calling() as client:
            if not self.shared:
                await client.upsert(self._collection, wanted, wait=True)
                return
            unchanged = _filter(AnyOf("version", tuple(sorted(expected))))
            await client.upsert(
                self._collection,
                wanted,
                wait=True,
                ordering=models.WriteOrdering.STRONG,
                update_filter=unchanged,
            )
            kept = await client.retrieve(
                self._collection,
                [point.id for point in points],
                with_payload=["version"],
                consistency=models.ReadConsistencyType.MAJORITY,
            )
        versions = {str(point.id): (point.payload or {}).get("version") for point in kept}
        if any(versions.get(point.id) != point.payload["version"] for point in points):
            raise ConflictError

    async def delete(self, where: Clause) -> None:
        async with self._calling() as client:
            await client.delete(
                self._collection,
                models.FilterSelector(filter=_filter(where)),
                wait=True,
                ordering=models.WriteOrdering.STRONG,
            )

    async def retrieve(self, ids: Sequence[str], fields: Sequence[str]) -> list[Stored]:
        async with self._calling() as client:
            found = await client.retrieve(self._collection, [*ids], with_payload=[*fields])
        return [Stored(str(point.id), point.payload or {}) for point in found]

    async def scroll(
        self, where: Clause, fields: Sequence[str], limit: int, after: str | None = None
    ) -> tuple[list[Stored], str | None]:
        async with self._calling() as client:
            found, following = await client.scroll(
                self._collection, _filter(where), limit=limit, offset=after, with_payload=[*fields]
            )
        stored = [Stored(str(point.id), point.payload or {}) for point in found]
        return stored, None if following is None else str(following)

    async def ordered(
        self,
        where: Clause,
        fields: Sequence[str],
        limit: int,
        *,
        by: str,
        descending: bool,
        start: int | None = None,
    ) -> list[Stored]:
        direction = models.Direction.DESC if descending else models.Direction.ASC
        order = models.OrderBy(key=by, direction=direction, start_from=start)
        async with self._calling() as client:
            found, _ = await client.scroll(
                self._collection, _filter(where), limit=limit, order_by=order, with_payload=[*fields]
            )
        return [Stored(str(point.id), point.payload or {}) for point in found]

    async def look(self, where: Clause) -> list[Seen]:
        seen: list[Seen] = []
        after = None
        while True:
            async with self._calling() as client:
                found, after = await client.scroll(
                    self._collection, _filter(where), limit=PAGE, offset=after, with_vectors=True
                )
            seen += [Seen(str(p.id), p.payload or {}, names_of(p.vector)) for p in found]
            if after is None:
                return seen

    async def count(self, where: Clause) -> int:
        async with self._calling() as client:
            return (await client.count(self._collection, _filter(where), exact=True)).count

    async def space(self) -> None:
        """Qdrant tells it in metrics of its own."""

    async def nearest(
        self, query: Sequence[float] | Terms, where: Clause, fields: Sequence[str], limit: int
    ) -> list[Stored]:
        wanted = (
            models.SparseVector(indices=query.indices, values=query.weights)
            if isinstance(query, Terms)
            else [*query]
        )
        async with self._calling() as client:
            found = await client.query_points(
                self._collection,
                query=wanted,
                using=TERMS if isinstance(query, Terms) else DENSE,
                query_filter=_filter(where),
                limit=limit,
                with_payload=[*fields],
            )
        return [Stored(str(point.id), point.payload or {}, point.score) for point in found.points]

    async def _create(self, client: AsyncQdrantClient) -> None:
        sparse = {TERMS: models.SparseVectorParams(modifier=models.Modifier.IDF)}
        try:
            await client.create_collection(self._collection, vectors_config={}, sparse_vectors_config=sparse)
        except UnexpectedResponse as error:
            if error.status_code != CONFLICT:  # another replica was quicker
                raise

    async def _index(self, client: AsyncQdrantClient) -> None:
        held = (await client.get_collection(self._collection)).payload_schema
        keyword = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, prefix=True)
        schemas: dict[str, models.KeywordIndexParams | models.FloatIndexParams | models.PayloadSchemaType] = {
            **dict.fromkeys((*KEYWORDS, "version"), keyword),
            **dict.fromkeys(INTEGERS, models.PayloadSchemaType.INTEGER),
            **dict.fromkeys(FLOATS, models.PayloadSchemaType.FLOAT),
            NUMBER_KEY: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, nested=NUMBERS_ARRAY),
            NUMBER_HIGH: models.FloatIndexParams(type=models.FloatIndexType.FLOAT, nested=NUMBERS_ARRAY),
        }
        for field, schema in schemas.items():
            if field not in held:
                await client.create_payload_index(self._collection, field, schema, wait=True)

    async def _width(self, client: AsyncQdrantClient) -> int | None:
        vectors = (await client.get_collection(self._collection)).config.params.vectors
        dense = vectors.get(DENSE) if isinstance(vectors, dict) else None
        return None if dense is None else dense.size

    @asynccontextmanager
    async def _calling(self) -> AsyncGenerator[AsyncQdrantClient]:
        """The client; the one place where its errors become ours."""
        if self._opened is None:
            raise unavailable("the semantic store", "it is not open")
        try:
            with tracing.querying("qdrant", "request"):
                yield self._opened
        except UnexpectedResponse as error:
            if error.status_code is not None and error.status_code < SERVER_ERROR:
                raise A2MError(Code.INTERNAL, f"Qdrant refused a request: {error}") from error
            raise unavailable("Qdrant", str(error)) from error
        except (ResponseHandlingException, ApiException, httpx.HTTPError, OSError) as error:
            raise unavailable("Qdrant", str(error) or type(error).__name__) from error


def _point(point: Point) -> models.PointStruct:
    vectors: dict[str, models.Vector] = {}
    if point.dense is not None:
        vectors[DENSE] = point.dense
    if point.terms is not None:
        vectors[TERMS] = models.SparseVector(indices=point.terms.indices, values=point.terms.weights)
    return models.PointStruct(id=point.id, vector=vectors, payload=point.payload)


def _filter(clause: Clause) -> models.Filter:
    condition = _condition(clause)
    return condition if isinstance(condition, models.Filter) else models.Filter(must=[condition])


def _condition(clause: Clause) -> models.Condition:
    match clause:
        case AnyOf(field, values):
            return models.FieldCondition(key=field, match=models.MatchAny(any=[*values]))
        case Prefix(field, text):
            return models.FieldCondition(key=field, match=models.MatchPrefix(prefix=text))
        case Between(field, gt, gte, lt, lte):
            return models.FieldCondition(key=field, range=models.Range(gt=gt, gte=gte, lt=lt, lte=lte))
        case Points(ids):
            return models.HasIdCondition(has_id=[*ids])
        case HasVector(name):
            return models.HasVectorCondition(has_vector=name)
        case Not(inner):
            return models.Filter(must_not=[_condition(inner)])
        case All(clauses):
            return models.Filter(must=[_condition(inner) for inner in clauses])
        case Some(clauses):
            return models.Filter(should=[_condition(inner) for inner in clauses])
        case Within(field, inner):
            return models.NestedCondition(nested=models.Nested(key=field, filter=_filter(inner)))
