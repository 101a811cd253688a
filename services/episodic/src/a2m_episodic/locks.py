"""Advisory locks on the names that a transaction is about to change, in an order that cannot deadlock."""

from __future__ import annotations

from collections.abc import Iterable

from a2m_episodic.database import SCHEMA, Connection, rows
from a2m_episodic.queries import query
from a2m_episodic.values import lock_number

MAX_NAMES = 128
"""More names than these are locked by one lock on all: the engine's table of locks is small."""

_ALL = lock_number("all", SCHEMA)


async def lock(connection: Connection, ids: Iterable[str], slots: Iterable[str] = ()) -> None:
    """Keep every other transaction from changing records or tombstones of these ids, until this one ends.

    `slots` are the digests of (owner, key). Rows that exist are locked after this, in the order of their ids,
    and buckets after them, in the order of their names.
    """
    numbers = sorted({lock_number("id", i) for i in ids} | {lock_number("slot", s) for s in slots})
    if len(numbers) > MAX_NAMES:
        await rows(connection, query("write", "lock"), {"numbers": [_ALL]})
    elif numbers:
        await rows(connection, query("write", "lock_shared"), {"number": _ALL})
        await rows(connection, query("write", "lock"), {"numbers": numbers})
