"""What lies in a searching tier without a vector gets one, and one of another model when asked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from prometheus_client import CollectorRegistry
from widths import Make, Widths, held, models, until

from a2m_protocol.errors import A2MError, Code
from a2m_router import embedding
from a2m_router.coordination import Locks
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.contract import draft, name, within
from a2m_server.events import EventLog
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Search
from conftest import CHAIN


async def test_what_is_written_straight_into_a_tier_is_embedded_in_the_background(
    make: Make, stores: dict[str, MemoryTier], registry: CollectorRegistry
) -> None:
    federation = await make(Widths())
    drafts = [draft(f"fact {n}", tier="semantic") for n in range(150)]
    await federation.write(drafts, EVERYONE)
    await until(lambda: models(stores["semantic"]) == {"first"})
    assert registry.get_sample_value("a2m_embedded_texts_total", {"kind": "document"}) == 150
    await until(lambda: registry.get_sample_value("a2m_embedding_waiting", {"tier": "semantic"}) == 0)
    before = [r.model_dump(include={"id", "content"}) for r in await federation.read([d.id for d in drafts])]
    assert before == [{"id": d.id, "content": d.content} for d in drafts]


async def test_a_turn_makes_no_vector(
    make: Make, stores: dict[str, MemoryTier], registry: CollectorRegistry
) -> None:
    embedder = Widths()
    federation = await make(embedder)
    session = name()
    for n in range(3):
        await federation.write([draft(f"turn {n}", session=session)], EVERYONE)
        await federation.timeline(Page(within(session), limit=2))
    assert embedder.asked == 0
    for kind in ("document", "query"):
        assert not registry.get_sample_value("a2m_embedded_texts_total", {"kind": kind})
    assert models(stores["working"]) == {None}


async def test_what_moved_without_vectors_gets_them_when_the_model_is_back(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    embedder = Widths()
    embedder.left = 0
    federation = await make(embedder)
    session = name()
    one = draft("the river", session=session)
    await federation.write([one], EVERYONE)
    await federation.close_session(session, EVERYONE)
    assert models(stores["episodic"]) == {None}
    embedder.left = float("inf")
    await until(lambda: models(stores["episodic"]) == {"first"})
    [kept] = await stores["episodic"].read([one.id])
    assert kept.arrival is None


async def test_a_model_that_is_away_is_not_asked_in_a_loop(make: Make, stores: dict[str, MemoryTier]) -> None:
    embedder = Widths()
    embedder.left = 0
    federation = await make(embedder)
    for n in range(20):
        await federation.write([draft(f"fact {n}", tier="semantic")], EVERYONE)
        await asyncio.sleep(0)
    await until(lambda: embedder.asked)
    assert embedder.asked <= 2
    assert models(stores["semantic"]) == {None}


async def test_a_router_that_dies_in_mid_way_leaves_the_rest_to_the_next(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    embedder = Widths()
    embedder.left = 100
    federation = await make(embedder)
    await federation.write([draft(f"fact {n}", tier="episodic") for n in range(200)], EVERYONE)
    await until(lambda: models(stores["episodic"]) == {"first", None})
    federation = await make(Widths())
    await until(lambda: models(stores["episodic"]) == {"first"})


async def test_only_one_of_several_routers_embeds_at_a_time(
    stores: dict[str, MemoryTier], registry: CollectorRegistry
) -> None:
    await stores["semantic"].write([draft(f"fact {n}") for n in range(100)], EVERYONE)
    locks, embedders = Locks(), [Widths(), Widths()]
    federations = [
        Federation(
            "a2m",
            [Member(config, stores[config.name]) for config in CHAIN],
            EventLog(),
            locks=locks,
            interval=3_600,
            embedder=embedder,
            counts=Counts(CollectorRegistry()),
        )
        for embedder in embedders
    ]
    for federation in federations:
        await federation.open()
    await until(lambda: models(stores["semantic"]) == {"first"})
    assert sorted(embedder.asked for embedder in embedders) == [0, 2]
    for federation in federations:
        await federation.close()


async def test_a_text_that_the_model_refuses_holds_up_no_other(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    embedder = Widths()
    embedder.refuses = {"fact 0"}
    drafts = [draft(f"fact {n}") for n in range(70)]
    await stores["semantic"].write(drafts, EVERYONE)
    federation = await make(embedder)
    await until(lambda: len(models(stores["semantic"])) == 2)
    await until(lambda: sum(r.embedding is None for r in held(stores["semantic"])) == 1)
    asked = embedder.asked
    for n in range(3):
        await federation.write([draft(f"late {n}", tier="semantic")], EVERYONE)
        await until(lambda: sum(r.embedding is None for r in held(stores["semantic"])) == 1)
    assert embedder.asked == asked + 3, "one call each, and none for what was refused"
    done = await federation.reembed(None)
    assert (done.embedded, done.left, done.refused) == (0, 0, 1)


async def test_what_was_refused_is_told_of_a_change_of_the_model(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    await stores["semantic"].write([draft(f"fact {n}") for n in range(70)], EVERYONE)
    await make(Widths())
    await until(lambda: models(stores["semantic"]) == {"first"})
    second = Widths("second")
    second.refuses = {"fact 1", "fact 69"}
    federation = await make(second)
    done = await federation.reembed(None)
    assert (done.embedded, done.left, done.refused) == (68, 0, 2)
    assert models(stores["semantic"]) == {"first", "second"}


async def test_a_model_that_refuses_whatever_it_is_asked_is_asked_little(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    embedder = Widths()
    texts = [f"fact {n}" for n in range(20)]
    embedder.refuses = {*texts, "a"}
    await stores["semantic"].write([draft(text) for text in texts], EVERYONE)
    federation = await make(embedder)
    await until(lambda: embedder.asked == 2)
    with pytest.raises(A2MError, match="400"):
        await federation.reembed(None)
    assert models(stores["semantic"]) == {None}


async def test_another_router_that_changes_a_width_is_noticed(
    stores: dict[str, MemoryTier], registry: CollectorRegistry
) -> None:
    def router(embedder: Widths, interval: float) -> Federation:
        members = [Member(config, stores[config.name]) for config in CHAIN]
        return Federation("a2m", members, EventLog(), interval=interval, embedder=embedder)

    one = draft("the river", embedding=[0.0, 1.0], embedding_model="first")
    await stores["semantic"].write([one], EVERYONE)
    async with AsyncExitStack() as opened:
        changes, old = router(Widths("second", 3), 3_600), router(Widths(), 3_600)
        late = router(Widths("second", 3), 0.05)
        for federation in (changes, old, late):
            await federation.open()
            opened.push_async_callback(federation.close)
        assert (await changes.reembed(None)).embedded == 1
        found = await old.search(Search(Filter(), 1, text="river"))
        assert [r.id for r in found.records] == [one.id], "by its words"
        await stores["semantic"].write([draft("the rain")], EVERYONE)
        await until(lambda: models(stores["semantic"]) == {"second"})


async def test_blank_content_and_callers_vectors_are_left_alone(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    federation = await make(Widths())
    mine = draft("mine", tier="semantic", embedding=[0.5, 0.5])
    blank = draft(" \n", tier="semantic")
    await federation.write([mine, blank, draft("fact", tier="semantic")], EVERYONE)
    await until(lambda: "first" in models(stores["semantic"]))
    kept, empty = await stores["semantic"].read([mine.id, blank.id])
    assert (kept.embedding, kept.embedding_model, empty.embedding) == ([0.5, 0.5], None, None)


async def test_another_model_of_another_width_takes_over_step_by_step(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    federation = await make(Widths())
    await federation.write([draft(f"fact {n}", tier="episodic") for n in range(1_200)], EVERYONE)
    await federation.write([draft(f"fact {n}", tier="semantic") for n in range(10)], EVERYONE)
    await until(lambda: models(stores["episodic"]) | models(stores["semantic"]) == {"first"})
    federation = await make(Widths("second", 3))
    assert models(stores["semantic"]) == {"first"}, "the background leaves another model's vectors alone"
    before = [(r.id, r.content, r.seq) for r in (await federation.timeline(Page(Filter()))).records]
    done = await federation.reembed("semantic")
    assert (done.embedded, done.left) == (10, 0)
    assert models(stores["episodic"]) == {"first"}
    left = [done.left]
    while (done := await federation.reembed(None)).left:
        left.append(done.left)
    await until(lambda: models(stores["episodic"]) == {"second"})
    assert (await federation.reembed(None)).left == 0
    after = [(r.id, r.content, r.seq) for r in (await federation.timeline(Page(Filter()))).records]
    assert after == before
    assert (await stores["episodic"].info()).dimensions == 3
    search = Search(Filter(), 5, text="fact")
    assert len((await federation.search(search)).records) == 5


async def test_what_others_take_from_what_is_left_is_not_waited_for(
    make: Make, stores: dict[str, MemoryTier], monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound, value in (("PAGE", 3), ("BATCH", 2), ("STEP", 0.0)):
        monkeypatch.setattr(embedding, bound, value)
    federation = await make(Widths())
    await federation.write([draft(f"fact {n}", tier="episodic") for n in range(8)], EVERYONE)
    await until(lambda: models(stores["episodic"]) == {"first"})
    federation = await make(Widths("second"))
    step = await federation.reembed("episodic")
    assert (step.embedded, step.left) == (2, 6)
    await federation.forget(Filter(tier="episodic"))
    assert (await federation.reembed("episodic")).left == 0


async def test_a_caller_s_vector_of_another_width_keeps_a_tier_as_it_is(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    federation = await make(Widths())
    mine = draft("mine", tier="semantic", embedding=[0.5, 0.5])
    await federation.write([mine, draft("fact", tier="semantic")], EVERYONE)
    await until(lambda: "first" in models(stores["semantic"]))
    federation = await make(Widths("second", 3))
    with pytest.raises(A2MError, match="tier semantic") as caught:
        await federation.reembed(None)
    assert caught.value.code == Code.EMBEDDING_MISMATCH
    assert models(stores["semantic"]) == {"first", None}


async def test_a_tier_that_refuses_another_width_keeps_all_tiers_as_they_are(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    federation = await make(Widths())
    mine = draft("mine", tier="procedural", embedding=[0.5, 0.5])
    facts = [draft("fact", tier=tier) for tier in ("episodic", "semantic", "procedural")]
    await federation.write([mine, *facts], EVERYONE)
    await until(lambda: all("first" in models(stores[one.tier or ""]) for one in facts))
    federation = await make(Widths("second", 3))
    for _ in range(2):
        with pytest.raises(A2MError, match="tier procedural") as caught:
            await federation.reembed(None)
        assert caught.value.code == Code.EMBEDDING_MISMATCH
    assert models(stores["episodic"]) == models(stores["semantic"]) == {"first"}
    assert (await federation.reembed("semantic")).embedded == 1


async def test_without_a_model_nothing_is_embedded_anew(make: Make) -> None:
    federation = await make(None)
    assert "reembed" not in (await federation.info()).extensions
    with pytest.raises(A2MError) as caught:
        await federation.reembed(None)
    assert caught.value.code == Code.NOT_SUPPORTED


async def test_working_is_never_embedded_anew(make: Make) -> None:
    federation = await make(Widths())
    with pytest.raises(A2MError) as caught:
        await federation.reembed("working")
    assert caught.value.code == Code.INVALID_PARAMS


async def test_a_federation_lists_what_has_no_vector_in_the_tiers_that_keep_some(
    make: Make, stores: dict[str, MemoryTier]
) -> None:
    federation = await make(None)
    await federation.write([draft("turn", session=name()), draft("fact", tier="semantic")], EVERYONE)
    found = await federation.entries(Filter(without="m"), 10, None)
    assert [entry.id for entry in found] == [
        e.id for e in await stores["semantic"].entries(Filter(), 10, None)
    ]


async def test_embedding_anew_leaves_callers_vectors_alone(make: Make, stores: dict[str, MemoryTier]) -> None:
    federation = await make(Widths())
    mine = draft("mine", tier="semantic", embedding=[0.5, 0.5])
    await federation.write([mine, draft("fact", tier="semantic")], EVERYONE)
    await until(lambda: "first" in models(stores["semantic"]))
    [before] = await stores["semantic"].read([mine.id])
    federation = await make(Widths("second"))
    done = await federation.reembed(None)
    assert (done.embedded, done.left) == (1, 0)
    [after] = await stores["semantic"].read([mine.id])
    assert after == before
