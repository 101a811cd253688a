"""Reads in the order of writing, and by id and key."""

from __future__ import annotations

from collections.abc import Sequence

from a2m_episodic import rows as shape
from a2m_episodic.database import Connection, Database, rows
from a2m_episodic.filters import Conditions, compile_filter, owned_by
from a2m_episodic.queries import query
from a2m_protocol.clock import MAX_SEQ
from a2m_protocol.types import Record
from a2m_server.sizes import Size
from a2m_server.values import Entry, Filter, Found, Page, Scope, SessionInfo, Tombstone

WANTED = {
    "fsync": "can ruin the whole database",
    "full_page_writes": "can ruin pages of the database",
}
"""Settings that must not be off, and what happens otherwise; `synchronous_commit` is ours to turn on."""

_RECORD = shape.columns(shape.RECORD)
_WHOLE = shape.columns(shape.WHOLE)
_ENTRY = shape.columns(shape.ENTRY)


class Reader:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def timeline(self, page: Page) -> Found:
        found = compile_filter(page.filter)
        values = {**found.values, "limit": page.limit, "vectors": page.vectors}
        async with self._database.connection() as connection:
            read = await rows(connection, by_bucket("read", "timeline", found, columns=_RECORD), values)
            elsewhere = await _elsewhere(connection, found)
        return Found([shape.record(row) for row in read], elsewhere=elsewhere)

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        found = compile_filter(selected)
        seq, last = after or (-MAX_SEQ - 1, "")
        values = {**found.values, "limit": limit, "seq": seq, "id": last}
        async with self._database.connection() as connection:
            read = await rows(connection, by_bucket("read", "entries", found, columns=_ENTRY), values)
        return [shape.entry(row) for row in read]

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Record | None:
        found = owned_by(scope)
        values = {**found.values, "key": key, "owner": scope.owner, "vectors": vectors}
        async with self._database.connection() as connection:
            read = await rows(connection, query("read", "fetch", columns=_RECORD, filter=found.all), values)
        return shape.record(read[0]) if read else None

    async def read(self, ids: Sequence[str]) -> list[Record]:
        async with self._database.connection() as connection:
            read = await rows(connection, query("read", "read", columns=_WHOLE), {"ids": list(ids)})
        records = {row["id"]: shape.record(row) for row in read}
        return [records[i] for i in dict.fromkeys(ids) if i in records]

    async def graves(self, limit: int, after: tuple[int, str] | None, seconds: float) -> list[Tombstone]:
        """Tombstones of what was forgotten in the last `seconds`, in order."""
        seq, last = after or (-MAX_SEQ - 1, "")
        values = {"limit": limit, "seq": seq, "id": last, "seconds": seconds}
        async with self._database.connection() as connection:
            read = await rows(connection, query("read", "forgotten"), values)
        return [shape.tombstone(row) for row in read]

    async def count(self, scope: Scope) -> int:
        found = owned_by(scope)
        async with self._database.connection() as connection:
            [row] = await rows(connection, query("read", "count", filter=found.scope("b")), found.values)
        return int(row["records"])

    async def held(self, owner: str | None) -> int:
        found = owned_by(Scope(frozenset({owner})))
        async with self._database.connection() as connection:
            [row] = await rows(connection, query("read", "held", filter=found.scope("r")), found.values)
        return int(row["bytes"])

    async def size(self) -> Size:
        """Records by what each session counts, bytes by the files of the tables and their indexes."""
        waiting = self._database.waiting
        async with self._database.connection() as connection:
            [row] = await rows(connection, query("read", "size"))
        return Size(int(row["records"]), int(row["bytes"]), waiting=waiting)

    async def sessions(self, scope: Scope) -> list[SessionInfo]:
        found = owned_by(scope)
        async with self._database.connection() as connection:
            read = await rows(connection, query("read", "sessions", filter=found.scope("b")), found.values)
        return [SessionInfo(**row) for row in read]

    async def concerns(self) -> list[str]:
        """What the server is set to that may lose acknowledged writes."""
        async with self._database.connection() as connection:
            found = await rows(connection, query("read", "settings"), {"names": [*WANTED]})
        settings = {row["name"]: row["setting"] for row in found}
        return [
            f"{name} is off: a loss of power {otherwise}"
            for name, otherwise in WANTED.items()
            if settings.get(name) == "off"
        ]

    async def ready(self) -> None:
        async with self._database.connection() as connection:
            await rows(connection, query("read", "alive"))


def by_bucket(file: str, name: str, found: Conditions, **parts: str) -> str:
    """A query in the order of writing, over the buckets of a filter that pins the session, else over all."""
    if found.buckets is None:
        return query(file, name, filter=found.all, **parts)
    return query(file, f"{name}_of_buckets", buckets=found.buckets, filter=found.within, **parts)


async def _elsewhere(connection: Connection, found: Conditions) -> bool:
    if found.buckets is None:
        return False
    return bool(await rows(connection, query("read", "elsewhere", buckets=found.buckets), found.values))
