"""BM25 as sparse vectors: term weights computed here, inverse document frequencies by the engine."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

from a2m_retrieval.lexical import weight
from a2m_semantic.engine import Terms

FIRST_MEAN = 16.0
MEMORY = 4_096


def document_terms(terms: Sequence[str], mean_length: float) -> Terms | None:
    """A document's `index_terms` with their saturated frequencies; None without a term."""
    counts: Counter[int] = Counter()
    for term, count in Counter(terms).items():
        counts[term_index(term)] += count
    if not counts:
        return None
    length = len(terms)
    return Terms(list(counts), [weight(count, length, mean_length) for count in counts.values()])


def query_vector(terms: Sequence[str]) -> Terms | None:
    """A query's `query_terms`, each once; None without a term."""
    indices = list(dict.fromkeys(map(term_index, terms)))
    return Terms(indices, [1.0] * len(indices)) if indices else None


def term_index(term: str) -> int:
    """A term's dimension of 32 bits; of 100,000 terms, one in 43,000 shares it with another."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest())


class MeanLength:
    """The mean length of documents in terms, in steps of powers of two.

    A weight is computed when its record is written, so the mean must not creep: with steps that are left
    only well beyond them, equal texts written at different times have equal scores.
    """

    def __init__(self, step: float | None = None) -> None:
        self.step = step or FIRST_MEAN
        self._mean = self.step
        self._seen = MEMORY if step else 64

    def add(self, length: int) -> bool:
        """Count a document; whether the step is another one now."""
        self._seen = min(self._seen + 1, MEMORY)
        self._mean += (max(length, 1) - self._mean) / self._seen
        if 0.6 * self.step < self._mean < 1.7 * self.step:
            return False
        before, self.step = self.step, 2.0 ** round(math.log2(self._mean))
        return self.step != before
