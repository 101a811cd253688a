"""The episodic tier: a `TierStore` on Postgres with pgvector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from a2m_episodic import remnants
from a2m_episodic.database import Database, rows
from a2m_episodic.embedding import Embedding
from a2m_episodic.indexes import OPERATORS
from a2m_episodic.maintenance import Maintenance
from a2m_episodic.migrations import migrate
from a2m_episodic.queries import query
from a2m_episodic.reading import Reader
from a2m_episodic.removing import Remover
from a2m_episodic.searching import Searcher
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.state import State
from a2m_episodic.writing import Writer
from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft, Record
from a2m_server.memory import SEARCHING, TIER_CAPABILITIES
from a2m_server.sizes import Size
from a2m_server.values import (
    Buried,
    Deleted,
    Entry,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Judged,
    Named,
    Page,
    Reason,
    Scope,
    Search,
    Seen,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)

log = logging.getLogger(__name__)

KIND = "episodic"
DAY_SECONDS = 86_400


class EpisodicStore:
    """What happened, in one Postgres database; the port's docstrings say what each method does.

    A call that finds no connection or no server fails with `data.retryable`; the pool reconnects by itself.
    A write that returned survives a crash of the service and of the engine.
    """

    def __init__(self, settings: EpisodicSettings) -> None:
        self._settings = settings
        self._state = State()
        self._database = Database(settings)
        self._reader = Reader(self._database)
        self._writer = Writer(self._database, self._state)
        self._remover = Remover(self._database)
        self._embedding = Embedding(self._database, self._state, settings.metric, settings.dimensions)
        self._searcher = Searcher(self._database, self._state, settings.metric)
        self.maintenance = Maintenance(self._database, settings, self._state)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await migrate(self._settings)
        async with AsyncExitStack() as undo:
            await self._database.open()
            undo.push_async_callback(self._database.close)
            self._state.dimensions = await self._dimensions(self._settings.dimensions)
            for concern in await self._reader.concerns():
                log.warning("%s may lose what it acknowledged: %s", self._settings.name, concern)
            undo.pop_all()
        self._task = asyncio.create_task(self.maintenance.run(), name=f"{self._settings.name} maintenance")

    async def close(self) -> None:
        if self._task is not None:
            self.maintenance.end()
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._database.close()

    async def ready(self) -> None:
        await self._reader.ready()

    async def info(self) -> StoreInfo:
        # Another process may have fixed or changed it.
        dimensions = await self._dimensions(None)
        if dimensions is not None:
            self._state.fixed(dimensions)
        return StoreInfo(
            name=self._settings.name,
            kind=KIND,
            capabilities=TIER_CAPABILITIES,
            extensions=SEARCHING,
            dimensions=self._state.dimensions,
            metric=self._settings.metric,
            metrics=tuple(OPERATORS),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        return {self._settings.name: await self._reader.count(scope)}

    async def size(self) -> Size:
        return await self._reader.size()

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        return await self._writer.write(drafts, scope)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        return await self._writer.transfer(drafts)

    async def search(self, search: Search) -> Found:
        return await self._searcher.search(search)

    async def timeline(self, page: Page) -> Found:
        return await self._reader.timeline(page)

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        return Fetched(await self._reader.fetch(key, scope, vectors=vectors))

    async def forget(self, selected: Filter) -> Forgotten:
        return await self._remover.forget(selected)

    async def sessions(self, scope: Scope) -> Sessions:
        return Sessions(await self._reader.sessions(scope))

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        return await self._remover.reinforce(ids, amount, scope)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self._remover.touch(ids, at)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        return await self._remover.delete_if(named, reason, target)

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return await self._remover.tombstones(ids)

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        return await self._reader.graves(limit, after, self._settings.tombstone_days * DAY_SECONDS)

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        return await self._remover.bury(tombstones)

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        return await self._reader.entries(selected, limit, after)

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return await self._reader.read(ids)

    async def settle(self, named: Sequence[Named]) -> None:
        await self._remover.settle(named)

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        return await self._remover.judge(judged) if judged else {}

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        return await self._embedding.embed(seen)

    async def held(self, owner: str | None) -> dict[str, int]:
        return {self._settings.name: await self._reader.held(owner)}

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        found = await remnants.find(self._database, list(dict.fromkeys(ids)))
        return Inspected(found, (self._settings.name,))

    async def _dimensions(self, wanted: int | None) -> int | None:
        """The width of the database's vectors, fixed to `wanted` if it is not fixed yet."""
        async with self._database.connection() as connection:
            if wanted is not None:
                await rows(connection, query("write", "fix_dimensions"), {"dimensions": wanted})
            [held] = await rows(connection, query("write", "dimensions"))
        dimensions: int | None = held["dimensions"]
        if wanted is not None and dimensions != wanted:
            raise A2MError(
                Code.INTERNAL,
                f"the episodic tier's database holds vectors of {dimensions} numbers, and the settings say "
                f"{wanted}: correct A2M_EPISODIC_DIMENSIONS, or use another database",
            )
        return dimensions
