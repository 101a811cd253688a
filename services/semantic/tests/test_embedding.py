"""A change of the width of vectors, cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from a2m_protocol.types import Draft
from a2m_semantic import embedding
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.embedding import CHUNK
from a2m_semantic.engine import Point
from a2m_semantic.store import SemanticStore
from a2m_server.contract import draft
from a2m_server.values import EVERYONE, Filter, Search, Seen

RECORDS = 2 * CHUNK + 10


class Killed(BaseException):
    """Ends a process in the middle of what it does, as far as its store can tell."""


@pytest.mark.parametrize("step", ["refit", "upsert"])
async def test_a_change_of_width_that_was_killed_is_ended_at_the_next_start(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    engine = EdgeEngine(edge_folder, "cosine")
    store = SemanticStore(engine)
    await store.open()
    drafts = [
        draft(f"fact {n}", embedding=[1.0, 0.0, 0.0], embedding_model="m", features="f")
        for n in range(RECORDS)
    ]
    for at in range(0, RECORDS, 100):
        await store.write(drafts[at : at + 100], EVERYONE)
    [one] = await store.read([drafts[0].id])
    done = getattr(engine, step)
    calls = 0

    async def killed(*given: object) -> None:
        nonlocal calls
        calls += 1
        # The note of what is to be done, and a part of it.
        if step == "refit" or calls == 3:
            raise Killed
        await done(*given)

    monkeypatch.setattr(engine, step, killed)
    with pytest.raises(Killed):
        await store.embed([Seen(one.id, one.etag, [0.0, 1.0], "wide")])
    monkeypatch.undo()
    await engine.close()

    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    assert (await store.info()).dimensions == 2
    assert len(await store.entries(Filter(without=""), RECORDS + 1, None)) == RECORDS
    records = await store.read([d.id for d in drafts])
    assert {(r.embedding is None, r.embedding_model, r.features) for r in records} == {(True, None, None)}
    assert await store.embed([Seen(r.id, r.etag, [0.0, 1.0], "wide") for r in records[:2]]) == {
        r.id: True for r in records[:2]
    }
    found = await store.search(Search(Filter(), 5, embedding=[0.0, 1.0], embedding_model="wide"))
    assert {r.id for r in found.records} == {r.id for r in records[:2]}
    await store.close()

    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    assert len(await store.entries(Filter(without=""), RECORDS + 1, None)) == RECORDS - 2, "it ended once"
    await store.close()


async def test_others_write_while_a_width_is_changed(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EdgeEngine(edge_folder, "cosine")
    store = SemanticStore(engine)
    await store.open()
    drafts = await _filled(store)
    [one] = await store.read([drafts[0].id])
    upsert, began, cleared = engine.upsert, asyncio.Event(), 0

    async def counted(points: Sequence[Point], expected: frozenset[str]) -> None:
        nonlocal cleared
        await upsert(points, expected)
        if len(points) > 1:
            cleared += 1
            began.set()

    monkeypatch.setattr(engine, "upsert", counted)
    change = asyncio.create_task(store.embed([Seen(one.id, one.etag, [0.0, 1.0], "wide")]))
    await began.wait()
    late = draft("late", embedding=[1.0, 0.0], embedding_model="wide")
    await store.write([late], EVERYONE)
    assert cleared < RECORDS / CHUNK, "it did not wait for all of it"
    assert await change == {one.id: False}, "what was read is another by now"
    [kept] = await store.read([late.id])
    assert kept.embedding == [1.0, 0.0], "what came in the new width stays"
    assert len(await store.entries(Filter(without=""), RECORDS + 1, None)) == RECORDS
    await store.close()


async def test_a_change_of_width_that_was_cut_off_goes_on_with_the_next_call(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "STEP", 0.0)
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    drafts = await _filled(store)
    [one] = await store.read([drafts[0].id])
    assert await store.embed([Seen(one.id, one.etag, [0.0, 1.0], "wide")]) == {one.id: False}
    assert (await store.info()).dimensions == 2
    mine = draft("mine", embedding=[1.0, 0.0])
    await store.write([mine], EVERYONE)
    monkeypatch.undo()
    assert await store.embed([Seen(one.id, one.etag, [0.0, 1.0], "wide")]) == {one.id: False}
    [one] = await store.read([one.id])
    assert await store.embed([Seen(one.id, one.etag, [0.0, 1.0], "wide")]) == {one.id: True}
    assert len(await store.entries(Filter(without=""), RECORDS + 1, None)) == RECORDS - 1
    await store.close()


async def _filled(store: SemanticStore) -> list[Draft]:
    drafts = [draft(f"fact {n}", embedding=[1.0, 0.0, 0.0], embedding_model="m") for n in range(RECORDS)]
    for at in range(0, RECORDS, 100):
        await store.write(drafts[at : at + 100], EVERYONE)
    return drafts
