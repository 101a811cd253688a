"""Vectors that a model made of records that are here already; one transaction a call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pgvector import Vector

from a2m_episodic.database import SCHEMA, Connection, Database, rows
from a2m_episodic.indexes import index_name
from a2m_episodic.locks import lock
from a2m_episodic.queries import query
from a2m_episodic.state import State
from a2m_episodic.values import lock_number
from a2m_protocol.errors import embedding_mismatch, unavailable
from a2m_retrieval.metric import Metric
from a2m_server.values import Seen

WIDTH_LOCK = lock_number("width", SCHEMA)
"""Shared by whoever writes vectors of the store's width, so that it stays; taken before any other lock."""


class Embedding:
    """Keeps what models saw; `fixed` is the width that the settings ask for."""

    def __init__(self, database: Database, state: State, metric: Metric, fixed: int | None) -> None:
        self._database = database
        self._state = state
        self._metric: Metric = metric
        self._fixed = fixed

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        if not seen:
            return {}
        width = len(seen[0].embedding)
        for one in seen:
            if len(one.embedding) != (self._fixed or width):
                raise embedding_mismatch(self._fixed or width, len(one.embedding))
        async with self._database.connection() as connection:
            change = await dimensions(connection) not in (None, width)
        kept = self._transact(seen, width, change=change)
        # To make room may take longer than a request: begun anew by each of them, it would never end.
        return await (asyncio.shield(asyncio.create_task(kept)) if change else kept)

    async def _transact(self, seen: Sequence[Seen], width: int, *, change: bool) -> dict[str, bool]:
        async def work(connection: Connection) -> tuple[dict[str, bool], int | None]:
            return await self._embed(connection, seen, width, change=change)

        outcomes, now = await self._database.transact(work)
        if now is not None:
            self._state.fixed(now)
        return outcomes

    async def _embed(
        self, connection: Connection, seen: Sequence[Seen], width: int, *, change: bool
    ) -> tuple[dict[str, bool], int | None]:
        """Which were kept, and the width of the store's vectors then, once it is fixed."""
        await rows(connection, query("embed", "lock" if change else "lock_shared"), {"number": WIDTH_LOCK})
        ids = [one.id for one in seen]
        await lock(connection, ids)
        held = {row["id"]: row for row in await rows(connection, query("embed", "named"), {"ids": ids})}
        found = [one for one in seen if _same(one, held.get(one.id))]
        outcomes = dict.fromkeys(ids, False) | {one.id: True for one in found}
        before = await dimensions(connection)
        if before not in (None, width) and change:
            [callers] = await rows(connection, query("embed", "callers"))
            if callers["held"]:
                raise embedding_mismatch(before or width, width)
        if not found:
            return outcomes, before
        if before is None:
            before = await fix_dimensions(connection, width)
        if before != width and not change:
            raise unavailable("the episodic tier", "the width of its vectors is being changed")
        if before != width:
            await self._clear(connection, before, width)
        async with connection.pipeline():
            cursor = connection.cursor()
            saw = [_saw(one, held[one.id]) for one in found]
            await cursor.executemany(query("embed", "saw").encode(), saw)
            vectors = [_vector(one, held[one.id]) for one in found]
            await cursor.executemany(query("write", "put_vector").encode(), vectors)
        return outcomes, width

    async def _clear(self, connection: Connection, before: int, width: int) -> None:
        """Let go of all vectors, which models made, with their index, which takes no other width."""
        await rows(connection, query("embed", "patience"))
        name = index_name(self._metric, before)
        await connection.execute(query("embed", "drop_index", name=name).encode())
        await connection.execute(query("embed", "clear_records").encode())
        await connection.execute(query("embed", "clear_vectors").encode())
        await connection.execute(query("embed", "change_dimensions").encode(), {"dimensions": width})


async def dimensions(connection: Connection) -> int | None:
    """The width of the database's vectors, once it is fixed."""
    [held] = await rows(connection, query("write", "dimensions"))
    return held["dimensions"]


async def fix_dimensions(connection: Connection, width: int) -> int:
    """Fix the width unless it is; the one in force. A second first vector waits for the first one's."""
    await rows(connection, query("write", "fix_dimensions"), {"dimensions": width})
    return await dimensions(connection) or width


def _same(one: Seen, row: Mapping[str, Any] | None) -> bool:
    """Whether a record is still what the model saw, and has no vector of a caller."""
    return row is not None and row["etag"].hex == one.etag and not row["callers"]


def _saw(one: Seen, row: dict[str, object]) -> dict[str, object]:
    return {"pk": row["pk"], "features": one.features, "model": one.embedding_model}


def _vector(one: Seen, row: dict[str, object]) -> dict[str, object]:
    return {
        "pk": row["pk"],
        "seq": row["seq"],
        "active": row["status"] == "active",
        "owner": row["owner"],
        "model": one.embedding_model,
        "vec": Vector([*one.embedding]),
    }
