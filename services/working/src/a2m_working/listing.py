"""The list of what was forgotten, which lies in one key: ids by the `seq` of their deletion."""

from __future__ import annotations

import time
from collections.abc import Sequence

from a2m_protocol.clock import MAX_SEQ
from a2m_working.database import Database


async def forgotten(
    database: Database, key: str, grave_ms: int, limit: int, after: tuple[int, str] | None
) -> list[tuple[int, str]]:
    """Up to `limit` of (`seq`, id) in order, beyond a position, of the last `grave_ms` milliseconds."""
    seq, last = after or (-MAX_SEQ - 1, "")
    oldest = time.time_ns() // 1_000 - grave_ms * 1_000
    return pairs(await database.read("graves", key, ["", "", limit, seq, last, oldest]))


def pairs(answer: Sequence[bytes]) -> list[tuple[int, str]]:
    """(`seq`, id) from ids that are each followed by their `seq`."""
    return [(int(seq), name.decode()) for name, seq in zip(answer[::2], answer[1::2], strict=True)]
