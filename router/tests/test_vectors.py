"""Vectors are made on the way to a tier that searches, in batches, and never of what has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry

from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_retrieval.embed.port import Encoded
from a2m_router import moves, patience, vectors
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_router.vectors import text_of
from a2m_server.contract import draft, name, within
from a2m_server.events import EventLog
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Search
from conftest import CHAIN

Kind = Literal["document", "query"]


class Meanings:
    """An embedder that knows two meanings, water and fire, in several words each."""

    model = "meanings-1"
    dimensions = 2

    metric = "cosine"
    max_tokens = None

    def __init__(self) -> None:
        self.opened = False
        self.asked: list[tuple[Kind, list[str]]] = []
        self.away = False
        self.hangs = False

    async def open(self) -> None:
        self.opened = True

    async def close(self) -> None:
        self.opened = False

    def reads(self, text: str) -> bool:
        return text != "unreadable"

    def tokens(self, text: str, features: str | None) -> None:
        """This model tells of vectors alone."""

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> list[Encoded]:
        assert self.opened
        self.asked.append((kind, [*texts]))
        if self.away:
            raise unavailable("the embedder", "it is away")
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        water = {"river", "rain"}
        return [Encoded([0.6, 0.8] if water & {*text.split()} else [-0.8, 0.6]) for text in texts]


@pytest.fixture
def embedder() -> Meanings:
    return Meanings()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def federation(
    stores: dict[str, MemoryTier], embedder: Meanings, registry: CollectorRegistry
) -> AsyncIterator[Federation]:
    members = [Member(config, stores[config.name]) for config in CHAIN]
    made = Federation("a2m", members, EventLog(), interval=3_600, embedder=embedder, counts=Counts(registry))
    await made.open()
    yield made
    await made.close()


async def test_a_session_that_leaves_working_is_embedded_in_one_batch(
    federation: Federation, stores: dict[str, MemoryTier], embedder: Meanings
) -> None:
    session = name()
    drafts = [draft(f"the river {n}", role="user", session=session) for n in range(2)]
    drafts.append(draft("the river 2", role="user", session=session, metadata={"speaker": "Ann"}))
    await federation.write(drafts, EVERYONE)
    assert embedder.asked == []
    before = (await federation.timeline(Page(within(session)))).records
    assert embedder.asked == [], "a turn makes no vector"
    await federation.close_session(session, EVERYONE)
    [(kind, texts)] = embedder.asked
    date = before[0].created_at[:10]
    said = ["user: the river 0", "user: the river 1", "Ann: the river 2"]
    assert (kind, texts) == ("document", [f"[{date}] {text}" for text in said])
    after = await stores["episodic"].read([d.id for d in drafts])
    assert [(r.embedding_model, r.arrival) for r in after] == [("meanings-1", None)] * 3
    assert after[0].embedding == pytest.approx([0.6, 0.8])
    assert [r.content for r in after] == [r.content for r in before]
    assert await stores["working"].read([d.id for d in drafts]) == []


async def test_a_query_finds_by_meaning_what_has_none_of_its_words(federation: Federation) -> None:
    session = name()
    await federation.write(
        [draft("the river", session=session), draft("a candle", session=session)], EVERYONE
    )
    await federation.close_session(session, EVERYONE)
    found = (await federation.search(Search(Filter(), 1, text="rain"))).records
    assert [record.content for record in found] == ["the river"]


async def test_a_query_is_embedded_once_whoever_asks_it_and_how_often(
    federation: Federation, embedder: Meanings, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "AWAY", 0.0)
    search = Search(Filter(), 1, text="rain")
    await asyncio.gather(federation.search(search), federation.search(search))
    await federation.search(search)
    assert registry.get_sample_value("a2m_embedded_texts_total", {"kind": "query"}) == 1
    embedder.away = True
    await federation.search(Search(Filter(), 1, text="river"))
    embedder.away = False
    await federation.search(Search(Filter(), 1, text="river"))
    assert [texts for _, texts in embedder.asked] == [["rain"], ["river"], ["river"]], "a failure is not kept"


async def test_a_query_that_is_given_up_is_there_for_who_asked_too(
    federation: Federation, embedder: Meanings
) -> None:
    search = Search(Filter(), 1, text="rain")
    first = asyncio.create_task(federation.search(search))
    while not embedder.asked:  # noqa: ASYNC110 it tells nobody
        await asyncio.sleep(0)
    first.cancel()
    await federation.search(search)
    assert len(embedder.asked) == 1


async def test_a_query_that_the_model_cannot_read_goes_by_its_words(
    federation: Federation, embedder: Meanings
) -> None:
    await federation.search(Search(Filter(), 1, text="unreadable"))
    assert embedder.asked == []


async def test_a_caller_s_vector_is_never_touched(
    federation: Federation, stores: dict[str, MemoryTier], embedder: Meanings
) -> None:
    session = name()
    mine = draft("mine", session=session, embedding=[0.25, 0.5])
    await federation.write([mine, draft("", session=session)], EVERYONE)
    await federation.close_session(session, EVERYONE)
    [kept] = await stores["episodic"].read([mine.id])
    assert (kept.embedding, kept.embedding_model) == ([0.25, 0.5], None)
    assert embedder.asked == [], "there was nothing to embed"


async def test_a_move_that_is_tried_again_knows_its_copy_with_a_vector(
    federation: Federation, stores: dict[str, MemoryTier], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = name()
    one = draft("the river", session=session)
    await federation.write([one], EVERYONE)

    async def lost(*_: object) -> None:
        raise unavailable("working", "the answer was lost")

    monkeypatch.setattr(stores["working"], "delete_if", lost)
    with pytest.raises(Exception, match="lost"):
        await federation.close_session(session, EVERYONE)
    [copy] = await stores["episodic"].read([one.id])
    monkeypatch.undo()
    await federation.close_session(session, EVERYONE)
    [settled] = await stores["episodic"].read([one.id])
    assert (settled.etag, settled.arrival) == (copy.etag, None)
    assert await stores["working"].read([one.id]) == []


async def test_without_the_model_records_move_and_words_find_them(
    federation: Federation, stores: dict[str, MemoryTier], embedder: Meanings, registry: CollectorRegistry
) -> None:
    session = name()
    one = draft("the river", session=session)
    await federation.write([one], EVERYONE)
    embedder.away = True
    assert list((await federation.close_session(session, EVERYONE)).moved) == [one.id]
    [kept] = await stores["episodic"].read([one.id])
    assert kept.embedding is None
    found = (await federation.search(Search(Filter(), 1, text="river"))).records
    assert [record.id for record in found] == [one.id]
    assert not registry.get_sample_value("a2m_embedded_texts_total", {"kind": "document"})


async def test_a_model_that_does_not_answer_holds_up_neither_recalls_nor_moves(
    stores: dict[str, MemoryTier], embedder: Meanings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "QUERY_SECONDS", 0.01)
    monkeypatch.setattr(vectors, "MOVE_SECONDS", 0.01)
    members = [Member(config, stores[config.name]) for config in CHAIN]
    federation = Federation("a2m", members, EventLog(), interval=3_600, embedder=embedder)
    await federation.open()
    try:
        one = draft("the river", session="s")
        await federation.write([one], EVERYONE)
        embedder.hangs = True
        assert list((await federation.close_session("s", EVERYONE)).moved) == [one.id]
        for text in ("river", "the river"):
            found = (await federation.search(Search(Filter(), 1, text=text))).records
            assert [record.id for record in found] == [one.id]
        assert [kind for kind, _ in embedder.asked].count("query") == 1
    finally:
        await federation.close()


async def test_a_move_that_takes_long_leaves_the_vectors_to_the_background(
    federation: Federation, stores: dict[str, MemoryTier], embedder: Meanings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "EMBED_SECONDS", 0.0)
    session = name()
    one = draft("the river", session=session)
    await federation.write([one], EVERYONE)
    assert list((await federation.close_session(session, EVERYONE)).moved) == [one.id]
    async with asyncio.timeout(10):
        while (await stores["episodic"].read([one.id]))[0].embedding is None:  # noqa: ASYNC110 it tells nobody
            await asyncio.sleep(0.005)
    assert len(embedder.asked) == 1


async def test_a_tier_with_vectors_of_another_width_is_left_without_ours(
    federation: Federation, stores: dict[str, MemoryTier], embedder: Meanings
) -> None:
    await federation.write([draft("wide", tier="episodic", embedding=[1.0, 0.0, 0.0])], EVERYONE)
    session = name()
    await federation.write([draft("the river", session=session)], EVERYONE)
    assert len((await federation.close_session(session, EVERYONE)).moved) == 1
    assert [kind for kind, _ in embedder.asked] == []
    found = (await federation.search(Search(Filter(), 2, text="river"))).records
    assert [record.content for record in found] == ["the river"]


async def test_a_tier_that_a_wide_vector_moves_to_takes_what_follows_without_ours(
    federation: Federation,
) -> None:
    wide, later = name(), name()
    await federation.write([draft("wide", session=wide, embedding=[1.0, 0.0, 0.0])], EVERYONE)
    await federation.write([draft("the river", session=later)], EVERYONE)
    assert len((await federation.close_session(wide, EVERYONE)).moved) == 1
    assert len((await federation.close_session(later, EVERYONE)).moved) == 1
    found = (await federation.search(Search(Filter(), 2, text="river"))).records
    assert [record.content for record in found] == ["the river"]


async def test_a_wide_vector_is_refused_once_something_was_embedded(federation: Federation) -> None:
    session = name()
    await federation.write([draft("the river", session=session)], EVERYONE)
    assert len((await federation.close_session(session, EVERYONE)).moved) == 1
    with pytest.raises(A2MError) as refused:
        await federation.write([draft("wide", embedding=[1.0, 0.0, 0.0])], EVERYONE)
    assert refused.value.code == Code.EMBEDDING_MISMATCH


async def test_describe_names_the_model(federation: Federation) -> None:
    info = await federation.info()
    assert (info.embedding_model, info.dimensions) == ("meanings-1", 2)


def test_a_speaker_that_is_no_name_is_not_embedded() -> None:
    named = draft("the river", role="user", metadata={"speaker": "Ann"})
    nameless = draft("the river", role="user", metadata={"speaker": {"name": "Ann"}})
    assert (text_of(named), text_of(nameless)) == ("Ann: the river", "user: the river")
