"""Facts and questions in many languages and scripts: what a search by words must find in every store."""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files

from a2m_retrieval.text import query_words
from a2m_server.contract.samples import draft, name, where, within
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Filter, Page, Search

SPEAKERS = ("Renée", "Олег", "美咲", "Tomás")
RECALL = 0.95

# Each asks with no more than function words of one language.
ONLY_STOPS = (
    "what is this?",
    "the",
    "was ist das",
    "où est-ce que c'est",
    "¿qué es esto?",
    "что это и где?",
    "ما هذا",
    "这是什么",
    "これは何ですか",
    "nerede bu",
)


def facts() -> dict[str, list[tuple[str, str]]]:
    """Pairs of a fact and a question about it, by language."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in (
        files("a2m_server.contract").joinpath("languages.tsv").read_text(encoding="utf-8").splitlines()
    ):
        language, fact, question = line.split("\t")
        found[language].append((fact, question))
    return found


class LanguageContract:
    async def test_a_question_finds_its_fact_first_in_every_language(self, store: TierStore) -> None:
        missed: dict[str, list[str]] = {}
        for language, pairs in facts().items():
            session = name(language)
            await store.write([draft(fact, session=session) for fact, _ in pairs], EVERYONE)
            for fact, question in pairs:
                found = (await store.search(Search(within(session), 1, text=question))).records
                if [r.content for r in found] != [fact]:
                    missed.setdefault(language, []).append(question)
            if 1 - len(missed.get(language, [])) / len(pairs) >= RECALL:
                missed.pop(language, None)
        assert missed == {}

    async def test_a_question_of_function_words_alone_finds_nothing_by_words(self, store: TierStore) -> None:
        session = name()
        texts = [f"{question} {fact}" for question in ONLY_STOPS for fact in ("green", "зелёный")]
        await store.write(
            [draft(t, session=session, embedding=[float(n), 1.0, 0.0, 0.0]) for n, t in enumerate(texts)],
            EVERYONE,
        )
        for question in ONLY_STOPS:
            assert (await store.search(Search(within(session), 5, text=question))).records == []
        both = Search(within(session), 5, text=ONLY_STOPS[0], embedding=[1.0, 0.0, 0.0, 0.0])
        assert len((await store.search(both)).records) == 5

    async def test_who_spoke_is_found_and_is_no_word_of_the_content(self, store: TierStore) -> None:
        session = name()
        drafts = [
            draft(f"the garden needs water, said on day {n}", session=session, metadata={"speaker": speaker})
            for n, speaker in enumerate(SPEAKERS)
        ]
        nobody = draft("the garden needs water", session=session, metadata={"speaker": ["Renée"]})
        await store.write([*drafts, nobody], EVERYONE)
        for speaker, said in zip(SPEAKERS, drafts, strict=True):
            search = Search(within(session), 5, text=f"What does the garden need, {speaker}?")
            assert (await store.search(search)).records[0].id == said.id
            alone = (await store.search(Search(within(session), 5, text=speaker))).records
            assert [r.id for r in alone] == [said.id]
            named = Page(Filter(where=where(session=session), words=tuple(query_words(speaker))))
            assert (await store.timeline(named)).records == []
