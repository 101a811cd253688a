"""Every interleaving of a move with what can happen to a record meanwhile, over the router's own code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from explorer import Explored, Gated, Schedule, World, explore

from a2m_protocol.types import Draft, Record
from a2m_router.config import TierConfig
from a2m_router.coordination import Readers
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.contract import within
from a2m_server.events import EventLog
from a2m_server.memory import MemoryTier
from a2m_server.store import EVERYONE, Filter, Page, Search, TierStore

NOW = 1_700_000_000_000_000
SESSION = "s"
URL = "http://127.0.0.1:1"
CONFIGS = (
    TierConfig(name="working", kind="working", url=URL, capacity=9, per_session=True, spill_to="episodic"),
    TierConfig(name="episodic", kind="episodic", url=URL),
)
ONE = Draft(id="one", content="first words", session=SESSION)
KEYED = Draft(id="one", content="first words", session=SESSION, key="k")

Actor = Callable[["Scene"], Awaitable[None]]


class Scene:
    """One run: two tiers, a router or two over them, and what its actors were told."""

    def __init__(self, schedule: Schedule, routers: int, tier: type[MemoryTier]) -> None:
        self.stores = {c.name: tier(c.name, c.kind, clock=lambda: NOW) for c in CONFIGS}
        self.schedule = schedule
        self.readers = Readers()
        self.routers = [self.router() for _ in range(routers)]
        self.forgot = False
        self.reinforced = 0
        self.seen: list[list[Record]] = []

    def router(self) -> Federation:
        members = [
            Member(c, cast("TierStore", Gated(self.stores[c.name], self.schedule, c.name))) for c in CONFIGS
        ]
        # Routers that lost their lease share no locks, but each move waits out every router's reads.
        return Federation("a2m", members, EventLog(), readers=self.readers, interval=3_600, clock=lambda: NOW)

    def held(self, record_id: str = "one") -> dict[str, Record]:
        ledgers = {name: store._ledger for name, store in self.stores.items()}
        return {n: ledger.records[record_id] for n, ledger in ledgers.items() if record_id in ledger.records}


async def close(scene: Scene) -> None:
    await scene.routers[0].close_session(SESSION, EVERYONE)


async def close_elsewhere(scene: Scene) -> None:
    await scene.routers[-1].close_session(SESSION, EVERYONE)


async def forget_by_id(scene: Scene) -> None:
    await scene.routers[-1].forget(Filter(ids=("one",)))
    scene.forgot = True


async def forget_by_words(scene: Scene) -> None:
    await scene.routers[-1].forget(Filter(words=("first",)))
    scene.forgot = True


async def read(scene: Scene) -> None:
    scene.seen.append((await scene.routers[0].timeline(Page(within(SESSION)))).records)


async def recall(scene: Scene) -> None:
    scene.seen.append((await scene.routers[0].search(Search(Filter(), 5, text="first"))).records)


async def reinforce(scene: Scene) -> None:
    scene.reinforced += await scene.routers[0].reinforce(["one"], 1.0, EVERYONE)


async def retry(scene: Scene) -> None:
    [written] = await scene.routers[-1].write([ONE], EVERYONE)
    assert (written.id, written.outcome) == ("one", "existing")


async def rewrite(scene: Scene) -> None:
    again = Draft(id="two", content="second words", session=SESSION, key="k")
    [written] = await scene.routers[0].write([again], EVERYONE)
    assert (written.id, written.outcome) == ("one", "replaced")
    fetched = (await scene.routers[0].fetch("k", EVERYONE, vectors=False)).record
    assert fetched is not None
    assert fetched.content == "second words"


ON_THE_LAST = (close_elsewhere, forget_by_id, forget_by_words, retry)
"""The actors that call the last router; the others call the first."""


async def run(
    *actors: Actor,
    first: Draft = ONE,
    routers: int = 1,
    tier: type[MemoryTier] = MemoryTier,
    crash: bool = False,
) -> Explored:
    """Explore `actors` on `first` in working; with `crash`, the first actor may die at any point."""

    async def build(schedule: Schedule) -> World:
        scene = Scene(schedule, routers, tier)
        await scene.stores["working"].write([first], EVERYONE)

        async def judge(crashed: bool) -> None:
            for _ in range(2 if crashed else 1):
                await scene.router().consolidate()
            held = scene.held()
            forgetting = forget_by_id in actors or forget_by_words in actors
            if crashed and forgetting and not scene.forgot and not held:
                return
            if scene.forgot:
                assert held == {}, "I3: a forgotten record came back"
            else:
                assert len(held) == 1, f"I1/I2: the record is in {[*held] or 'no tier'}"
                [record] = held.values()
                if not crashed or reinforce not in actors or scene.reinforced:
                    assert record.salience == 1.0 + scene.reinforced, "a reinforcement was lost or doubled"
            for records in scene.seen:
                ids = [record.id for record in records]
                if forgetting:
                    assert ids in ([], ["one"]), f"I2: a reader saw {ids}"
                else:
                    assert ids == ["one"], f"I1/I2: a reader saw {ids}"

        acting = {
            f"{at} {actor.__name__}": (lambda actor=actor: actor(scene)) for at, actor in enumerate(actors)
        }
        # A crash takes a whole router with it: with one router, everybody.
        dying = [n for n, a in zip(acting, actors, strict=True) if routers == 1 or a not in ON_THE_LAST]
        return World(scene.stores, acting, judge, crashes=dying if crash else [])

    return await explore(build)


SCENES: list[tuple[Actor, ...]] = [
    (close, forget_by_id),
    (close, forget_by_words),
    (close, read),
    (close, recall),
    (close, close_elsewhere),
    (close, reinforce),
    (close, retry),
    (close, rewrite),
    (close, close_elsewhere, read),
]
LONG_SCENES: list[tuple[Actor, ...]] = [
    (close, close_elsewhere, forget_by_words),
    (close, reinforce, close_elsewhere),
]


@pytest.mark.parametrize("crash", [False, True], ids=["whole", "crash"])
@pytest.mark.parametrize("routers", [1, 2], ids=["one", "two"])
@pytest.mark.parametrize(
    "actors",
    [*SCENES, *(pytest.param(scene, marks=pytest.mark.faults) for scene in LONG_SCENES)],
    ids=lambda actors: "+".join(a.__name__ for a in actors),
)
@pytest.mark.timeout(600)
async def test_no_interleaving_violates_an_invariant(
    actors: tuple[Actor, ...], routers: int, crash: bool
) -> None:
    first = KEYED if rewrite in actors else ONE
    explored = await run(*actors, first=first, routers=routers, crash=crash)
    print(f"{explored.runs} runs, {explored.states} states")
    assert explored.violations == []
