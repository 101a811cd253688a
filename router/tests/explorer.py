"""A small explorer: every order in which concurrent callers' store calls can happen, and a crash at any.

The actors are the router's own coroutines over tiers in memory. Each call to a store waits for its turn; the
explorer takes the turns in every order, by depth first over replays, and leaves out what leads to a state
that it has seen.

A state is what the stores hold, what each actor has been answered, which calls wait, and what the routers
keep in their own memory (`World.memory`: who waits for which lock, which reads a move waits for). What an
actor does next depends on nothing else, so equal states have equal futures. Two reductions follow, and are
sound for that reason:

- Calls that one actor made at once, to several tiers, are answered in any order, but what it was answered is
  kept as a set: the orders lead to one state. (`asyncio.gather` gives answers by position.)
- What is judged at the end is the stores and what the actors did and saw, so equal endings are judged once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count

from turns import ACTOR, Schedule, StillLoop, Turn, digest

from a2m_server.ledger import Ledger
from a2m_server.memory import MemoryTier

Call = Callable[[], Awaitable[object]]


Backup = tuple[Ledger, "count[int]"]


class Violation(AssertionError):  # noqa: N818 what an invariant forbids is no error of the program
    """What an invariant forbids; the message begins with the invariant's name."""


class Tier(MemoryTier):
    """A tier in memory that can be looked at."""

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def backup(self) -> Backup:
        """What is held now; records are never changed in place, so that their collections are enough."""
        kept = {one.name: copy(getattr(self._ledger, one.name)) for one in fields(Ledger)}
        return Ledger(**kept), copy(self._etags)

    def restore(self, backup: Backup) -> None:
        """Be again what it was."""
        kept = {one.name: copy(getattr(backup[0], one.name)) for one in fields(Ledger)}
        self._ledger, self._etags = Ledger(**kept), copy(backup[1])

    def digest(self) -> Hashable:
        ledger = self._ledger
        return (
            tuple(digest(record) for record in ledger.records.values()),
            tuple((g.id, g.reason, g.seq, g.target, g.moves) for g in ledger.graves.values()),
            tuple(sorted(ledger.elsewhere, key=repr)),
            tuple(ledger.latest.items()),
            ledger.last,
        )


@dataclass
class Ending:
    """How a run ended: whether a crash cut it off, and the dead's calls that still have to land."""

    crashed: bool
    late: list[Call] = field(default_factory=list[Call])


@dataclass
class World:
    """What one run is about: its stores, its actors, and how to repair and judge it when all is over.

    `memory` gives what the routers and actors know beyond what they were answered; `check_always` raises a
    `Violation` of what must hold at any moment. The actors of `crashes`
    may die, together, at any point, with `late` also with calls under way that happen afterwards. One of the
    answers to the actors of `loses` may be lost.
    """

    stores: Mapping[str, Tier]
    actors: Mapping[str, Callable[[], Awaitable[None]]]
    judge: Callable[[Ending], Awaitable[None]]
    memory: Callable[[], Hashable] = lambda: None
    check_always: Callable[[], None] = lambda: None
    crashes: Sequence[str] = ()
    late: bool = False
    loses: Sequence[str] = ()

    def digest(self) -> Hashable:
        return tuple(store.digest() for store in self.stores.values()), self.memory()


@dataclass
class Explored:
    runs: int = 0
    states: set[int] = field(default_factory=set[int])
    endings: dict[int, str | None] = field(default_factory=dict[int, "str | None"])
    violations: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])


def explore(
    build: Callable[[Schedule], World], *, limit: int = 1_000_000, wanted: str = "", every: bool = False
) -> Explored:
    """Run a world in every order, until a violation that begins with `wanted`.

    Each violation that was found comes with the trace that led there. With `every`, nothing is left out,
    though its state was seen.
    """
    result = Explored()
    loop = StillLoop()
    prefix: list[int] | None = []
    with loop.running():
        while prefix is not None and result.runs < limit:
            result.runs += 1
            run = Run(build, Schedule(loop), prefix, result, every=every)
            violation = run.run()
            if violation is not None:
                result.violations.append((violation, run.schedule.trace))
                if violation.startswith(wanted):
                    break
            prefix = _next(run.taken, run.width)
    return result


def _next(taken: Sequence[int], width: Sequence[int]) -> list[int] | None:
    for at in range(len(taken) - 1, -1, -1):
        if taken[at] + 1 < width[at]:
            return [*taken[:at], taken[at] + 1]
    return None


class Run:
    """One run: the choices of `prefix` once more, then the first one everywhere."""

    def __init__(
        self,
        build: Callable[[Schedule], World],
        schedule: Schedule,
        prefix: Sequence[int],
        explored: Explored,
        *,
        every: bool,
    ) -> None:
        self.schedule = schedule
        self.loop = schedule.loop
        self.prefix = prefix
        self.explored = explored
        self.every = every
        self.world = build(schedule)
        self.taken: list[int] = []
        self.width: list[int] = []
        self.crashed = False
        self.lost = False

    def run(self) -> str | None:
        """Take turns to the end, or to a state that was seen; what was violated."""
        self.tasks = {
            name: self.loop.create_task(_act(name, actor)) for name, actor in self.world.actors.items()
        }
        try:
            while options := self._options():
                if len(self.taken) >= len(self.prefix):
                    if not self._is_new():
                        return None
                    self.world.check_always()
                at = len(self.taken)
                choice = self.prefix[at] if at < len(self.prefix) else 0
                self.taken.append(choice)
                self.width.append(len(options))
                happen = options[choice]
                if happen is None:
                    break
                happen()
            return self._told() or self._judged()
        except Violation as violation:
            return str(violation)
        finally:
            self.schedule.kill(self.tasks)
            for task in self.tasks.values():
                task.cancel()
            self.loop.settle()
            for task in self.tasks.values():
                if not task.cancelled():
                    task.exception()

    def _options(self) -> list[Callable[[], None] | None]:
        """What can happen next; None is the end, where a call of the dead is still under way."""
        self.loop.settle()
        schedule, world = self.schedule, self.world
        while not schedule.waiting and not all(task.done() for task in self.tasks.values()):
            if not self.loop.wait():
                break
        waiting = sorted(schedule.waiting, key=lambda turn: turn.label)
        options: list[Callable[[], None] | None] = [partial(schedule.take, turn, "goes") for turn in waiting]
        if not waiting and schedule.late:
            options.append(None)
        options += [partial(schedule.take, turn, "lands late") for turn in schedule.late]
        if not self.lost:
            options += [partial(self._lose, turn) for turn in waiting if turn.actor in world.loses]
        if not self.crashed and any(not self.tasks[name].done() for name in world.crashes):
            options.append(partial(self._crash, late=False))
            if world.late and any(turn.actor in world.crashes for turn in waiting):
                options.append(partial(self._crash, late=True))
        return options

    def _lose(self, turn: Turn) -> None:
        self.lost = True
        self.schedule.take(turn, "loses its answer")

    def _crash(self, *, late: bool) -> None:
        self.crashed = True
        self.schedule.trace.append("crash" + (", with calls under way" if late else ""))
        self.schedule.kill(self.world.crashes, late=late)
        for name in self.world.crashes:
            self.tasks[name].cancel()
        self.loop.settle()

    def _is_new(self) -> bool:
        schedule = self.schedule
        waiting = sorted(turn.place for turn in schedule.waiting)
        late = tuple(turn.place for turn in schedule.late)
        state = hash((self.world.digest(), schedule.told, tuple(waiting), late, self.crashed, self.lost))
        if state in self.explored.states:
            return self.every
        self.explored.states.add(state)
        return True

    def _told(self) -> str | None:
        for name, task in self.tasks.items():
            if self.crashed and name in self.world.crashes:
                continue
            if not task.done():
                return f"{name} waits for ever"
            error = task.exception()
            if error is not None:
                return str(error) if isinstance(error, Violation) else f"{name}: {error!r}"
        return None

    def _judged(self) -> str | None:
        ending = Ending(self.crashed, [turn.call for turn in self.schedule.late])
        late = tuple(turn.place for turn in self.schedule.late)
        key = hash((self.world.digest(), late, self.crashed))
        if key not in self.explored.endings:
            self.schedule.freely = True
            try:
                self.loop.complete(self._judging(ending))
                self.explored.endings[key] = None
            except Violation as violation:
                self.explored.endings[key] = str(violation)
        return self.explored.endings[key]

    async def _judging(self, ending: Ending) -> None:
        await self.world.judge(ending)


async def _act(name: str, actor: Callable[[], Awaitable[None]]) -> None:
    ACTOR.set(name)
    await actor()
