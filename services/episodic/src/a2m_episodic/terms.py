"""A text as Postgres searches it: hashed words and terms, and BM25 weights as a sparse vector."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from a2m_retrieval.lexical import idf, weight
from a2m_retrieval.text import index_terms, index_words, said

WIDTH = 1_000_000_000
MAX_WEIGHTS = 16_000
"""The limits of pgvector's `sparsevec`: its width, and how many of its numbers may not be zero."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What is kept of a text: `weights` as a `sparsevec` literal, `marks` as one of a `bigint[]`."""

    length: int
    weights: str
    marks: str


class Text(NamedTuple):
    """What a record is found by: its words are those of `content`, its terms those of what was `said`."""

    content: str
    said: str


def text_of(content: str, metadata: Mapping[str, object] | None) -> Text:
    return Text(content, said(content, metadata))


def analyse(text: Text, mean_length: float) -> Analysis:
    """A text's marks, and its weights in a corpus whose texts have `mean_length` terms on average."""
    terms = index_terms(text.said)
    counts = Counter(terms)
    marks = {word_mark(word) for word in set(index_words(text.content))} | set(map(term_mark, counts))
    weights = ((term_mark(term), weight(count, len(terms), mean_length)) for term, count in counts.items())
    return Analysis(len(terms), _sparse(weights), "{" + ",".join(map(str, sorted(marks))) + "}")


def query_vector(frequencies: Mapping[int, int], documents: int) -> str:
    """A query as a `sparsevec` literal: the idf of each term's mark."""
    return _sparse((mark, idf(documents, held)) for mark, held in frequencies.items())


def word_marks(words: Sequence[str]) -> list[int]:
    return sorted({word_mark(word) for word in words})


def term_marks(terms: Sequence[str]) -> list[int]:
    return sorted({term_mark(term) for term in terms})


def word_mark(word: str) -> int:
    """63 bits of a word's hash, even."""
    return _hash(word) & ~1


def term_mark(term: str) -> int:
    """63 bits of a term's hash, odd, so that the term `run` is not the word `run`."""
    return _hash(term) | 1


@lru_cache(maxsize=65_536)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _sparse(weights: Iterable[tuple[int, float]]) -> str:
    # Two marks in one place: the higher weight stands. Whether a term is really there, `marks` decide.
    places: dict[int, float] = {}
    for mark, value in weights:
        place = (mark >> 1) % WIDTH + 1
        places[place] = max(value, places.get(place, 0.0))
    kept = sorted(places.items(), key=lambda pair: -pair[1])[:MAX_WEIGHTS]
    return "{" + ",".join(f"{place}:{value:.6g}" for place, value in sorted(kept)) + f"}}/{WIDTH}"
