"""BERT's uncased English vocabulary, and how much of a text it knows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from a2m_retrieval.text import fold

PATH = Path(__file__).with_name("vocabulary.txt")

_WORD = re.compile(r"[^\W\d_]+")


def known(text: str) -> float:
    """The share of a text's words that are whole entries of the vocabulary; 1 for a text without words.

    English conversation has 0.6 and more, English science 0.3, German and French about 0.5, and what is not
    in Latin letters 0.
    """
    found = _WORD.findall(fold(text))
    return sum(word in _words() for word in found) / len(found) if found else 1.0


@cache
def _words() -> frozenset[str]:
    # A word of several pieces is mostly one that the model was taught little of.
    entries = PATH.read_text(encoding="utf-8").splitlines()
    return frozenset(entry for entry in entries if entry.isascii() and entry.isalpha())
