"""Tokens of a text: Unicode words, accents folded, scripts without spaces by bigrams.

`words` are what was written and decide exact matters (a forget's query); `terms` are stemmed and rank.
Every tier and engine is given these, so that text found in one is found in all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from a2m_retrieval.stems import stems
from a2m_retrieval.stops import StopWords

MAX_WORD = 64

# The blocks named beside \w hold vowel signs, which Python does not count as word characters.
_RUN = re.compile(r"(?:[^\W_]|[\u0900-\u0eff\u0f71-\u0fbc\u1000-\u109f\u1780-\u17ff])+")
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uac00-\ud7a3\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# Letters that are a base and an accent, which Unicode does not take apart.
_LETTERS = str.maketrans({"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "æ": "ae", "œ": "oe"})


def index_words(text: str) -> list[str]:
    """The words of a text to be found, in order; a spaceless run gives its characters and its bigrams."""
    return [word for run in _runs(text) for word in _split(run, index=True)]


def query_words(text: str) -> list[str]:
    """The words of a query, in order; a spaceless run gives its bigrams, or its only character."""
    return [word for run in _runs(text) for word in _split(run, index=False)]


def index_terms(text: str) -> list[str]:
    """`index_words`, stemmed: what lexical ranking counts in a record."""
    words = index_words(text)
    return stems(words, _stops().spoken(words, text))


def query_terms(text: str) -> list[str]:
    """`query_words`, stemmed and without the stop words of their language: what lexical ranking looks for.

    Empty for a query of stop words alone.
    """
    stops, words = _stops(), query_words(text)
    if stops.every(words):
        return []
    languages = stops.spoken(words, text)
    return stems([word for word in words if not stops.has(word, languages)], languages)


def said(content: str, metadata: Mapping[str, object] | None) -> str:
    """The text by which a record is ranked: its content after the name of who spoke, if `metadata` has it."""
    name = speaker(metadata)
    return content if name is None else f"{name}: {content}"


def speaker(metadata: Mapping[str, object] | None) -> str | None:
    """Who spoke, as transcripts name it in their metadata."""
    name = (metadata or {}).get("speaker")
    return name if isinstance(name, str) and name else None


def holds(text: str, words: tuple[str, ...]) -> bool:
    """Whether a text holds every one of `query_words`; without a word, it does not."""
    return bool(words) and set(words) <= set(index_words(text))


def fold(text: str) -> str:
    """Compatibility forms, case and accents folded away."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(_without_accent(decomposed)).translate(_LETTERS)
    return unicodedata.normalize("NFC", kept)


def _without_accent(decomposed: str) -> Iterator[str]:
    before = ""
    for character in decomposed:
        # \u0439 is a letter of its own, which a dictionary never puts with \u0438.
        if not _is_accent(character) or (character == "\u0306" and before == "\u0438"):
            yield character
        before = character


def _is_accent(mark: str) -> bool:
    # Latin, Greek, Cyrillic; Hebrew points; Arabic vowels. In Indic scripts, Thai and kana a mark is a sound.
    return "\u0300" <= mark <= "\u036f" or "\u0591" <= mark <= "\u05c7" or "\u064b" <= mark <= "\u065f"


@lru_cache(maxsize=1)
def _stops() -> StopWords:
    source = files("a2m_retrieval").joinpath("stops.txt").read_text(encoding="utf-8")
    return StopWords(source, query_words)


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
