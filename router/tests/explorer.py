"""A small explorer: every order in which concurrent callers' store calls can happen, and a crash at any.

The actors are the router's own coroutines over tiers in memory. Each call to a store waits for its turn; the
explorer takes the turns in every order, by depth first over replays, and leaves out what leads to a state
that it has seen. A state is what the stores hold and what each actor has been answered so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from a2m_server.memory import MemoryTier
from a2m_server.store import MemoryStore, TierStore

ACTOR: ContextVar[str] = ContextVar("actor", default="")
CRASH = "crash"
METHODS = [name for name in vars(TierStore) | vars(MemoryStore) if not name.startswith("_")]


@dataclass
class Turn:
    """A call that waits: who makes it and what it asks."""

    actor: str
    label: str
    go: asyncio.Future[None]


@dataclass
class Schedule:
    """One run: the choices to repeat, and those that were met."""

    prefix: list[int]
    width: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    waiting: list[Turn] = field(default_factory=list)
    history: dict[str, list[str]] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)

    async def turn(self, actor: str, label: str) -> None:
        if actor in self.dead:
            raise asyncio.CancelledError
        go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(Turn(actor, f"{actor}: {label}", go))
        await go

    def kill(self, actors: Iterable[str]) -> None:
        """End actors where they are, and what they started that outlives a cancellation."""
        self.dead.update(actors)
        for turn in self.waiting:
            if turn.actor in self.dead:
                turn.go.cancel()

    def choose(self, options: int) -> int:
        at = len(self.taken)
        choice = self.prefix[at] if at < len(self.prefix) else 0
        self.width.append(options)
        self.taken.append(choice)
        return choice


class Gated:
    """A store each of whose calls waits for its turn."""

    def __init__(self, store: MemoryTier, schedule: Schedule, name: str) -> None:
        self.store = store
        for method in METHODS:
            setattr(self, method, self._gate(getattr(store, method), f"{name}.{method}", schedule))
        # What does not touch records takes no turn.
        self.info = store.info
        self.open = store.open
        self.close = store.close
        self.ready = store.ready

    @staticmethod
    def _gate(
        method: Callable[..., Awaitable[object]], label: str, schedule: Schedule
    ) -> Callable[..., Awaitable[object]]:
        async def gated(*given: object, **named: object) -> object:
            actor = ACTOR.get()
            await schedule.turn(actor, label)
            answer = await method(*given, **named)
            schedule.history.setdefault(actor, []).append(f"{label}={answer!r}")
            return answer

        return gated


@dataclass
class World:
    """What one run is about: its stores, its actors, and how to repair and judge it when all is over."""

    stores: dict[str, MemoryTier]
    actors: dict[str, Callable[[], Awaitable[None]]]
    after: Callable[[bool], Awaitable[None]]
    crashes: Sequence[str] = ()
    patience: int = 12


@dataclass
class Explored:
    runs: int = 0
    states: int = 0
    violations: list[tuple[str, list[str]]] = field(default_factory=list)


async def explore(
    build: Callable[[Schedule], Awaitable[World]], *, limit: int = 200_000, stop_at: int = 1
) -> Explored:
    """Run a world in every order, until `stop_at` violations; each comes with the trace that led there."""
    result = Explored()
    seen: set[int] = set()
    prefix: list[int] | None = []
    while prefix is not None and result.runs < limit:
        schedule = Schedule(prefix)
        result.runs += 1
        violation = await _run(build, schedule, seen, len(prefix))
        if violation is not None:
            result.violations.append((violation, schedule.trace))
            if len(result.violations) >= stop_at:
                break
        prefix = _next(schedule)
    result.states = len(seen)
    return result


def _next(schedule: Schedule) -> list[int] | None:
    taken, width = schedule.taken, schedule.width
    for at in range(len(taken) - 1, -1, -1):
        if taken[at] + 1 < width[at]:
            return [*taken[:at], taken[at] + 1]
    return None


async def _run(
    build: Callable[[Schedule], Awaitable[World]], schedule: Schedule, seen: set[int], replayed: int
) -> str | None:
    world = await build(schedule)
    tasks = {name: asyncio.create_task(_act(name, actor)) for name, actor in world.actors.items()}
    crashed = False
    try:
        while True:
            await _quiesce(world.patience)
            schedule.waiting = [turn for turn in schedule.waiting if not turn.go.done()]
            if not schedule.waiting:
                break
            options = sorted(schedule.waiting, key=lambda turn: turn.label)
            can_crash = not crashed and any(not tasks[name].done() for name in world.crashes)
            if len(schedule.taken) >= replayed:
                state = _state(world, schedule, options, crashed)
                if state in seen:
                    return None
                seen.add(state)
            choice = schedule.choose(len(options) + can_crash)
            if choice == len(options):
                crashed = True
                schedule.trace.append(CRASH)
                schedule.kill(world.crashes)
                for name in world.crashes:
                    tasks[name].cancel()
            else:
                schedule.trace.append(options[choice].label)
                options[choice].go.set_result(None)
        for name, task in tasks.items():
            if crashed and name in world.crashes:
                continue
            if not task.done():
                return f"{name} waits for ever"
            if task.exception() is not None:
                return f"{name}: {task.exception()!r}"
        ACTOR.set("after")
        judging = asyncio.create_task(world.after(crashed))
        while not judging.done():
            await asyncio.sleep(0)
            for turn in schedule.waiting:
                if not turn.go.done():
                    turn.go.set_result(None)
        error = judging.exception()
        return None if error is None else f"{error}"
    finally:
        schedule.kill(tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _act(name: str, actor: Callable[[], Awaitable[None]]) -> None:
    ACTOR.set(name)
    await actor()


async def _quiesce(rounds: int) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


def _state(world: World, schedule: Schedule, options: Sequence[Turn], crashed: bool) -> int:
    held = tuple(repr(store._ledger) for store in world.stores.values())
    told = tuple((actor, *answers) for actor, answers in sorted(schedule.history.items()))
    return hash((held, told, tuple(turn.label for turn in options), crashed))
