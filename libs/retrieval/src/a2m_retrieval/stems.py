"""Stems: by the script of a word, and by the language of a text in Latin script."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Protocol

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] it ships none

# Scripts that one language dominates.
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u052f", "russian"),
    ("\u0530", "\u058f", "armenian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)
_LATIN = {
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "id": "indonesian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "sv": "swedish",
    "tr": "turkish",
}


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 the library's name


class _Stemmers(threading.local):
    """A stemmer keeps the word that it works on: every thread has its own."""

    def __init__(self) -> None:
        self.held: dict[str, _Stemmer] = {}


_stemmers = _Stemmers()


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a folded word by its script: English for ASCII, Russian for Cyrillic; of most, the word."""
    if word.isascii():
        return _stemmer("english").stemWord(word) if word.isalpha() else word
    for first, last, algorithm in _SCRIPTS:
        if first <= word[0] <= last:
            return _stemmer(algorithm).stemWord(word)
    return word


def stems(words: Sequence[str], languages: Set[str]) -> list[str]:
    """`stem` of each word, and beside it those of `languages` in Latin script, if none of these is English.

    Beside it, so that a text whose language was not seen is still found by the stems that all have.
    """
    latin = sorted(languages & _LATIN.keys())
    if not latin or "en" in languages:
        return [stem(word) for word in words]
    return [found for word in words for found in dict.fromkeys((stem(word), *_others(word, latin)))]


def _others(word: str, languages: Iterable[str]) -> Iterator[str]:
    if word.isascii() and word.isalpha():
        for language in languages:
            yield _in_language(language, word)


@lru_cache(maxsize=65_536)
def _in_language(language: str, word: str) -> str:
    return _stemmer(_LATIN[language]).stemWord(word)


def _stemmer(algorithm: str) -> _Stemmer:
    held = _stemmers.held.get(algorithm)
    if held is None:
        held = snowballstemmer.stemmer(algorithm)  # pyright: ignore[reportUnknownMemberType] no types
        _stemmers.held[algorithm] = held
    return held
