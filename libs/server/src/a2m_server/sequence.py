"""The `seq` of transferred records: what it may be, and what they get which bring none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from a2m_protocol.clock import SEQ_PER_MS, parse_ms, seq_of
from a2m_protocol.types import Draft

AHEAD = 86_400_000_000
"""Microseconds that a record from elsewhere may be ahead of the clock."""


def with_seq(drafts: Sequence[Draft], now: int) -> Iterator[Draft]:
    """Drafts with a `seq` each: their own, else one from their `created_at` and their position.

    `now` is a `seq` too, and stands for a `created_at` that is missing. Those of one millisecond keep the
    order in which they are given, whatever stands between them.
    """
    counts: Counter[int] = Counter()
    for draft in drafts:
        if draft.seq is not None:
            yield draft
            continue
        ms = now // SEQ_PER_MS if draft.created_at is None else parse_ms(draft.created_at)
        yield draft.model_copy(update={"seq": seq_of(ms, counts[ms])})
        counts[ms] += 1
