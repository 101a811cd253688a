"""Words and terms of a text, in any script."""

from __future__ import annotations

import threading

import pytest

from a2m_retrieval.lexical import bm25
from a2m_retrieval.stems import stem
from a2m_retrieval.text import fold, holds, index_terms, index_words, query_terms, query_words, said
from a2m_server.contract.languages import ONLY_STOPS, facts


@pytest.mark.parametrize("language", facts())
def test_a_question_finds_its_fact_first_among_its_language(language: str) -> None:
    pairs = facts()[language]
    documents = [index_terms(fact) for fact, _ in pairs]
    missed: list[str] = []
    for at, (_, question) in enumerate(pairs):
        scores = bm25(documents, query_terms(question))
        if not scores[at] or max(scores[:at] + scores[at + 1 :]) >= scores[at]:
            missed.append(question)
    assert len(missed) <= 0.05 * len(pairs), missed


def test_a_question_finds_its_fact_among_those_of_all_languages() -> None:
    pairs = [pair for found in facts().values() for pair in found]
    assert len(facts()) >= 8
    assert len(pairs) >= 64
    documents = [index_terms(fact) for fact, _ in pairs]
    hits = 0
    for at, (_, question) in enumerate(pairs):
        scores = bm25(documents, query_terms(question))
        hits += scores[at] > 0 and scores[at] == max(scores)
    assert hits >= 0.95 * len(pairs)


@pytest.mark.parametrize("question", [*ONLY_STOPS, "", "?!"])
def test_a_query_of_stop_words_alone_has_no_terms(question: str) -> None:
    assert query_terms(question) == []


@pytest.mark.parametrize(
    ("query", "kept", "dropped"),
    [
        ("When did grandma die?", {"die", "grandma"}, {"when", "did"}),
        ("Wann kommt die Bahn in Graz an?", {"graz", "bahn"}, {"die", "wann", "in"}),
        ("die", {"die"}, set[str]()),
        ("war and peace", {"war", "peac"}, set[str]()),
        ("what was the war about", {"war"}, {"what", "was", "the"}),
        ("who is Will", {"will"}, {"who"}),
        ("help at work", {"help", "work"}, set[str]()),
        ("die hard", {"die", "hard"}, set[str]()),
        ("a man with a hat", {"man", "hat"}, {"a", "with"}),
        ("le chat de la voisine", {"chat"}, {"le", "de", "la"}),
    ],
)
def test_stop_words_go_only_with_their_language(query: str, kept: set[str], dropped: set[str]) -> None:
    terms = set(query_terms(query))
    assert kept <= terms
    assert not dropped & terms


def test_what_is_indexed_and_what_is_forgotten_by_loses_no_word() -> None:
    assert query_words("What is the name of the cat?") == ["what", "is", "the", "name", "of", "the", "cat"]
    assert index_words("to be or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert holds("to be or not to be", tuple(query_words("not to be")))
    assert not holds("to be", tuple(query_words("not to be")))


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("Crème brûlée in Łódź", "creme brulee lodz"),
        ("Malmö and Tromsø", "MALMO tromso"),
        ("Straße", "STRASSE"),
        ("Iğdır", "igdir"),
        ("Ａ２Ｍ　ｶﾀｶﾅ", "a2m カタカナ"),
        ("Ёлка", "елка"),
        ("ΟΔΥΣΣΕΎΣ", "οδυσσευς"),
        ("مُحَمَّد", "محمد"),
        ("iPhone手机坏了", "手机 iphone"),
        ("서울에서 만났다", "서울"),
        ("猫", "猫"),
        ("黒い猫がいる", "猫"),
    ],
)
def test_a_text_holds_what_is_written_in_another_form(written: str, asked: str) -> None:
    assert holds(written, tuple(query_words(asked)))
    assert set(query_terms(asked)) <= set(index_terms(written))


def test_an_accent_is_folded_and_a_letter_is_not() -> None:
    assert fold("Новый йод, Ёж") == "новый йод, еж"
    assert fold("ЙОГУРТ") == "йогурт" == fold("и\u0306огурт")
    assert fold("か が は ば") == "か が は ば"
    assert fold("ăĕ") == "ae"


@pytest.mark.parametrize(
    "forms",
    [
        ("teaching", "teaches"),
        ("новая", "новый", "новой"),
        ("книга", "книги", "книгами"),
        ("δουλευει", "δουλευουν"),
        ("घरों", "घर"),
    ],
)
def test_forms_of_a_word_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(fold(form)) for form in forms}) == 1


def test_a_word_of_another_language_is_found_by_both_its_stems() -> None:
    german = index_terms("Die Schwestern wohnen in der Stadt")
    assert {"schwestern", "schwest"} <= set(german)
    assert "schwestern" in query_terms("Schwestern")


def test_who_spoke_is_said_before_the_content() -> None:
    assert said("hello", {"speaker": "Ana"}) == "Ana: hello"
    assert said("hello", None) == said("hello", {}) == said("hello", {"speaker": 3}) == "hello"


def test_stems_are_the_same_in_many_threads() -> None:
    words = [
        f"{a}{b}ations" for a in "bcdfghjklm" for b in ("ab", "el", "or", "ist", "und", "ang", "ok")
    ] * 30
    expected = [stem(word) for word in words]
    stem_everything: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: stem_everything.append(index_terms(" ".join(words))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stem_everything == [expected] * 4
