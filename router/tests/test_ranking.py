"""One order over all tiers: by the model, by a cross-encoder, by fusion, and what stands behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import unavailable
from a2m_protocol.types import Draft, Provenance
from a2m_retrieval.cross import CrossEncoder, RerankSettings
from a2m_retrieval.embed import minilm
from a2m_retrieval.embed.late import Tokens, unpacked
from a2m_retrieval.embed.local import LocalEmbedder
from a2m_router.federation import Federation
from a2m_router.rankers import CrossRanker, Opinion, Placed, Query
from a2m_router.ranking import FUSION, HALF_LIFE, Ranking, apart
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.contract import draft, name, within
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.params import Limits
from a2m_server.records import record_of
from a2m_server.values import EVERYONE, Filter, Found, Page, Search, Seen
from conftest import CHAIN

NOW = 2_000_000_000_000_000


class Fixed:
    """A ranker of opinions that are given by content; `away` or without one it has none."""

    name = "fixed"
    most = 200

    def __init__(self, **scores: float) -> None:
        self.scores = scores
        self.away = False

    async def rank(self, query: Query, candidates: Sequence[Placed]) -> list[Opinion] | None:
        if self.away:
            raise unavailable("the ranker", "it is away")
        if not self.scores:
            return None
        return [Opinion(self.scores.get(c.record.content, 0.0), {"fixed": 1.0}) for c in candidates]


def found(*contents: str, start: int = 0, **fields: object) -> Found:
    drafts = [Draft.model_validate({"id": f"{c}#{start}", "content": c, **fields}) for c in contents]
    return Found(
        [record_of(d, NOW + start + n, "2033-05-18T03:33:20.000Z", "e") for n, d in enumerate(drafts)]
    )


async def order(ranking: Ranking, search: Search, **answers: Found) -> tuple[str | None, list[str]]:
    merged = await ranking.merged(search, Query(search.text or ""), answers)
    return merged.ranked_by, [r.content for r in merged.records]


ASKED = Search(Filter(), 10, text="boat")


async def test_one_ranker_orders_the_candidates_of_all_tiers() -> None:
    ranking = Ranking([Fixed(a=0.1, b=0.9, c=0.5)], lambda: NOW)
    told = await order(ranking, ASKED, episodic=found("a", "b"), semantic=found("c"))
    assert told == ("fixed", ["b", "c", "a"])


async def test_a_ranker_that_is_away_or_has_no_opinion_leaves_it_to_the_next_and_at_last_to_fusion() -> None:
    away, idle, last = Fixed(a=1.0), Fixed(), Fixed(b=1.0)
    away.away = True
    answers = {"episodic": found("a", "b")}
    assert await order(Ranking([away, idle, last], lambda: NOW), ASKED, **answers) == ("fixed", ["b", "a"])
    assert await order(Ranking([away, idle], lambda: NOW), ASKED, **answers) == (FUSION, ["a", "b"])


async def test_a_cross_encoder_that_hangs_is_waited_for_once() -> None:
    asked: list[bytes] = []
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(10))
        await reader.read()
        writer.close()
        left.set()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        encoder = CrossEncoder(RerankSettings(url=f"http://127.0.0.1:{port}", timeout=0.2))
        await encoder.open()
        ranking = Ranking([CrossRanker(encoder), Fixed(a=0.1, b=0.9)], lambda: NOW)
        for _ in range(2):
            assert await order(ranking, ASKED, episodic=found("a", "b")) == ("fixed", ["b", "a"])
        await encoder.close()
        await left.wait()
    assert len(asked) == 1


async def test_equal_scores_are_no_opinion_and_do_not_become_newest_first() -> None:
    ranking = Ranking([Fixed(a=0.5, b=0.5, c=0.5)], lambda: NOW + HALF_LIFE)
    assert await order(ranking, ASKED, episodic=found("a", "b", "c")) == (FUSION, ["a", "b", "c"])


async def test_of_two_alike_the_newer_and_the_more_salient_come_first() -> None:
    ranking = Ranking([Fixed(old=0.5, new=0.5, dear=0.5, x=0.1)], lambda: NOW)
    old, new, worse = found("old", start=-HALF_LIFE), found("new"), found("x")
    told = await order(ranking, ASKED, episodic=old, working=new, semantic=worse)
    assert told[1] == ["new", "old", "x"]
    dear = found("dear", salience=3.0)
    told = await order(ranking, ASKED, episodic=new, semantic=dear, working=worse)
    assert told[1] == ["dear", "new", "x"]
    ranking = Ranking([Fixed(old=0.6, new=0.5)], lambda: NOW)
    assert (await order(ranking, ASKED, episodic=old, working=new))[1] == ["old", "new"]


async def test_what_a_ranker_is_not_given_follows_in_the_order_of_the_tiers() -> None:
    ranker = Fixed(a=0.1, b=0.9, c=1.0, d=1.0)
    ranker.most = 2
    answers = {"episodic": found("a", "c", "d"), "semantic": found("b")}
    assert (await order(Ranking([ranker], lambda: NOW), ASKED, **answers))[1] == ["b", "a", "c", "d"]


async def test_what_repeats_another_record_stands_behind_all_others_and_is_told() -> None:
    said, again, other = "the boat leaves at noon", "The boat leaves at noon!", "it rained"
    ranking = Ranking([Fixed(**{said: 0.9, again: 0.8, other: 0.1})], lambda: NOW)
    search = replace(ASKED, explain=True)
    answers = {"episodic": found(said, again), "semantic": found(other)}
    merged = await ranking.merged(search, Query("boat"), answers)
    assert [r.content for r in merged.records] == [said, other, again], "none is lost"
    [suppressed] = merged.suppressed
    assert (suppressed["id"], suppressed["reason"], suppressed["of"]) == (
        f"{again}#0",
        "near-duplicate",
        f"{said}#0",
    )
    assert merged.explained[f"{said}#0"] == {
        "tier": "episodic",
        "rank": 1,
        "fixed": 1.0,
        "recency": 1.0,
        "salience": 0.5,
        "score": pytest.approx(0.96 * 0.9 + 0.02 + 0.01),
    }
    assert await order(ranking, replace(ASKED, limit=2), **answers) == ("fixed", [said, other])


async def test_a_fact_and_the_episode_it_came_from_count_as_one() -> None:
    episode, fact = "Ann: well, the boat is kept in Oban since May", "the boat is kept in Oban"
    answers = {
        "episodic": found(episode),
        "semantic": found(fact, provenance=Provenance(derived_from=[f"{episode}#0"])),
    }
    ranking = Ranking([Fixed(**{episode: 0.8, fact: 0.9, "rain": 0.1})], lambda: NOW)
    told = await order(ranking, ASKED, **answers, working=found("rain"))
    assert told[1] == [fact, "rain", episode]


async def test_what_two_owners_said_alike_is_no_repetition() -> None:
    answers = {
        "episodic": found("the boat", owner="ann"),
        "semantic": found("the boat", start=1, owner="bob"),
    }
    merged = await Ranking([], lambda: NOW).merged(replace(ASKED, explain=True), Query("boat"), answers)
    assert merged.suppressed == ()


def test_as_many_are_looked_at_for_repetitions_as_a_result_may_show() -> None:
    assert apart([], 5) == ([], [])


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.fixture
async def federation(stores: dict[str, MemoryTier], embedder: LocalEmbedder) -> AsyncIterator[Federation]:
    members = [Member(config, stores[config.name]) for config in CHAIN]
    made = Federation("a2m", members, EventLog(), interval=3_600, embedder=embedder)
    await made.open()
    yield made
    await made.close()


async def told(federation: Federation, session: str, *contents: str) -> list[str]:
    """Write turns, and close their session."""
    drafts = [draft(content, session=session, role="user") for content in contents]
    await federation.write(drafts, EVERYONE)
    await federation.close_session(session, EVERYONE)
    return [d.id for d in drafts]


async def test_the_model_ranks_what_several_tiers_found(federation: Federation) -> None:
    session = name()
    await told(federation, session, "We moved the release to Friday.", "My flight lands at noon.")
    fact = draft("He cannot eat peanuts.", tier="semantic", session=session)
    now = draft("Did it rain?", session=session)
    await federation.write([fact, now], EVERYONE)
    search = Search(within(session), 4, text="When does the plane arrive?", explain=True)
    answer = await federation.search(search)
    assert answer.ranked_by == "rerank"
    assert answer.records[0].content == "My flight lands at noon."
    parts = answer.explained[answer.records[0].id]
    evidence = {"nearness", "sparse", "place", "session", "recency", "salience"}
    assert evidence | {"tier", "rank", "score"} == parts.keys()
    assert all(0 <= float(str(part[name])) <= 1 for part in answer.explained.values() for name in evidence)
    assert {part: seconds >= 0 for part, seconds in answer.took.items()} == dict.fromkeys(
        ("embed", "tiers", "rank"), True
    )


async def test_what_a_text_is_about_speaks_for_it(federation: Federation) -> None:
    session = name()
    ids = await told(federation, session, "Her flight lands at noon.", "Her cat sleeps at noon.")
    answer = await federation.search(
        Search(within(session), 4, text="When does the plane arrive?", explain=True)
    )
    flight, cat = (answer.explained[record_id]["sparse"] for record_id in ids)
    assert float(str(flight)) > float(str(cat)) == 0


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(lambda tokens: Tokens(tokens.ids, tokens.states).packed(minilm.MODEL), id="no terms"),
        pytest.param(lambda tokens: None, id="nothing"),
        pytest.param(lambda tokens: "AqX/", id="three bytes"),
        pytest.param(lambda tokens: tokens.packed(minilm.MODEL)[:80], id="cut off"),
    ],
)
async def test_records_of_which_less_was_kept_are_ranked_with_the_others(
    federation: Federation, stores: dict[str, MemoryTier], kept: Callable[[Tokens], str | None]
) -> None:
    session = name()
    ids = await told(
        federation, session, "The cello is in the attic.", "It rained all day.", "Lunch was late."
    )
    [record] = await stores["episodic"].read(ids[:1])
    assert record.embedding is not None
    seen = unpacked(record.features or "", minilm.MODEL, minilm.DIMENSIONS)
    assert seen is not None
    assert seen.terms is not None
    told_anew = Seen(record.id, record.etag, record.embedding, minilm.MODEL, kept(seen))
    assert await stores["episodic"].embed([told_anew]) == {record.id: True}
    answer = await federation.search(Search(within(session), 3, text="Where is the cello?", explain=True))
    assert answer.ranked_by == "rerank"
    assert answer.records[0].id == ids[0]
    assert all("sparse" in parts for parts in answer.explained.values())


async def test_a_store_from_before_there_were_terms_is_ranked_without(
    federation: Federation, stores: dict[str, MemoryTier]
) -> None:
    session = name()
    ids = await told(federation, session, "It rained all day.", "The cello is in the attic.")
    for record in await stores["episodic"].read(ids):
        seen = unpacked(record.features or "", minilm.MODEL, minilm.DIMENSIONS)
        assert seen is not None
        assert record.embedding is not None
        older = Tokens(seen.ids, seen.states).packed(minilm.MODEL)
        await stores["episodic"].embed([Seen(record.id, record.etag, record.embedding, minilm.MODEL, older)])
    answer = await federation.search(Search(within(session), 2, text="Where is the cello?", explain=True))
    assert answer.ranked_by == "rerank"
    assert [record.id for record in answer.records] == [*reversed(ids)]
    assert not any("sparse" in parts for parts in answer.explained.values())


async def test_a_move_keeps_what_the_model_saw(federation: Federation, stores: dict[str, MemoryTier]) -> None:
    [record_id] = await told(federation, name(), "My flight lands at noon.")
    [kept] = await stores["episodic"].read([record_id])
    assert kept.features is not None
    await federation.promote([record_id], "semantic", 0.0, EVERYONE)
    [moved] = await stores["semantic"].read([record_id])
    assert (moved.features, moved.embedding) == (kept.features, kept.embedding)


async def test_a_query_of_a_script_that_the_model_does_not_read_goes_by_fusion(
    federation: Federation,
) -> None:
    session = name()
    await told(federation, session, "\u6211\u5011\u4eca\u5929\u53bb\u6771\u4eac")
    answer = await federation.search(Search(within(session), 4, text="\u6771\u4eac"))
    assert answer.ranked_by == FUSION
    assert len(answer.records) == 1


@pytest.mark.parametrize("text", ["the of and", "!!!", "\U0001f98a"])
async def test_a_query_that_asks_for_nothing_finds_nothing(federation: Federation, text: str) -> None:
    session = name()
    await told(federation, session, "My flight lands at noon.")
    await federation.write([draft("It rained.", session=session)], EVERYONE)
    assert (await federation.search(Search(within(session), 4, text=text))).records == []


async def test_the_newest_turns_are_candidates_though_they_share_no_word(federation: Federation) -> None:
    session = name()
    newest = draft("My flight lands at noon.", session=session)
    await federation.write([newest], EVERYONE)
    answer = await federation.search(
        Search(within(session), 4, text="When does the plane arrive?", explain=True)
    )
    assert [r.id for r in answer.records] == [newest.id]
    assert answer.explained[newest.id]["rank"] is None


async def test_a_client_is_told_how_a_recall_was_ranked_and_never_shown_features(
    federation: Federation,
) -> None:
    session = name()
    await told(federation, session, "My flight lands at noon.", "It rained.")
    peer, dispatcher = Peer(LOCAL), Dispatcher(federation)
    client = Client(LocalTransport(lambda message: dispatcher.handle(message, peer)))
    plain = await client.recall("When does the plane arrive?", where={"session": session})
    assert plain["ranked_by"] == "rerank"
    assert "explained" not in plain
    records = plain["records"]
    assert isinstance(records, list)
    assert not any("features" in record for record in records if isinstance(record, dict))
    explained = await client.recall("plane", where={"session": session}, explain=True)
    assert {"explained", "suppressed", "took"} <= explained.keys()
    assert (await client.recall(where={"session": session}))["ranked_by"] == "recency"
    [first, *_] = (await federation.timeline(Page(within(session)))).records
    assert first.score is None


async def over_the_wire(store: MemoryTier, limits: Limits) -> RemoteTier:
    peer, dispatcher = Peer(LOCAL), Dispatcher(store, limits=limits)
    remote = RemoteTier(Client(LocalTransport(lambda message: dispatcher.handle(message, peer))), "tier")
    await remote.info()
    return remote


async def test_a_tier_is_asked_for_no_more_than_it_says_it_gives() -> None:
    store, session = MemoryTier("other"), name()
    await store.write([draft(f"boat {n}", session=session) for n in range(6)], EVERYONE)
    remote = await over_the_wire(store, Limits(max_recall_limit=4))
    for least in (None, 2, 9):
        answer = await remote.search(Search(within(session), 150, text="boat", least=least))
        assert len(answer.records) == 4


async def test_candidates_that_weigh_much_are_left_out_but_never_what_was_asked_for() -> None:
    store, session = MemoryTier("tier"), name()
    heavy = "boat " + "x" * 900_000
    await store.write([draft(heavy, session=session) for _ in range(6)], EVERYONE)
    remote = await over_the_wire(store, Limits())
    answer = await remote.search(Search(within(session), 150, text="boat", least=3))
    assert len(answer.records) == 5, "three that were asked for, and two of less than two million"
