"""Scenes for the explorer: a federation in memory, what its callers do, and what they were told."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

import oracle
from explorer import Ending, Explored, Tier, Violation, World, explore
from oracle import Change, Deed, Read, State
from turns import ACTOR, Gated, Schedule, digest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft, Record
from a2m_router.config import TierConfig
from a2m_router.coordination import Locks, Readers
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.contract import within
from a2m_server.events import EventLog
from a2m_server.store import EVERYONE, Filter, Page, Search, TierStore

BEFORE = 1_700_000_000_000_000
NOW = BEFORE + 1_000_000
SESSION = "s"
URL = "http://127.0.0.1:1"
TIERS = {
    "working": TierConfig(
        name="working", kind="working", url=URL, capacity=9, per_session=True, spill_to="episodic"
    ),
    "episodic": TierConfig(name="episodic", kind="episodic", url=URL),
    "semantic": TierConfig(name="semantic", kind="semantic", url=URL),
}
COUNTS = Counts()
HELD_EQUAL = {"etag", "moves", "tier", "arrival", "score", "salience", "access_count", "accessed_at"}
REWRITTEN = {"content", "revision", "aliases"}

ONE = Draft(id="one", content="first words", session=SESSION)
KEYED = Draft(id="one", content="first words", session=SESSION, key="k")
TWO = Draft(id="also", content="also words", session=SESSION)
GROUP = (ONE.model_copy(update={"group": "g"}), TWO.model_copy(update={"group": "g"}))
AGAIN = Draft(id="two", content="second words", session=SESSION, key="k")

Act = Callable[["Scene", Federation], Awaitable[None]]
Routers = Literal["one", "shared", "apart"]
"""One router; two that share their locks; two that share none, as when a lease was lost."""


@dataclass(frozen=True)
class Plan:
    """A scene: the first actor calls the first router, the others the last one.

    `first` is what is held at the beginning, in `place`. With `crash` the first router may die at any point,
    with `late` its calls under way may happen after that; with `loses` it may lose an answer.
    """

    actors: tuple[Act, ...]
    first: tuple[Draft, ...] = (ONE,)
    place: str = "working"
    tiers: tuple[str, ...] = ("working", "episodic")
    routers: Routers = "one"
    crash: bool = False
    late: bool = False
    loses: bool = False
    tier: type[Tier] = Tier
    before: Act | None = None
    configs: tuple[TierConfig, ...] = ()

    def explore(self, *, limit: int = 1_000_000, wanted: str = "") -> Explored:
        logging.disable()
        try:
            return explore(lambda schedule: Scene(schedule, self).world(), limit=limit, wanted=wanted)
        finally:
            logging.disable(logging.NOTSET)


@dataclass
class Queue:
    """Who holds or waits for locks, in the order of asking, and which reads each mover waits for."""

    locks: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    reading: list[str] = field(default_factory=list)
    draining: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self) -> Hashable:
        return (
            tuple(self.locks),
            tuple(sorted(self.reading)),
            tuple((mover, tuple(reads)) for mover, reads in sorted(self.draining.items())),
        )


class QueuedLocks(Locks):
    """Locks that say who waits, since the order of a queue is part of a state."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    @asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncGenerator[None]:
        wanted = tuple(sorted(set(names)))
        actor = ACTOR.get()
        waits, holds = (actor, wanted, False), (actor, wanted, True)
        self._queue.locks.append(waits)
        held = waits
        try:
            async with super().hold(wanted):
                self._queue.locks[self._queue.locks.index(waits)] = holds
                held = holds
                yield
        finally:
            self._queue.locks.remove(held)


class QueuedReaders(Readers):
    """The same for reads and those that wait for them."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    @contextmanager
    def reading(self) -> Generator[None]:
        actor = ACTOR.get()
        with super().reading():
            self._queue.reading.append(actor)
            try:
                yield
            finally:
                self._queue.reading.remove(actor)
                for reads in self._queue.draining.values():
                    if actor in reads:
                        reads.remove(actor)

    async def drained(self) -> bool:
        actor = ACTOR.get()
        self._queue.draining[actor] = sorted(self._queue.reading)
        try:
            return await super().drained()
        finally:
            self._queue.draining.pop(actor, None)


class Scene:
    """One run of a plan."""

    def __init__(self, schedule: Schedule, plan: Plan) -> None:
        self.schedule = schedule
        self.plan = plan
        self.configs = plan.configs or tuple(TIERS[name] for name in plan.tiers)
        self.now = BEFORE
        self.stores = {c.name: plan.tier(c.name, c.kind, clock=self.clock) for c in self.configs}
        self.queue = Queue()
        self.readers = QueuedReaders(self.queue)
        locks = QueuedLocks(self.queue)
        self.routers = [
            self.router(locks if plan.routers != "apart" else QueuedLocks(self.queue))
            for _ in range(1 if plan.routers == "one" else 2)
        ]
        self.deeds: list[Deed] = []
        self.reads: list[Read] = []
        self.added: dict[str, list[tuple[float, int | None]]] = {}
        self.touched: dict[str, list[bool]] = {}
        self.things: dict[str, frozenset[str]] = {}
        self.starts: dict[str, State] = {}
        self.order: list[str] = []
        self.began: list[str] = []
        self.begun: dict[str, Record] = {}
        self.old: Record | None = None

    def clock(self) -> int:
        """Microseconds since 1970. It stands still but where an actor begins: calls cannot be told apart by it."""
        return self.now

    def router(self, locks: Locks | None = None) -> Federation:
        members = [
            Member(c, cast("TierStore", Gated(self.stores[c.name], self.schedule, c.name)))
            for c in self.configs
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

    def world(self) -> World:
        self.schedule.freely = True
        self.schedule.loop.complete(self._prepare())
        self.schedule.freely = False
        self.now = NOW
        actors = {
            f"{at} {_name(act)}": partial(self._act, act, self.routers[0 if at == 0 else -1])
            for at, act in enumerate(self.plan.actors)
        }
        # A crash takes a whole router with it: with one router, everybody.
        first = [name for at, name in enumerate(actors) if at == 0 or len(self.routers) == 1]
        return World(
            self.stores,
            actors,
            self.judge,
            self.memory,
            self.check_always,
            crashes=first if self.plan.crash else (),
            late=self.plan.late,
            loses=first[:1] if self.plan.loses else (),
        )

    async def _prepare(self) -> None:
        for draft in self.plan.first:
            self.expect(draft, oracle.written(draft)(State()))
        placed = [draft.model_copy(update={"tier": self.plan.place}) for draft in self.plan.first]
        if placed:
            await self.router().write(placed, EVERYONE)
        if self.plan.before is not None:
            await self.plan.before(self, self.router())
        for store in self.stores.values():
            self.begun |= {record.id: record for record in await store.read([*self.things])}

    async def _act(self, act: Act, router: Federation) -> None:
        if act is not self.plan.actors[0]:
            await self.schedule.turn("begins", _nothing)
            self.now += 1_000
            self.began.append(_name(act))
        try:
            await act(self, router)
        except A2MError as error:
            if not (self.plan.loses and error.retryable):
                raise

    def expect(self, draft: Draft, start: State) -> None:
        """Let the judge look for a thing, in the order of writing."""
        self.things[draft.id] = frozenset({draft.id, "two", "three"} if draft.key else {draft.id})
        self.starts[draft.id] = start
        self.order.append(draft.id)

    @contextmanager
    def doing(self, thing: str, change: Change, *, forgets: bool = False) -> Iterator[Deed]:
        """Something that changes a thing: it begins now, and has ended if the block ends well."""
        deed = Deed(thing, change, self.ended, forgets)
        self.deeds.append(deed)
        yield deed
        deed.ended = True

    @contextmanager
    def reading(self, things: Iterable[str], *, ordered: bool = False) -> Iterator[Read]:
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
            tuple(self.began),
            tuple((tuple(r._marked), tuple(r._keeper._reunion._due)) for r in self.routers),
            tuple((d.thing, d.after, d.ended) for d in self.deeds),
            tuple((r.things, r.after, r.known, digest(r.shown), r.ended) for r in self.reads),
            repr(self.added),
            repr(self.touched),
        )

    def check_always(self) -> None:
        """At any moment everything is somewhere, and a group whole in one tier, unless it may be forgotten."""
        doomed = {deed.thing for deed in self.deeds if deed.forgets}
        held = [store.ledger.records for store in self.stores.values()]
        groups: dict[str | None, list[str]] = {}
        for thing, record in self.begun.items():
            if thing not in doomed:
                groups.setdefault(record.group or thing, []).append(thing)
        for group, things in groups.items():
            for thing in things:
                if not any(thing in records for records in held):
                    raise Violation(f"I1: {thing} is nowhere")
            if not any(all(thing in records for thing in things) for records in held):
                raise Violation(f"I5: group {group} is whole in no tier")

    async def judge(self, ending: Ending) -> None:
        """Repair as a start does after a crash, else let each router pass once; then look at everything."""
        disturbed = ending.crashed or self.plan.loses or self.plan.routers == "apart"
        for thing, ids in self.things.items() if not disturbed else ():
            held = [tier for tier, store in self.stores.items() if ids & store.ledger.records.keys()]
            if len(held) > 1:
                raise Violation(f"I2: {thing} was left in {held}")
        if ending.crashed:
            await self._start()
            for call in ending.late:
                with suppress(A2MError):
                    await call()
            await self._start()
        for router in self.routers:
            await router.consolidate()
        self._check_held()
        router = self.router()
        everything = Read(tuple(self.things), self.ended, frozenset(range(len(self.deeds))), ordered=True)
        everything.shown = (await router.timeline(Page(within(SESSION)))).records
        recalled = Read(everything.things, everything.after, everything.known)
        recalled.shown = (await router.search(Search(Filter(), 9, text="words"))).records
        for read in [*self.reads, everything, recalled]:
            if read.ended or read in (everything, recalled):
                self._check_read(read)
        await self._check_imports(router, everything)

    async def _start(self) -> None:
        await self.router().consolidate()

    def _check_read(self, read: Read) -> None:
        for thing in read.things:
            oracle.check_read(self.starts[thing], self.deeds, thing, self.things[thing], read)
        if read.ordered:
            names = [thing for r in read.shown for thing, ids in self.things.items() if r.id in ids]
            if names != [thing for thing in self.order if thing in names]:
                raise Violation(f"I9: a transcript replays as {names}")

    def _check_held(self) -> None:
        final = Read((), self.ended, frozenset(range(len(self.deeds))))
        groups: dict[str, set[str]] = {}
        for thing, ids in self.things.items():
            held = {
                (tier, i): store.ledger.records[i]
                for tier, store in self.stores.items()
                for i in ids
                if i in store.ledger.records
            }
            states = oracle.possible(self.starts[thing], self.deeds, thing, final)
            if len(held) > 1:
                raise Violation(f"I2: {thing} is held as {[*held]}")
            if not held:
                if all(state.fact is not None for state in states):
                    raise Violation(f"I1: {thing} is in no tier")
                continue
            [((tier, _), record)] = held.items()
            if all(state.fact is None for state in states):
                raise Violation(f"I3: {thing} came back to {tier}")
            self._check_same(thing, record, states)
            if record.arrival is not None:
                raise Violation(f"I2: {thing} still has the mark of a move that has not ended")
            if record.group is not None:
                groups.setdefault(record.group, set()).add(tier)
        for group, tiers in groups.items():
            if len(tiers) > 1:
                raise Violation(f"I5: group {group} is in {sorted(tiers)}")

    def _check_same(self, thing: str, record: Record, states: set[State]) -> None:
        revisions = {state.fact.revision for state in states if state.fact is not None}
        if record.revision not in revisions:
            raise Violation(f"I4: {thing} has revision {record.revision} of {revisions}")
        begun = self.begun.get(thing)
        if begun is None or record.id != begun.id or record.seq != begun.seq:
            if begun is not None and all(state.fact == self.starts[thing].fact for state in states):
                if not any(state.forbidden for state in states):
                    raise Violation(f"I6: {thing} is not the record that it was")
            return
        but = HELD_EQUAL | (REWRITTEN if record.revision else set())
        if record.model_dump(exclude=but) != begun.model_dump(exclude=but):
            raise Violation(f"I6: {thing} changed: {record.model_dump(exclude=but)}")
        sums = _sums(begun.salience, self.added.get(thing, ()))
        if record.salience not in sums:
            raise Violation(f"I1: a reinforcement was lost or doubled: {record.salience} of {sorted(sums)}")
        counts = self.touched.get(thing, [])
        if not sum(counts) <= record.access_count - begun.access_count <= len(counts):
            raise Violation(f"I1: an access was lost or doubled: {record.access_count} of {len(counts)}")

    async def _check_imports(self, router: Federation, read: Read) -> None:
        """What is forgotten for good is refused as an import, in every tier, however far it had moved."""
        for thing, record in self.begun.items():
            states = oracle.possible(self.starts[thing], self.deeds, thing, read)
            if any(state.fact is not None for state in states):
                continue
            for tier in self.stores:
                fields = record.model_dump(exclude={"etag", "score", "tier"}, exclude_none=True)
                draft = Draft.model_validate({**fields, "moves": 9, "tier": tier})
                await router.transfer([draft])
                if draft.id in self.stores[tier].ledger.records:
                    raise Violation(f"I3: an import brought {thing} back to {tier}")


async def _nothing() -> None:
    """What an actor does before it begins."""


def _name(act: Act) -> str:
    return str(getattr(act, "__name__", act))


def _sums(base: float, added: Iterable[tuple[float, int | None]]) -> set[float]:
    sums = {base}
    for amount, told in added:
        more = {s + amount for s in sums}
        sums = more if told else sums if told == 0 else sums | more
    return sums
