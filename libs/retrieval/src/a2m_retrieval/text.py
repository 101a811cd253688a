"""Tokens of a text: Unicode words, accents folded, scripts without spaces by bigrams.

`words` are what was written and decide exact matters (a forget's query); `terms` are stemmed and rank.
Every tier and engine is given these, so that text found in one is found in all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] it ships none

MAX_WORD = 64


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 the library's name


# The blocks named beside \w hold vowel signs, which Python does not count as word characters.
_RUN = re.compile(r"(?:[^\W_]|[\u0900-\u0eff\u0f71-\u0fbc\u1000-\u109f\u1780-\u17ff])+")
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_english: _Stemmer = snowballstemmer.stemmer("english")  # pyright: ignore[reportUnknownMemberType] no types


def index_words(text: str) -> list[str]:
    """The words of a text to be found, in order; a spaceless run gives its characters and its bigrams."""
    return [word for run in _runs(text) for word in _split(run, index=True)]


def query_words(text: str) -> list[str]:
    """The words of a query, in order; a spaceless run gives its bigrams, or its only character."""
    return [word for run in _runs(text) for word in _split(run, index=False)]


def index_terms(text: str) -> list[str]:
    """`index_words`, stemmed: what lexical ranking counts in a record."""
    return [stem(word) for word in index_words(text)]


def query_terms(text: str) -> list[str]:
    """`query_words`, stemmed: what lexical ranking looks for."""
    return [stem(word) for word in query_words(text)]


def holds(text: str, words: tuple[str, ...]) -> bool:
    """Whether a text holds every one of `query_words`; without a word, it does not."""
    return bool(words) and set(words) <= set(index_words(text))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The English stem of an ASCII word; a word of another script or language is kept."""
    return _english.stemWord(word) if word.isascii() and word.isalpha() else word


def fold(text: str) -> str:
    """Compatibility forms, case and accents folded away."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not _is_accent(c)))


def _is_accent(mark: str) -> bool:
    # Latin, Greek, Cyrillic; Hebrew points; Arabic vowels. In Indic scripts, Thai and kana a mark is a sound.
    return "\u0300" <= mark <= "\u036f" or "\u0591" <= mark <= "\u05c7" or "\u064b" <= mark <= "\u065f"


def _runs(text: str) -> Iterator[str]:
    for match in _RUN.finditer(fold(text)):
        yield match[0]


def _split(run: str, *, index: bool) -> Iterator[str]:
    if run.isascii():
        yield run[:MAX_WORD]
        return
    position = 0
    for match in _SPACELESS.finditer(run):
        if position < match.start():
            yield run[position : match.start()][:MAX_WORD]
        characters = match[0]
        if index or len(characters) == 1:
            yield from characters
        yield from (characters[i : i + 2] for i in range(len(characters) - 1))
        position = match.end()
    if position < len(run):
        yield run[position:][:MAX_WORD]
