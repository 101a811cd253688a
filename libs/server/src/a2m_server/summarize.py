"""Extractive summaries without a model: the sentences that say most of what all of them say."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from a2m_retrieval.lexical import idf
from a2m_retrieval.text import index_terms

SENTENCES = 8
MAX_TEXT = 200_000
MAX_SENTENCES = 20_000
LONGEST = 600
RECENCY = 0.25
REDUNDANT = 0.6

_END = re.compile(r"(?<=[.!?…。！？])\s+|(?<=[。！？])|\n+")


def newest(texts: Sequence[str], most: int = MAX_TEXT) -> list[str]:
    """The last of texts that are given oldest first, `most` characters in all.

    The first of them may be the end of one.
    """
    found: list[str] = []
    for text in reversed(texts):
        if len(text) > most:
            if most:
                found.append(text[-most:])
            break
        found.append(text)
        most -= len(text)
    found.reverse()
    return found


def extract(texts: Sequence[str], sentences: int = SENTENCES) -> str:
    """The most central `sentences` of texts that are given oldest first, in their order, one a line.

    A sentence scores by the TF-IDF cosine to all of them together, up to a quarter more the later it
    comes; one that mostly repeats a better one is left out. Equal input gives equal output; without a word
    in it, "".
    """
    found = [sentence for text in texts for sentence in _sentences(text)][-MAX_SENTENCES:]
    terms = [index_terms(sentence) for sentence in found]
    frequency = Counter(term for words in terms for term in set(words))
    weights = {term: idf(len(found), held) for term, held in frequency.items()}
    vectors = [_unit({t: n * weights[t] for t, n in Counter(words).items()}) for words in terms]
    centre: defaultdict[str, float] = defaultdict(float)
    for vector in vectors:
        for term, weight in vector.items():
            centre[term] += weight
    whole = _unit(centre)
    scores = [
        _dot(vector, whole) * (1 + RECENCY * (at + 1) / len(found)) for at, vector in enumerate(vectors)
    ]
    chosen: list[int] = []
    for at in sorted(range(len(found)), key=lambda at: (-scores[at], at)):
        if len(chosen) == sentences or scores[at] <= 0:
            break
        if all(_dot(vectors[at], vectors[other]) < REDUNDANT for other in chosen):
            chosen.append(at)
    return "\n".join(found[at] for at in sorted(chosen))


def _sentences(text: str) -> list[str]:
    """Sentences without the space around them; one that is very long is cut at a space."""
    return [_shorten(part.strip()) for part in _END.split(text) if part.strip()]


def _shorten(sentence: str) -> str:
    if len(sentence) <= LONGEST:
        return sentence
    head = sentence[:LONGEST]
    return (head.rpartition(" ")[0] or head).rstrip() + " …"


def _unit(vector: dict[str, float]) -> dict[str, float]:
    norm = math.sqrt(math.fsum(weight * weight for weight in vector.values()))
    return {term: weight / norm for term, weight in vector.items()} if norm else {}


def _dot(a: dict[str, float], b: dict[str, float]) -> float:
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    return math.fsum(weight * large.get(term, 0.0) for term, weight in small.items())
