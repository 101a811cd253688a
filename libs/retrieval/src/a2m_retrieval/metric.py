"""Similarity of two vectors under a metric, as a score in 0..1 where higher is nearer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Metric = Literal["cosine", "dot", "l2"]


def similarity(metric: Metric, a: Sequence[float], b: Sequence[float]) -> float:
    """Cosine as (1 + cos) / 2, a dot product through the logistic function, L2 as 1 / (1 + distance)."""
    if metric == "l2":
        return 1 / (1 + math.dist(a, b))
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return squash_dot(dot) if metric == "dot" else squash_cosine(dot, math.hypot(*a) * math.hypot(*b))


def squash_cosine(dot: float, lengths: float) -> float:
    """The score of a dot product of vectors whose lengths multiply to `lengths`; 0.5 for a zero vector."""
    return (1 + max(-1.0, min(1.0, dot / lengths))) / 2 if lengths else 0.5


def squash_dot(dot: float) -> float:
    return 0.5 * (1 + math.tanh(dot / 2))
