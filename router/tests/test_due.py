"""Whether vectors are to be made anew is told, who makes them takes turns, and no width is for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from widths import Make, Widths, models, until

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import A2MError, Code
from a2m_router import embedding
from a2m_router.federation import Federation
from a2m_server.contract import draft, name
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Search, Seen

Stores = dict[str, MemoryTier]


def connect(federation: Federation) -> Client:
    dispatcher, peer = Dispatcher(federation), Peer(LOCAL)
    return Client(LocalTransport(lambda message: dispatcher.handle(message, peer)))


async def due(federation: Federation) -> dict[str, str]:
    """What a description tells, by tier."""
    described: Any = await connect(federation).describe()
    return {told["tier"]: told["reason"] for told in described["embeddings"].get("reembed", [])}


async def until_due(federation: Federation, tiers: Sequence[str]) -> dict[str, str]:
    async with asyncio.timeout(10):
        while (told := await due(federation)).keys() != {*tiers}:  # noqa: ASYNC110 it tells nobody
            await asyncio.sleep(0.005)
    return told


@pytest.mark.parametrize("width", [2, 3])
async def test_a_change_of_the_model_is_told_until_all_is_embedded_anew(
    make: Make, stores: Stores, width: int
) -> None:
    federation = await make(Widths())
    await federation.write([draft("fact", tier=tier) for tier in ("episodic", "semantic")], EVERYONE)
    await until(lambda: models(stores["episodic"]) | models(stores["semantic"]) == {"first"})
    assert await due(federation) == {}
    federation = await make(Widths("second", width))
    told = await until_due(federation, ["episodic", "semantic"])
    why = "2 numbers and those of second 3" if width == 3 else "another model than second"
    assert why in told["episodic"]
    assert (await federation.reembed("semantic")).left == 0
    assert (await due(federation)).keys() == {"episodic"}
    assert (await federation.reembed(None)).left == 0
    assert await due(federation) == {}


async def test_what_waits_for_a_model_that_is_away_or_is_refused_is_not_due(
    make: Make, stores: Stores
) -> None:
    embedder = Widths()
    embedder.left, embedder.refuses = 0, {"fact"}
    await stores["semantic"].write([draft("fact"), draft("other")], EVERYONE)
    federation = await make(embedder)
    await until(lambda: embedder.asked)
    assert await due(federation) == {}
    embedder.left = float("inf")
    await until(lambda: models(stores["semantic"]) == {"first", None})
    assert await due(federation) == {}


async def test_a_recall_says_when_words_alone_found_it(make: Make, stores: Stores) -> None:
    embedder = Widths()
    federation = await make(embedder)
    await federation.write([draft("the river", tier="semantic")], EVERYONE)
    await until(lambda: models(stores["semantic"]) == {"first"})
    client = connect(federation)
    assert "degraded" not in await client.recall("river")
    embedder.left = 0
    for query, why in (("rivers", "it is away"), ("a river", "a moment ago")):
        found: Any = await client.recall(query)
        assert [record["content"] for record in found["records"]] == ["the river"]
        [silent] = found["degraded"]
        assert silent["tier"] == "embedder"
        assert why in silent["reason"]
    context: Any = await client.call("memory/context", {"query": "river banks"})
    assert [silent["tier"] for silent in context["degraded"]] == ["embedder"]
    for params in ({"tier": "working"}, {"embedding": [0.0, 1.0]}):
        assert "degraded" not in await client.recall("the banks", **params)


async def test_one_who_embeds_anew_waits_for_the_background(
    make: Make, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Widths()
    going, paused = asyncio.Event(), asyncio.Event()
    encode = embedder.encode

    async def slow(texts: Sequence[str], *, kind: Any) -> Any:
        paused.set()
        await going.wait()
        return await encode(texts, kind=kind)

    monkeypatch.setattr(embedder, "encode", slow)
    await stores["semantic"].write([draft(f"fact {n}") for n in range(100)], EVERYONE)
    federation = await make(embedder)
    await paused.wait()
    anew = asyncio.create_task(federation.reembed(None))
    await asyncio.sleep(0)
    going.set()
    assert (await anew).left == 0
    assert models(stores["semantic"]) == {"first"}
    assert embedder.asked == 2, "100 records in two batches, none of them twice"


async def test_one_who_embeds_anew_does_not_wait_for_ever(
    make: Make, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "LONGEST_WAIT", 0.01)
    embedder = Widths()
    never, paused = asyncio.Event(), asyncio.Event()

    async def hangs(texts: Sequence[str], *, kind: Any) -> Any:
        paused.set()
        await never.wait()

    monkeypatch.setattr(embedder, "encode", hangs)
    await stores["semantic"].write([draft("fact")], EVERYONE)
    federation = await make(embedder)
    await paused.wait()
    step = await federation.reembed(None)
    assert (step.embedded, step.left) == (0, 1)


async def test_the_background_gives_way_to_one_who_embeds_anew(
    make: Make, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "STEP", 0.0)
    embedder = Widths()
    await stores["semantic"].write([draft(f"fact {n}") for n in range(640)], EVERYONE)
    federation = await make(embedder)
    await until(lambda: embedder.asked)
    step = await federation.reembed(None)
    assert (step.embedded, step.left) == (64, 640 - 64 * (embedder.asked))
    while (await federation.reembed(None)).left:
        pass
    assert embedder.asked == 10, "no batch twice"


@pytest.mark.parametrize("before", ["forgotten", "none"])
async def test_a_width_that_nothing_holds_any_more_gives_way(
    make: Make, stores: Stores, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = await make(Widths("second", 3))
    mine = draft("mine", tier="semantic", embedding=[0.5, 0.5])
    await stores["semantic"].write([mine], EVERYONE)
    await stores["semantic"].write([draft("fact")], EVERYONE)
    if before == "forgotten":
        await stores["semantic"].forget(Filter(ids=(mine.id,)))
    federation = await make(Widths("second", 3))
    if before == "forgotten":
        await until(lambda: models(stores["semantic"]) == {"second"})
        assert await due(federation) == {}
        await federation.write([draft("new", tier="semantic")], EVERYONE)
        await until(lambda: sum(r.embedding is None for r in held_of(stores)) == 0)
    else:
        await until_due(federation, ["semantic"])
        assert models(stores["semantic"]) == {None}
        with pytest.raises(A2MError) as refused:
            await federation.reembed(None)
        assert refused.value.code == Code.EMBEDDING_MISMATCH


def held_of(stores: Stores) -> list[Any]:
    return [*stores["semantic"]._ledger.records.values()]  # pyright: ignore[reportPrivateUsage] looked at while others work


async def test_a_width_is_not_kept_in_mind_once_a_tier_has_let_it_go(make: Make, stores: Stores) -> None:
    federation = await make(None)
    await federation.write([draft("mine", embedding=[0.5, 0.5])], EVERYONE)
    with pytest.raises(A2MError) as refused:
        await federation.write([draft("wide", embedding=[0.5, 0.5, 0.5])], EVERYONE)
    assert refused.value.code == Code.EMBEDDING_MISMATCH
    # Another router has seen to it, or the tier is a new one.
    stores["working"]._width = None  # pyright: ignore[reportPrivateUsage] as an empty tier has none
    await federation.write([draft("wide", embedding=[0.5, 0.5, 0.5])], EVERYONE)
    assert (await federation.info()).dimensions == 3


async def test_a_list_of_what_has_no_vector_is_refused_of_working(make: Make, stores: Stores) -> None:
    federation = await make(None)
    client = connect(federation)
    await federation.write([draft("turn", session=name()), draft("fact", tier="semantic")], EVERYONE)
    for without in ("", "m"):
        with pytest.raises(A2MError, match="tier working") as refused:
            await client.call("memory/list", {"without": without, "tier": "working"})
        assert refused.value.code == Code.INVALID_PARAMS
        for place in ({}, {"tier": "semantic"}):
            listed: Any = await client.call("memory/list", {"without": without, **place})
            assert len(listed["entries"]) == 1


async def test_a_search_by_a_model_of_another_width_is_by_words(make: Make, stores: Stores) -> None:
    mine = draft("the river", embedding=[0.5, 0.5])
    await stores["semantic"].write([mine], EVERYONE)
    federation = await make(Widths("second", 3))
    found = await federation.search(Search(Filter(), 1, text="river"))
    assert [record.id for record in found.records] == [mine.id]
    assert not (await stores["semantic"].embed([Seen(mine.id, "stale", [0.5, 0.5], "m")]))[mine.id]
