"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = 60

Item = TypeVar("Item", bound=Hashable)


def reciprocal_rank_fusion(rankings: Iterable[Sequence[Item]], k: int = K) -> dict[Item, float]:
    """Each item's fused score, in 0..1 and best first; 1.0 is the top of every ranking.

    Items of equal score keep the order in which they were first met.
    """
    scores: dict[Item, float] = defaultdict(float)
    count = 0
    for ranking in rankings:
        count += 1
        for rank, item in enumerate(ranking):
            scores[item] += (k + 1) / (k + 1 + rank)
    ordered = sorted(scores.items(), key=lambda pair: -pair[1])
    return {item: score / count for item, score in ordered}
