"""Token vectors as they are kept, and what a query held against them is worth."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence

import numpy
import pytest

from a2m_retrieval.embed import minilm
from a2m_retrieval.embed.late import Tokens, filled, most_similar, unpacked
from a2m_retrieval.embed.local import LocalEmbedder
from a2m_retrieval.embed.terms import MOST
from a2m_retrieval.rerank import Candidate, Evidence, Weights, rerank, weighed


@pytest.fixture(scope="module")
def embedder() -> Iterator[LocalEmbedder]:
    made = LocalEmbedder()
    asyncio.run(made.open())
    yield made
    asyncio.run(made.close())


async def seen(embedder: LocalEmbedder, *texts: str) -> list[Tokens]:
    """The tokens of texts as a record keeps them."""
    encoded = await embedder.encode(texts, kind="document")
    return [embedder.tokens(text, e.features) for text, e in zip(texts, encoded, strict=True)]


async def asked(embedder: LocalEmbedder, question: str) -> Tokens:
    [encoded] = await embedder.encode([question], kind="query")
    assert encoded.tokens is not None
    return encoded.tokens


def order(evidence: Sequence[Evidence] | None) -> list[int]:
    assert evidence is not None
    return sorted(range(len(evidence)), key=lambda at: -evidence[at].score)


async def test_what_is_kept_of_a_text_is_small_and_close_to_what_the_model_saw(
    embedder: LocalEmbedder,
) -> None:
    text = "Caroline: I went to a support group yesterday and it was so powerful."
    [encoded] = await embedder.encode([text], kind="document")
    saw = await asked(embedder, text)
    assert encoded.features is not None
    assert len(encoded.features) < 140 * len(saw.ids) + 4 * MOST + 8
    kept = unpacked(encoded.features, embedder.model, minilm.DIMENSIONS)
    assert kept is not None
    assert kept.states is not None
    assert saw.states is not None
    assert kept.ids.tolist() == saw.ids.tolist() == embedder.tokens(text, None).ids.tolist()
    closeness = (kept.states * saw.states).sum(axis=1) / numpy.linalg.norm(kept.states, axis=1)
    assert closeness[1:-1].min() > 0.85, "but for the marks at both ends"


@pytest.mark.parametrize("features", ["", "AAECAw==", "no base64!", base64.b64encode(bytes(300)).decode()])
async def test_what_another_model_kept_counts_as_nothing(embedder: LocalEmbedder, features: str) -> None:
    assert unpacked(features, embedder.model, minilm.DIMENSIONS) is None
    assert embedder.tokens("a text", features).states is None


async def test_what_one_model_kept_is_not_taken_for_another_s(embedder: LocalEmbedder) -> None:
    saw = await asked(embedder, "a text")
    assert unpacked(saw.packed("other@1"), embedder.model, minilm.DIMENSIONS) is None


async def test_an_answer_that_shares_no_word_comes_before_one_that_shares_the_idle_ones(
    embedder: LocalEmbedder,
) -> None:
    texts = ["When did she say that she would?", "Her flight lands at noon.", "He cannot eat peanuts."]
    documents = [Candidate(tokens, at) for at, tokens in enumerate(await seen(embedder, *texts))]
    query = await asked(embedder, "When does the plane arrive?")
    assert order(rerank(query, documents))[0] == 1


async def test_candidates_without_states_are_ranked_on_the_same_scale(embedder: LocalEmbedder) -> None:
    texts = ["It rained all day.", "Dinner was late.", "The cello is in the attic."]
    known = await seen(embedder, *texts[:2])
    query = await asked(embedder, "Where is the cello?")
    mixed = [*known, embedder.tokens(texts[2], None)]
    near = filled(most_similar(query, mixed))
    assert near.shape == (3, len(query.ids))
    assert near.min() >= -1
    assert near.max() <= 1 + 1e-6
    assert order(rerank(query, [Candidate(tokens, 0) for tokens in mixed]))[0] == 2


async def test_what_nothing_is_known_of_does_not_pass_for_nearer_than_what_was_seen(
    embedder: LocalEmbedder,
) -> None:
    [answer] = await seen(embedder, "We decided to use Kafka for the event pipeline.")
    unknown = [Candidate(embedder.tokens(text, None), 1_000) for text in ("ok", "My cat is called Tom")]
    query = await asked(embedder, "message queue")
    evidence = rerank(query, [*unknown, Candidate(answer, 0, "old")])
    assert order(evidence)[0] == 2


async def test_of_two_alike_the_one_whose_session_is_about_the_question_comes_first(
    embedder: LocalEmbedder,
) -> None:
    texts = [
        "The cello sounds lovely.",
        "The cello sounds lovely.",
        "My cello lesson is on Friday.",
        "It rained.",
    ]
    tokens = await seen(embedder, *texts)
    query = await asked(embedder, "How does the cello sound?")
    found = [Candidate(t, at, session) for at, (t, session) in enumerate(zip(tokens, "abba", strict=True))]
    assert order(rerank(query, found))[0] == 1


@pytest.mark.parametrize("question", ["", "?!", "\u6771"])
async def test_a_query_that_tells_nothing_has_no_order(embedder: LocalEmbedder, question: str) -> None:
    candidates = [
        Candidate(tokens, at) for at, tokens in enumerate(await seen(embedder, "a boat", "a plane"))
    ]
    assert rerank(await asked(embedder, question), candidates) is None


async def test_without_candidates_there_is_nothing_to_rank(embedder: LocalEmbedder) -> None:
    assert rerank(await asked(embedder, "Where is the boat?"), []) is None


def test_equal_evidence_keeps_the_order_of_the_stores() -> None:
    evidence = weighed([0.0] * 4, None, [0, 1, 2, 3], [None] * 4, Weights())
    assert order(evidence) == [0, 1, 2, 3]


def test_every_part_of_the_evidence_is_between_zero_and_one() -> None:
    for sparse in (None, [1.0, 0.0, 1.0]):
        evidence = weighed([0.0, 0.5, 1.0], sparse, [0, 3, 1_000], ["a", "a", None], Weights())
        assert [one.sparse for one in evidence] == (sparse or [None] * 3)
        for one in evidence:
            for part in (one.nearness, one.sparse or 0.0, one.place, one.session, one.score):
                assert 0 <= part <= 1
