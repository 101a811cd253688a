"""Wire timestamps and the order of writing (`seq`)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

SEQ_PER_MS = 1000
MAX_SEQ = 2**53 - 1

_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", re.ASCII)


def format_ms(ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339 in UTC with a `Z` and three decimals."""
    stamp = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp:0>19}.{ms % 1000:03d}Z"


def parse_ms(text: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 timestamp in UTC; finer digits are cut off.

    Raises `ValueError` on anything else, offsets other than `Z` included.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match:
        try:
            moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        except ValueError:
            pass
        else:
            fraction = (match[2] or "").ljust(3, "0")[:3]
            seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
            return int(seconds) * 1000 + int(fraction)
    raise ValueError(f"{text[:40]!r} is not a UTC timestamp such as 2026-07-28T10:15:30.123Z")


def seq_of(ms: int, counter: int = 0) -> int:
    """The `seq` of the `counter`-th record written in a millisecond."""
    return ms * SEQ_PER_MS + counter


def created_at_of(seq: int) -> str:
    """The `created_at` that goes with a `seq`, so that both order alike."""
    return format_ms(seq // SEQ_PER_MS)
