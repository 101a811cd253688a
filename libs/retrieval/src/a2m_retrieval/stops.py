"""Stop words: function words of many languages, and which language a text is in by those it holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

SHARE = 0.25
LEAST = 2
"""Of a text's words, how large a part and how many are stop words of a language that it is taken to be in."""

_LETTERS = {
    **dict.fromkeys("ığ", "tr"),
    **dict.fromkeys("ß", "de"),
    **dict.fromkeys("ñ¿¡", "es"),
    **dict.fromkeys("ãõ", "pt"),
    **dict.fromkeys("łż", "pl"),
    **dict.fromkeys("řůě", "cs"),
    **dict.fromkeys("őű", "hu"),
    **dict.fromkeys("ăț", "ro"),
}
"""Signs that one language writes, nearly alone: each of them in a text counts as `LEAST` stop words."""


class StopWords:
    """The lists in `source`, a line each: a language, then its words, split into what is compared by `split`.

    A word with `*` means something of its own in another language: alone it is no stop word.
    """

    def __init__(self, source: str, split: Callable[[str], Iterable[str]]) -> None:
        languages: dict[str, set[str]] = defaultdict(set)
        self._doubtful: set[tuple[str, str]] = set()
        for line in source.splitlines():
            language, *entries = line.split()
            for entry in entries:
                for word in split(entry.removesuffix("*")):
                    languages[word].add(language)
                    if entry.endswith("*"):
                        self._doubtful.add((language, word))
        self._languages = {word: frozenset(held) for word, held in languages.items()}

    def spoken(self, words: Sequence[str], text: str) -> frozenset[str]:
        """The languages of a text of these words: several when they tie, none when little tells.

        It is the one whose list holds the most of the words.
        """
        held = self._held(words)
        if not text.isascii():
            for letter in _LETTERS.keys() & set(text.lower()):
                held[_LETTERS[letter]] += LEAST
        most = max(held.values(), default=0)
        if most < max(LEAST, SHARE * len(words)):
            return frozenset()
        return frozenset(language for language, count in held.items() if count == most)

    def every(self, words: Sequence[str]) -> bool:
        """Whether all of `words` are stop words of one language, and surely one of them at least."""
        return any(
            count == len(words) and any((language, word) not in self._doubtful for word in words)
            for language, count in self._held(words).items()
        )

    def has(self, word: str, languages: frozenset[str]) -> bool:
        """Whether a word is a stop word of each of `languages`; of none of them, it is not."""
        return bool(languages) and languages.issubset(self._languages.get(word, ()))

    def _held(self, words: Sequence[str]) -> Counter[str]:
        # By sets of languages first, of which there are few: every text that is indexed is counted so.
        held: Counter[str] = Counter()
        for languages, count in Counter(filter(None, map(self._languages.get, words))).items():
            for language in languages:
                held[language] += count
        return held
