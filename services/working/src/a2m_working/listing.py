"""The list of what was forgotten, which lies in one key: ids by the `seq` of their deletion."""

from __future__ import annotations

import time

from a2m_protocol.clock import MAX_SEQ
from a2m_working.database import Database


async def forgotten(
    database: Database, key: str, grave_ms: int, limit: int, after: tuple[int, str] | None
) -> list[tuple[int, str]]:
    """Up to `limit` of (`seq`, id) in order, beyond a position, of the last `grave_ms` milliseconds."""
    seq, last = after or (-MAX_SEQ - 1, "")
    oldest = time.time_ns() // 1_000 - grave_ms * 1_000
    found = await database.read("graves", key, ["", "", limit, seq, last, oldest])
    return [(int(score), name.decode()) for name, score in zip(found[::2], found[1::2], strict=True)]
