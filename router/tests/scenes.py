"""Scenes for the explorer: a federation in memory, what its callers do, and what they were told."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from explorer import Backup, Explored, Tier, World, explore
from judge import check_always, judge
from memory import Memory
from oracle import Change, Deed, Read, State, written
from queues import Queue, QueuedLocks, QueuedReaders
from turns import Gated, Schedule, digest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft, Record
from a2m_router.config import TierConfig
from a2m_router.coordination import Locks
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.events import EventLog
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE

BEFORE = 1_700_000_000_000_000
NOW = BEFORE + 1_000_000
SESSION = "s"
URL = "http://127.0.0.1:1"
WORKING = TierConfig(
    name="working", kind="working", url=URL, capacity=9, per_session=True, spill_to="episodic"
)
EPISODIC = TierConfig(name="episodic", kind="episodic", url=URL)
SEMANTIC = TierConfig(name="semantic", kind="semantic", url=URL)
TWO_TIERS = (WORKING, EPISODIC)
THREE_TIERS = (WORKING, EPISODIC, SEMANTIC)
COUNTS = Counts()

ONE = Draft(id="one", content="first words", session=SESSION)
ALSO = Draft(id="also", content="also words", session=SESSION)
KEYED = ONE.model_copy(update={"key": "k"})
GROUP = (ONE.model_copy(update={"group": "g"}), ALSO.model_copy(update={"group": "g"}))
REWRITERS = frozenset({"two", "three"})
"""The ids of drafts that rewrite the key of a record; where it was forgotten, they take its place."""

Act = Callable[["Scene", Federation], Awaitable[None]]
Routers = Literal["one", "shared", "apart"]
"""One router; two that share their locks; two that share none, as when a lease was lost."""


@dataclass(frozen=True)
class Plan:
    """A scene: the first actor calls the first router, the others the last one.

    `first` is what is held at the beginning, in `place`, and `before` what was done then. With `crash` the
    first router may die at any point, with `late` its calls under way may happen after that; with `loses` one
    answer to its first actor may be lost. The tiers' clocks are `ahead` of the routers' by so much (us).
    """

    actors: tuple[Act, ...]
    first: tuple[Draft, ...] = (ONE,)
    place: str = "working"
    configs: tuple[TierConfig, ...] = TWO_TIERS
    before: Act | None = None
    routers: Routers = "one"
    crash: bool = False
    late: bool = False
    loses: bool = False
    ahead: int = 0
    tier: type[Tier] = Tier

    def explore(self, *, limit: int = 1_000_000, wanted: str = "", every: bool = False) -> Explored:
        beginnings: list[Beginning] = []

        def build(schedule: Schedule) -> World:
            scene = Scene(schedule, self)
            if beginnings:
                scene.begin(beginnings[0])
            else:
                beginnings.append(scene.prepare())
            return scene.world()

        logging.disable()
        try:
            return explore(build, limit=limit, wanted=wanted, every=every)
        finally:
            logging.disable(logging.NOTSET)


@dataclass(frozen=True)
class Beginning:
    """What is held at the beginning of every run of a plan, and what the judge knows of it."""

    tiers: dict[str, Backup]
    drafts: dict[str, Draft]
    things: dict[str, frozenset[str]]
    starts: dict[str, State]
    begun: dict[str, Record]
    deeds: list[Deed]
    old: Record | None


class Scene:
    """One run of a plan."""

    def __init__(self, schedule: Schedule, plan: Plan) -> None:
        self.schedule = schedule
        self.plan = plan
        self.now = BEFORE
        self.stores = {
            c.name: plan.tier(c.name, c.kind, clock=lambda: self.now + plan.ahead) for c in plan.configs
        }
        self.queue = Queue()
        self.readers = QueuedReaders(self.queue)
        locks = QueuedLocks(self.queue)
        self.routers = [
            self.router(locks if plan.routers != "apart" else QueuedLocks(self.queue))
            for _ in range(1 if plan.routers == "one" else 2)
        ]
        self.kept = Memory(self.routers)
        self.began: list[str] = []
        self.deeds: list[Deed] = []
        self.reads: list[Read] = []
        self.added: dict[str, list[tuple[float, int | None]]] = {}
        self.touched: dict[str, list[bool]] = {}
        self.drafts: dict[str, Draft] = {}
        self.things: dict[str, frozenset[str]] = {}
        self.starts: dict[str, State] = {}
        self.begun: dict[str, Record] = {}
        self.old: Record | None = None

    def clock(self) -> int:
        """Microseconds since 1970. It stands still but where an actor begins."""
        return self.now

    def router(self, locks: Locks | None = None) -> Federation:
        members = [
            Member(c, cast("TierStore", Gated(self.stores[c.name], self.schedule, c.name)))
            for c in self.plan.configs
        ]
        # Routers that lost their lease share no locks, but each move waits out every router's reads.
        return Federation(
            "a2m",
            members,
            EventLog(),
            locks=locks,
            readers=self.readers,
            interval=3_600,
            clock=self.clock,
            counts=COUNTS,
        )

    def prepare(self) -> Beginning:
        self.schedule.freely = True
        self.schedule.loop.complete(self._prepare())
        self.schedule.freely = False
        return Beginning(
            {name: store.backup() for name, store in self.stores.items()},
            dict(self.drafts),
            dict(self.things),
            dict(self.starts),
            dict(self.begun),
            [*self.deeds],
            self.old,
        )

    def begin(self, beginning: Beginning) -> None:
        for name, store in self.stores.items():
            store.restore(beginning.tiers[name])
        self.drafts |= beginning.drafts
        self.things |= beginning.things
        self.starts |= beginning.starts
        self.begun |= beginning.begun
        self.deeds += beginning.deeds
        self.old = beginning.old

    def world(self) -> World:
        self.now = NOW
        actors = {
            f"{at} {act.__name__}": partial(self._act, act, self.routers[0 if at == 0 else -1], at)
            for at, act in enumerate(self.plan.actors)
        }
        # A crash takes a whole router with it: with one router, everybody.
        first = [name for at, name in enumerate(actors) if at == 0 or len(self.routers) == 1]
        return World(
            self.stores,
            actors,
            partial(judge, self),
            self.memory,
            partial(check_always, self),
            crashes=first if self.plan.crash else (),
            late=self.plan.late,
            loses=first[:1] if self.plan.loses else (),
        )

    async def _prepare(self) -> None:
        for draft in self.plan.first:
            self.expect(draft, written(draft)(State()))
        placed = [draft.model_copy(update={"tier": self.plan.place}) for draft in self.plan.first]
        if placed:
            await self.router().write(placed, EVERYONE)
        if self.plan.before is not None:
            await self.plan.before(self, self.router())
        for store in self.stores.values():
            self.begun |= {record.id: record for record in await store.read([*self.things])}

    async def _act(self, act: Act, router: Federation, at: int) -> None:
        if at > 0:
            await self.schedule.turn("begins", _nothing)
            self.now += 1_000
            self.began.append(act.__name__)
        try:
            await act(self, router)
        except A2MError as error:
            if not (self.plan.loses and error.retryable):
                raise

    def expect(self, draft: Draft, start: State) -> None:
        """Let the judge look for a thing; things are expected in the order of writing."""
        self.drafts[draft.id] = draft
        self.things[draft.id] = frozenset({draft.id, *(REWRITERS if draft.key is not None else ())})
        self.starts[draft.id] = start

    @contextmanager
    def doing(self, thing: str, change: Change, *, forgets: bool = False) -> Generator[Deed]:
        """Something that changes a thing: it begins now, and has ended if the block ends well."""
        deed = Deed(thing, change, self.ended, forgets)
        self.deeds.append(deed)
        yield deed
        deed.ended = True

    @contextmanager
    def reading(self, things: Iterable[str], *, ordered: bool = False) -> Generator[Read]:
        read = Read(tuple(things), self.ended, ordered=ordered)
        self.reads.append(read)
        yield read
        read.known = frozenset(range(len(self.deeds)))
        read.ended = True

    @property
    def ended(self) -> frozenset[int]:
        return frozenset(at for at, deed in enumerate(self.deeds) if deed.ended)

    def memory(self) -> Hashable:
        """What the routers keep, and what was told in which order: all that is not in the stores."""
        return (
            self.queue(),
            self.kept(),
            tuple(self.began),
            tuple((d.thing, d.after, d.ended) for d in self.deeds),
            tuple((r.things, r.after, r.known, digest(r.shown), r.ended) for r in self.reads),
            repr(self.added),
            repr(self.touched),
        )


async def _nothing() -> None:
    """What an actor does before it begins."""
