"""The packaged model, as it is installed."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2m_protocol.errors import A2MError
from a2m_retrieval.embed import minilm
from a2m_retrieval.embed.local import BATCH, LocalEmbedder


@pytest.fixture(scope="module")
def embedder() -> Iterator[LocalEmbedder]:
    made = LocalEmbedder()
    asyncio.run(made.open())
    yield made
    asyncio.run(made.close())


def cosine(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


async def test_vectors_are_float32_of_length_one_and_as_wide_as_said(embedder: LocalEmbedder) -> None:
    for vector in await embedder.embed(["a plane", "The train leaves at seven."], kind="document"):
        assert len(vector) == embedder.dimensions
        assert array("f", vector).tolist() == vector
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


async def test_similarities_are_those_that_the_model_is_published_with(embedder: LocalEmbedder) -> None:
    texts = ["a happy person", "a very happy person", "a happy dog"]
    texts = [*(f"That is {text}" for text in texts), "Today is a sunny day"]
    one, *others = await embedder.embed(texts, kind="document")
    assert [cosine(one, other) for other in others] == pytest.approx([0.943, 0.695, 0.257], abs=0.01)


async def test_a_paraphrase_without_a_common_word_is_found(embedder: LocalEmbedder) -> None:
    facts = ["We moved the release to Friday.", "Her flight lands at noon.", "He cannot eat peanuts."]
    documents = await embedder.embed(facts, kind="document")
    for question, answer in [("When does the plane arrive?", 1), ("Which food must be avoided?", 2)]:
        (query,) = await embedder.embed([question], kind="query")
        assert max(range(3), key=lambda at: cosine(query, documents[at])) == answer


async def test_a_vector_does_not_depend_on_the_company_that_its_text_is_in(embedder: LocalEmbedder) -> None:
    texts = [f"Turn {at}: " + "we talked about the boat. " * (at % 7) for at in range(BATCH + 8)]
    together = await embedder.embed(texts, kind="document")
    for at in (0, 6, BATCH - 1, BATCH, BATCH + 7):
        (alone,) = await embedder.embed([texts[at]], kind="query")
        assert alone == pytest.approx(together[at], abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(" \n\t", id="blank"),
        pytest.param("\x00", id="NUL"),
        pytest.param("\ud800 alone", id="lone surrogate"),
        pytest.param("🦊" * 40, id="emoji"),
        pytest.param("مرحبا بالعالم", id="Arabic"),
        pytest.param("東京に引っ越した", id="Japanese"),
        pytest.param("e" + "\u0301" * 5_000, id="accents"),
        pytest.param("x" * 200_000, id="one word"),
        pytest.param("word " * 400, id="several windows"),
        pytest.param(" " * 100_000 + "late", id="blank at first"),
    ],
)
async def test_any_text_has_a_vector(embedder: LocalEmbedder, text: str) -> None:
    (vector,) = await embedder.embed([text], kind="document")
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


async def test_no_texts_have_no_vectors(embedder: LocalEmbedder) -> None:
    assert await embedder.embed([], kind="document") == []


async def test_of_a_long_text_all_parts_count_and_what_is_beyond_max_tokens_does_not(
    embedder: LocalEmbedder,
) -> None:
    filler = "tea " * 260
    news = "The volcano erupted. " * 20
    texts = [filler, filler + news, "tea " * embedder.max_tokens, "tea " * embedder.max_tokens + news]
    plain, extended, full, beyond = await embedder.embed(texts, kind="query")
    (query,) = await embedder.embed(["The volcano erupted."], kind="query")
    assert cosine(query, extended) > cosine(query, plain) + 0.1
    assert beyond == pytest.approx(full, abs=1e-5)


async def test_a_query_does_not_wait_for_documents(embedder: LocalEmbedder) -> None:
    documents = asyncio.create_task(embedder.embed(["word " * 40] * 6 * BATCH, kind="document"))
    await asyncio.sleep(0)
    await embedder.embed(["Where is the boat?"], kind="query")
    assert not documents.done()
    documents.cancel()
    await asyncio.wait([documents])
    assert documents.cancelled()
    assert len(await embedder.embed(["afterwards"], kind="document")) == 1


async def test_an_embedder_that_is_not_open_says_so_and_may_be_opened_again() -> None:
    made = LocalEmbedder()
    with pytest.raises(A2MError, match="not open"):
        await made.embed(["x"], kind="query")
    for _ in range(2):
        await made.open()
        assert len(await made.embed(["x"], kind="query")) == 1
        await made.close()
    with pytest.raises(A2MError, match="not open"):
        await made.embed(["x"], kind="query")


async def test_an_embedder_that_closes_finishes_what_it_has_begun() -> None:
    made = LocalEmbedder()
    await made.open()
    texts = ["The boat is in the harbour."] * BATCH
    working = asyncio.create_task(made.embed(texts, kind="document"))
    await asyncio.sleep(0)
    await made.close()
    assert len(await working) == BATCH


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("When did Caroline go to the support group?", True),
        ("Any fav tunes by Bach & co?", True),
        ("Microstructural development of cerebral white matter assessed by diffusion tensor imaging", True),
        ("2023-05-08", True),
        ("安娜三月搬到了上海。", False),
        ("猫", False),
        ("Анна переехала в Казань в марте.", False),
        ("انتقلت آنا إلى القاهرة", False),
        ("Anna が大阪へ引っ越したのはいつですか？ Bitte schnellstmöglich nachschlagen", False),
    ],
)
def test_it_reads_what_is_mostly_of_words_that_it_knows(text: str, reads: bool) -> None:
    assert LocalEmbedder().reads(text) is reads


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(ValueError, match=r"lacks onnxruntime: install a2m-retrieval\[local\]"):
        LocalEmbedder()


async def test_weights_of_another_release_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "_SHA256", "0" * 64)
    made = LocalEmbedder()
    with pytest.raises(ValueError, match="another model"):
        await made.open()


def test_what_does_not_embed_does_not_import_the_model() -> None:
    code = "import sys, a2m_retrieval.embed.settings\n"
    code += "print({'numpy', 'onnxruntime', 'tokenizers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_library_that_runs_the_model_reports_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    program = "from a2m_retrieval.embed.minilm import MiniLM; MiniLM()"
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert [*tmp_path.iterdir()] == []
