"""Qdrant in process: a shard of Qdrant Edge in a folder of one process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import qdrant_edge as qdrant

from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_retrieval.metric import Metric
from a2m_semantic import heap
from a2m_semantic.engine import (
    DENSE,
    TERMS,
    All,
    AnyOf,
    Between,
    Clause,
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
from a2m_semantic.shard import SHARD, Shard, make, sync
from a2m_server import tracing
from a2m_server.sizes import space

PAGE = 256

log = logging.getLogger(__name__)

_DISTANCES = {"cosine": "Cosine", "dot": "Dot", "l2": "Euclid"}

ROOM = 64 * 2**20
"""Bytes that have to be free for a write: a new segment of the log and one of vectors take as much."""
RENEW_AFTER = 4_096
RENEW_PART = 8
"""A shard is loaded anew after so many points were written, and an eighth of those that it holds."""

Result = TypeVar("Result")


class EdgeEngine:
    """An `Engine` on `qdrant_edge`, whose calls block: each runs in a worker thread.

    Every write is in the write-ahead log, and that on disk, when it returns: it survives a loss of power.
    `flush`, which holds the interpreter, brings what is logged into its files and trims the log; a background
    task calls it within `flush_seconds`. Much of what was overwritten or deleted stays in memory, so now and
    then that task has the shard loaded anew, which takes about as long. `optimize` is never called: it would
    hold the interpreter for minutes, and exact search is fast enough.
    """

    shared = False

    def __init__(self, folder: Path, metric: Metric, flush_seconds: float = 10.0) -> None:
        self._folder = folder
        self._distance: qdrant.Distance = getattr(qdrant.Distance, _DISTANCES[metric])
        self._flush_seconds = flush_seconds
        self._shard: Shard | None = None
        self._written = 0
        self._lock: int | None = None
        self._dirty = asyncio.Event()
        self._flusher: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._lock = await asyncio.to_thread(_acquire, self._folder)
        heap.share()
        try:
            await self._call(lambda: make(self._folder))
            self._shard = Shard(self._folder)
            await self._use(lambda shard: shard.info())
        except BaseException:
            self._shard = None
            os.close(self._lock)
            self._lock = None
            raise
        self._flusher = asyncio.create_task(self._tend_when_dirty())

    async def close(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flusher
            self._flusher = None
        try:
            if self._shard is not None:
                shard, self._shard = self._shard, None
                await self._call(lambda: shard.close(ended=True))
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    async def fix_width(self, width: int) -> int:
        # Creating a vector that exists already changes nothing.
        await self._update(lambda: qdrant.UpdateOperation.create_dense_vector(DENSE, width, self._distance))
        return width

    async def refit(self, width: int) -> None:
        try:
            await self.fix_width(width)
        except A2MError as error:
            # The width in force can only be told from the refusal of another.
            if "different parameters" not in str(error):
                raise
            await self._update(lambda: qdrant.UpdateOperation.delete_vector_name(DENSE))
            await self.fix_width(width)

    async def upsert(self, points: Sequence[Point], expected: frozenset[str]) -> None:  # noqa: ARG002 not shared
        if any(point.dense is not None or point.terms is not None for point in points):
            _check_room(self._folder)
        await self._update(lambda: qdrant.UpdateOperation.upsert_points([*map(_point, points)]))
        self._written += len(points)

    async def delete(self, where: Clause) -> None:
        await self._update(lambda: qdrant.UpdateOperation.delete_points_by_filter(_filter(where)))

    async def retrieve(self, ids: Sequence[str], fields: Sequence[str]) -> list[Stored]:
        found = await self._use(
            lambda shard: shard.retrieve([*ids], with_payload=[*fields], with_vector=False)
        )
        return [Stored(str(record.id), record.payload or {}) for record in found]

    async def scroll(
        self, where: Clause, fields: Sequence[str], limit: int, after: str | None = None
    ) -> tuple[list[Stored], str | None]:
        request = qdrant.ScrollRequest(
            offset=after,
            limit=limit,
            filter=_filter(where),
            with_payload=[*fields],
            with_vector=False,
        )
        found, following = await self._use(lambda shard: shard.scroll(request))
        stored = [Stored(str(record.id), record.payload or {}) for record in found]
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
        direction = qdrant.Direction.Desc if descending else qdrant.Direction.Asc
        request = qdrant.ScrollRequest(
            limit=limit,
            filter=_filter(where),
            with_payload=[*fields],
            with_vector=False,
            order_by=qdrant.OrderBy(by, direction, start),
        )
        found, _ = await self._use(lambda shard: shard.scroll(request))
        return [Stored(str(record.id), record.payload or {}) for record in found]

    async def look(self, where: Clause) -> list[Seen]:
        seen: list[Seen] = []
        after: str | None = None
        while True:
            request = qdrant.ScrollRequest(
                offset=after, limit=PAGE, filter=_filter(where), with_payload=True, with_vector=True
            )
            found, following = await self._use(lambda shard, request=request: shard.scroll(request))
            seen += [Seen(str(r.id), r.payload or {}, names_of(r.vector)) for r in found]
            if following is None:
                return seen
            after = str(following)

    async def count(self, where: Clause) -> int:
        request = qdrant.CountRequest(exact=True, filter=_filter(where))
        return await self._use(lambda shard: shard.count(request))

    async def space(self) -> tuple[int, int]:
        return await self._call(lambda: space(self._folder))

    async def nearest(
        self, query: Sequence[float] | Terms, where: Clause, fields: Sequence[str], limit: int
    ) -> list[Stored]:
        if isinstance(query, Terms):
            nearest = qdrant.Query.Nearest(qdrant.SparseVector(query.indices, query.weights), using=TERMS)
        else:
            nearest = qdrant.Query.Nearest([*query], using=DENSE)
        request = qdrant.QueryRequest(
            limit=limit,
            query=nearest,
            filter=_filter(where),
            with_payload=[*fields],
            with_vector=False,
            params=qdrant.SearchParams(exact=True),
        )
        found = await self._use(lambda shard: shard.query(request))
        return [Stored(str(point.id), point.payload or {}, point.score) for point in found]

    async def _update(self, operation: Callable[[], qdrant.UpdateOperation]) -> None:
        def update(shard: qdrant.EdgeShard) -> None:
            shard.update(operation())
            _sync_log(self._folder / SHARD / "wal")

        await self._use(update)
        self._dirty.set()

    async def flush(self) -> None:
        """Bring what is logged into the files; the log of it goes."""
        await self._use(lambda shard: shard.flush())

    async def renew(self) -> None:
        """Have the shard loaded anew by who uses it next, without what it keeps in memory of the past."""
        await self._call(self._open_shard().close)
        await asyncio.to_thread(heap.trim)
        self._written = 0

    async def tend(self) -> None:
        """Flush, and have the shard loaded anew if enough was written since it was loaded."""
        await self.flush()
        if self._written >= RENEW_AFTER:
            held = await self._use(lambda shard: shard.info().points_count)
            if self._written >= held // RENEW_PART:
                await self.renew()

    async def _tend_when_dirty(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(self._flush_seconds)
            self._dirty.clear()
            try:
                await self.tend()
            except A2MError as error:
                log.error("cannot flush, so the log of writes grows: %s", error)
                self._dirty.set()
            except Exception:
                # An outermost loop: the next flush must come.
                log.exception("cannot flush, so the log of writes grows")
                self._dirty.set()

    def _open_shard(self) -> Shard:
        if self._shard is None:
            raise unavailable("the semantic store", "it is not open")
        return self._shard

    async def _use(self, work: Callable[[qdrant.EdgeShard], Result]) -> Result:
        shard = self._open_shard()
        return await self._call(lambda: shard.use(work))

    @staticmethod
    async def _call(work: Callable[[], Result]) -> Result:
        """Run a blocking call of the library in a thread: the one place where its errors become ours."""
        try:
            with tracing.querying("qdrant", "edge"):
                return await asyncio.to_thread(work)
        except OSError as error:
            raise unavailable("the semantic store's folder", error.strerror or str(error)) from error
        except A2MError:
            raise
        except Exception as error:
            if type(error) is not Exception:
                raise
            raise unavailable("Qdrant Edge", str(error)) from error


def _acquire(folder: Path) -> int:
    """Hold the folder for this process until the descriptor is closed or the process dies."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 32).decode().strip() or "unknown"
        os.close(descriptor)
        raise A2MError(
            Code.INTERNAL,
            f"{folder} is in use by process {owner}: stop that one first, or choose another folder "
            "with A2M_SEMANTIC_PATH, or share a Qdrant server with A2M_SEMANTIC_URL",
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _check_room(folder: Path) -> None:
    """Refuse what grows the store while its disk is nearly full: a mapped file that cannot grow ends us."""
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < ROOM:
        why = f"its disk is full but for {ROOM >> 20} MiB: make room there"
        raise unavailable("the semantic store", why)


def _sync_log(folder: Path) -> None:
    """Have the write-ahead log on disk, which the engine writes through mappings of its files."""
    for entry in (*folder.iterdir(), folder):
        # What is gone was trimmed, and so is in the files of the segments.
        with contextlib.suppress(FileNotFoundError):
            sync(entry)


def _point(point: Point) -> qdrant.Point:
    vectors: dict[str, qdrant.NamedVector] = {}
    if point.dense is not None:
        vectors[DENSE] = point.dense
    if point.terms is not None:
        vectors[TERMS] = qdrant.SparseVector(point.terms.indices, point.terms.weights)
    return qdrant.Point(point.id, vectors, point.payload)


def _filter(clause: Clause) -> qdrant.Filter:
    condition = _condition(clause)
    return condition if isinstance(condition, qdrant.Filter) else qdrant.Filter(must=[condition])


def _condition(clause: Clause) -> qdrant.ConditionType:
    match clause:
        case AnyOf(field, (value,)):
            return qdrant.FieldCondition(field, match=qdrant.MatchValue(value))
        case AnyOf(field, values):
            return qdrant.FieldCondition(field, match=qdrant.MatchAny([*values]))
        case Prefix(field, text):
            return qdrant.FieldCondition(field, match=qdrant.MatchPrefix(text))
        case Between(field, gt, gte, lt, lte):
            return qdrant.FieldCondition(field, range=qdrant.RangeFloat(gte=gte, gt=gt, lte=lte, lt=lt))
        case Points(ids):
            return qdrant.HasIdCondition({*ids})
        case HasVector(name):
            return qdrant.HasVectorCondition(name)
        case Not(inner):
            return qdrant.Filter(must_not=[_condition(inner)])
        case All(clauses):
            return qdrant.Filter(must=[_condition(inner) for inner in clauses])
        case Some(clauses):
            return qdrant.Filter(should=[_condition(inner) for inner in clauses])
        case Within(field, inner):
            return qdrant.NestedCondition(field, _filter(inner))
