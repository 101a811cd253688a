"""BM25 over a set of texts that is at hand (Robertson and Zaragoza, 2009; Lucene's non-negative idf)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

K1 = 1.2
B = 0.75


def idf(documents: int, frequency: int) -> float:
    """Inverse document frequency of a term that `frequency` of `documents` hold; never negative."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def weight(count: int, length: int, mean_length: float) -> float:
    """BM25's saturated term frequency of a term that occurs `count` times in `length` terms."""
    norm = 1 - B + B * length / mean_length if mean_length else 1.0
    return count * (K1 + 1) / (count + K1 * norm)


def bm25(documents: Sequence[Sequence[str]], query: Sequence[str]) -> list[float]:
    """The score of each document's `index_terms` for a query's `query_terms`; 0.0 where no term is held."""
    wanted = set(query)
    counts = [Counter(term for term in document if term in wanted) for document in documents]
    frequency = Counter(term for count in counts for term in count)
    mean_length = sum(map(len, documents)) / len(documents) if documents else 0.0
    weights = {term: idf(len(documents), held) for term, held in frequency.items()}
    return [
        math.fsum(weights[term] * weight(n, len(document), mean_length) for term, n in count.items())
        for document, count in zip(documents, counts, strict=True)
    ]


def squash(score: float) -> float:
    """A BM25 score as a number in 0..1 of the same order."""
    return score / (score + 8.0) if score > 0 else 0.0
