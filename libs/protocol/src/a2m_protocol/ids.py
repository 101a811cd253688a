"""Ids for records that were given none."""

from __future__ import annotations

import secrets
import time


def new_id() -> str:
    """An id that no other record has; ids made later sort later, which suits a database's index."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
