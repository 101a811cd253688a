"""Buckets: the (owner, session) rows that order writing and count records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from a2m_episodic.batch import Bucket
from a2m_episodic.database import Connection, rows
from a2m_episodic.queries import query
from a2m_episodic.values import digest


@dataclass(frozen=True, slots=True)
class Entered:
    """Buckets locked to the transaction's end: their numbers, their last `seq`, and the clock as a `seq`."""

    numbers: dict[Bucket, int]
    last: dict[Bucket, int]
    now: int


async def enter(connection: Connection, buckets: Iterable[Bucket]) -> Entered:
    """Lock buckets, made if they are new; once a transaction, and after its rows.

    Whoever holds them decides the next `seq` in them, so the order of `seq` is that of the commits.
    """
    wanted = {digest(*bucket): bucket for bucket in buckets}
    values = {
        "names": list(wanted),
        "owners": [owner for owner, _ in wanted.values()],
        "sessions": [session for _, session in wanted.values()],
    }
    entered = await rows(connection, query("write", "enter_buckets"), values)
    found = {(row["owner"], row["session"]): row for row in entered}
    return Entered(
        {bucket: row["id"] for bucket, row in found.items()},
        {bucket: row["last"] for bucket, row in found.items()},
        max((row["now"] for row in entered), default=0),
    )


async def settle(
    connection: Connection,
    numbers: Mapping[Bucket, int],
    changes: Mapping[Bucket, int],
    last: Mapping[Bucket, int],
    elsewhere: frozenset[Bucket] = frozenset(),
) -> None:
    """Put what has become of entered buckets."""
    touched = [b for b in numbers if changes.get(b) or b in elsewhere or b in last]
    values = {
        "ids": [numbers[b] for b in touched],
        "lasts": [last.get(b, 0) for b in touched],
        "changes": [changes.get(b, 0) for b in touched],
        "elsewhere": [b in elsewhere for b in touched],
    }
    if touched:
        await connection.execute(query("write", "settle_buckets").encode(), values)
