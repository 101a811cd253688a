"""Points of an earlier version are brought up to date, and no filter misses one meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from a2m_protocol.errors import A2MError
from a2m_semantic import upkeep
from a2m_semantic.engine import All, Engine, Point
from a2m_semantic.points import FORM, WHOLE
from a2m_semantic.store import SemanticStore
from a2m_server.contract import draft, where
from a2m_server.values import EVERYONE, Filter, Page

COUNT = 25


async def _age(engine: Engine) -> None:
    """Put the points in as a version did that knew nothing of provenance."""
    everything = All(())
    found, _ = await engine.scroll(everything, (*WHOLE, "state", "seq", "owner", "tokens", "salience"), 1_000)
    points: list[Point] = []
    for one in found:
        if "record" in one.payload:
            kept = [t for t in one.payload["tokens"] if "provenance" not in t and t != FORM]
            points.append(Point(one.id, {**one.payload, "tokens": kept}))
    versions = frozenset(p.payload["version"] for p in points)
    await engine.upsert(points, versions)


async def test_old_points_are_brought_up_to_date_beside_reads(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CHUNK", 4)
    store = SemanticStore(engine)
    await store.open()
    told: dict[str, Any] = {"source": "mail", "origins": ["web"]}
    drafts = [draft(str(n), owner="ann", provenance=told) for n in range(COUNT)]
    await store.write(drafts, EVERYONE)
    before = await store.read([one.id for one in drafts])
    weighed = await store.held("ann")
    await _age(engine)
    asked = Page(Filter(where=where(**{"provenance.source": "mail", "provenance.origins": "web"})))
    assert (await store.timeline(asked)).records == []
    # As a start does.
    await store._upkeep.open()
    with pytest.raises(A2MError) as refused:
        await store.timeline(asked)
    assert refused.value.retryable
    assert len((await store.timeline(Page(Filter()))).records) == COUNT
    async with asyncio.timeout(30):
        while not await _found(store, asked.filter):  # noqa: ASYNC110 a background task is waited for
            await asyncio.sleep(0)
    assert len((await store.timeline(asked)).records) == COUNT
    assert await store.read([one.id for one in drafts]) == before
    assert await store.held("ann") == weighed
    await store.close()


async def test_a_start_that_was_cut_short_is_ended_by_the_next(engine: Engine) -> None:
    store = SemanticStore(engine)
    await store.open()
    drafts = [draft(str(n), provenance={"source": "mail"}) for n in range(COUNT)]
    await store.write(drafts, EVERYONE)
    await _age(engine)
    await store._upkeep.open()
    await store._upkeep.close()
    await store._upkeep.open()
    asked = Filter(where=where(**{"provenance.source": "mail"}))
    async with asyncio.timeout(30):
        while not await _found(store, asked):  # noqa: ASYNC110 a background task is waited for
            await asyncio.sleep(0)
    assert len(await store.entries(asked, COUNT + 1, None)) == COUNT
    await store.close()


async def _found(store: SemanticStore, asked: Filter) -> bool:
    try:
        return bool(await store.entries(asked, 1, None))
    except A2MError:
        return False
