from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from a2m_protocol.types import Draft
from a2m_semantic.engine import All, Engine
from a2m_semantic.points import WHOLE
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Tombstone

DAY_US = 86_400_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_785_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def timed(engine: Engine, clock: Clock) -> AsyncIterator[SemanticStore]:
    store = SemanticStore(engine, clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_a_late_transfer_of_what_was_forgotten_never_covers_its_successor(timed: SemanticStore) -> None:
    old = Draft(id="x", content="old secret")
    await timed.write([old], EVERYONE)
    [before] = await timed.read(["x"])
    await timed.forget(Filter(ids=("x",)))
    await timed.write([Draft(id="x", content="new")], EVERYONE)
    late = old.model_copy(update={"seq": before.seq, "moves": 7})
    [refused] = await timed.transfer([late])
    assert (refused.outcome, refused.reason) == ("refused", "forgotten")
    assert [record.content for record in await timed.read(["x"])] == ["new"]
    assert await timed.tombstones(["x"]) == []


async def test_nothing_of_a_forgotten_record_is_kept(timed: SemanticStore, engine: Engine) -> None:
    secret = Draft(id="x", content="hunter2 secret", metadata={"pin": "hunter2"}, embedding=[1.0, 2.0])
    await timed.write([secret], EVERYONE)
    await timed.forget(Filter(ids=("x",)))
    points, _ = await engine.scroll(All(), [*WHOLE, "words", "tokens", "state"], 100)
    assert "hunter2" not in repr(points)


async def test_tombstones_go_after_their_time_and_not_before(timed: SemanticStore, clock: Clock) -> None:
    await timed.bury([Tombstone(f"t{n}", "forgotten", 1) for n in range(300)])
    ids = [f"t{n}" for n in range(300)]
    clock.now += 29 * DAY_US
    await timed.write([Draft(id="a", content="a")], EVERYONE)
    assert len(await timed.tombstones(ids)) == 300
    clock.now += 2 * DAY_US
    await timed.write([Draft(id="b", content="b")], EVERYONE)
    left = await timed.tombstones(ids)
    assert 0 < len(left) < 300, "in bounded steps"
    await timed.write([Draft(id="c", content="c")], EVERYONE)
    assert await timed.tombstones(ids) == []
    assert len(await timed.read(["a", "b", "c"])) == 3
