"""Random clients of three routers, and a model of what must be there, over processes that die and dawdle.

Every example has owners, sessions and keys of its own in one federation. At its end, and now and then in it,
all is brought to rest and everything must be as it was told. A failure is printed with its seed and all
calls of its example; `A2M_MACHINE_SEED=N` runs the same draws again, as far as processes allow.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

import pytest
from audit import audit
from caller import Caller
from cutter import Mode
from deeds import Close, Deed, Outcome, Remember
from harness import ENGINES, TIERS, Federation, poll
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from nursery import Nursery
from possible import ContradictionError, Effect, Fields, Slot
from wishes import (
    ANYTHING,
    ENDS,
    FORGETS,
    LOOKS,
    MOVES,
    MOVES_SEEN,
    PLACED,
    PRAISES,
    QUESTIONS,
    RACES,
    RETRIES,
    REWRITES,
    RISES,
    THOUGHTS,
    TIDYING,
    TURNS,
    Wish,
)
from world import World

from a2m_protocol.errors import A2MError, TransportError

ROUTERS = 3
PROXIED = ("working", "episodic", "semantic")
LONGEST_CALL = 60.0
TROUBLE_STEPS = 6
"""After so many steps what was killed is started again, and what was slow is no longer."""
PEACE_STEPS = 8
"""So many steps pass before there is new trouble."""
REST_STEPS = 20
SWEEP = 5.0
"""Seconds between sweeps: what a crash left is there for some steps."""

_METADATA = ", 'n': [1, 1.0, None, {'é': -0.0}]"


@dataclass(frozen=True)
class Crash:
    """A process is killed `after` seconds of what is being done; it `stays` down for some steps, or not."""

    victim: str
    after: float
    stays: bool


CRASHES = st.builds(
    Crash,
    st.sampled_from((*TIERS, *ENGINES, "working", "episodic", "valkey", "router", "router2")),
    st.sampled_from((0.0, 0.005, 0.02, 0.08)),
    st.booleans(),
)
WAYS: st.SearchStrategy[Mode] = st.sampled_from(("delay", "late"))
NUMBERS = st.integers(0, ROUTERS - 1)


@dataclass
class Tally:
    """What a run did."""

    steps: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    kills: Counter[str] = field(default_factory=Counter[str])
    slowest: tuple[float, str] = (0.0, "")

    def line(self) -> str:
        return (
            f"{self.steps} steps, {self.calls.total()} calls ({self.failed.total()} failed), "
            f"{self.kills.total()} kills; the slowest call took {self.slowest[0]:.1f} s ({self.slowest[1]})"
        )


class Clients(RuleBasedStateMachine):
    """Calls three routers at random, and believes what it is told."""

    def __init__(self, federation: Federation, tally: Tally) -> None:
        super().__init__()
        self.federation = federation
        self.tally = tally
        self.world = World()
        self.said: list[Remember] = []
        self.steps = 0
        self.rested = 0
        self.troubled = 0
        self.down: str | None = None
        self.slow: str | None = None
        self.calm = True
        self.broken = False
        self.lines: list[str] = []
        self.cursor = str(federation.router.call("events")["cursor"])

    @initialize(wishes=st.lists(st.one_of(TURNS, PLACED), min_size=2, max_size=4), router=NUMBERS)
    def begin(self, wishes: list[Wish], router: int) -> None:
        self._ask(wishes, router)

    @rule(wish=TURNS, router=NUMBERS)
    def say(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=PLACED, router=NUMBERS)
    def write(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=REWRITES, router=NUMBERS)
    def rewrite(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=RETRIES, router=NUMBERS)
    def retry(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=FORGETS, router=NUMBERS)
    def forget(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=st.one_of(RISES, PRAISES), router=NUMBERS)
    def raise_up(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=st.one_of(ENDS, TIDYING), router=NUMBERS)
    def reorganize(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=st.one_of(LOOKS, QUESTIONS), router=NUMBERS)
    def read(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wish=THOUGHTS, router=NUMBERS)
    def recall(self, wish: Wish, router: int) -> None:
        self._ask([wish], router)

    @rule(wishes=st.lists(ANYTHING, min_size=2, max_size=4), router=NUMBERS)
    def at_once(self, wishes: list[Wish], router: int) -> None:
        self._ask(wishes, router)

    @rule(wishes=MOVES_SEEN, router=NUMBERS)
    def look_on(self, wishes: list[Wish], router: int) -> None:
        self._ask(wishes, router)

    @rule(wishes=RACES, router=NUMBERS)
    def race(self, wishes: list[Wish], router: int) -> None:
        self._ask(wishes, router)

    @rule(router=NUMBERS)
    def watch(self, router: int) -> None:
        with self._step(), suppress(A2MError):
            self._poll(self._live(router))

    @precondition(lambda self: self._peaceful)
    @rule(wishes=st.lists(ANYTHING, min_size=1, max_size=4), router=NUMBERS, crash=CRASHES)
    def crash(self, wishes: list[Wish], router: int, crash: Crash) -> None:
        self._ask(wishes, router, crash)

    @precondition(lambda self: self._peaceful)
    @rule(wishes=st.one_of(RACES, st.lists(MOVES, min_size=1, max_size=4)), router=NUMBERS, crash=CRASHES)
    def crash_moving(self, wishes: list[Wish], router: int, crash: Crash) -> None:
        self._ask(wishes, router, crash)

    @precondition(lambda self: self._peaceful)
    @rule(tier=st.sampled_from(PROXIED), way=WAYS, seconds=st.sampled_from((0.1, 0.4, 3.0)))
    def dawdle(self, tier: str, way: Mode, seconds: float) -> None:
        """A tier answers late for some steps, or is asked late, if need be when nobody waits any more."""
        with self._step():
            self.federation.cutters[tier].cut(way, seconds)
            self.slow, self.troubled, self.calm = tier, self.steps, False
            self.lines.append(f"{tier}: {way} {seconds:g} s")

    @precondition(lambda self: self.down is not None or self.slow is not None)
    @rule()
    def mend(self) -> None:
        with self._step():
            self._mend()

    @precondition(lambda self: self.steps - self.rested >= REST_STEPS)
    @rule(router=NUMBERS)
    def rest(self, router: int) -> None:
        with self._step():
            self._rest(router)

    def teardown(self) -> None:
        if self.broken:
            self._mend()
            self.federation.mend()
            return
        with self._watched():
            self._rest(self.steps % ROUTERS)
            self.federation.router.call("forget", where={"mark": self.world.mark})
            for name, tier in self.federation.tiers.items():
                left = tier.entries(where={"mark": self.world.mark})
                left += tier.call("read", ids=self.world.ids())["records"] if self.world.ids() else []
                if left:
                    raise ContradictionError(f"I3: after all was forgotten, {name} holds {left}")

    @property
    def _peaceful(self) -> bool:
        quiet = self.down is None and self.slow is None
        return quiet and self.steps - self.troubled >= PEACE_STEPS

    @contextmanager
    def _step(self) -> Generator[None]:
        self.steps += 1
        self.tally.steps += 1
        with self._watched():
            yield
            if self.steps - self.troubled >= TROUBLE_STEPS:
                self._mend()

    @contextmanager
    def _watched(self) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            self.broken = True
            error.add_note("all calls of this example:\n" + "\n".join(self.lines))
            raise

    def _live(self, number: int) -> Caller:
        """A router that runs, by a number."""
        live = [router for router in self.federation.routers if router.name != self.down]
        return live[number % len(live)]

    def _ask(self, wishes: Sequence[Wish], router: int, crash: Crash | None = None) -> None:
        """Make calls, several at the same time and over several routers, and take in how they end."""
        with self._step():
            deeds = [deed for wish in wishes if (deed := wish.deed(self.world, self.said)) is not None]
            deeds = [deed for deed in deeds if not any(slot.unsettled for slot in deed.about())]
            self.said += [deed for deed in deeds if isinstance(deed, Remember) and deed.named]
            if crash is None and len(deeds) == 1:
                self._learn([(deeds[0], self._call(deeds[0], self._live(router), alone=True))], None)
                return
            futures = [
                self.federation.later(self._call, deed, self._live(router + number))
                for number, deed in enumerate(deeds)
            ]
            if crash is not None:
                wait(futures, crash.after)
                self._kill(crash.victim)
                if not crash.stays:
                    self._mend()
            done = [(deed, future.result()) for deed, future in zip(deeds, futures, strict=True)]
            self._learn(done, crash.victim if crash is not None else None)

    def _call(self, deed: Deed, router: Caller, *, alone: bool = False) -> Outcome:
        began = self.world.moment()
        clock = time.monotonic()
        answer, failure = None, None
        try:
            answer = router.call(deed.method, timeout=LONGEST_CALL, **deed.sent())
        except A2MError as error:
            failure = error
        took = time.monotonic() - clock
        self.tally.slowest = max(self.tally.slowest, (took, deed.method))
        return Outcome(router.name, began, self.world.moment(), self.calm, alone, answer, failure)

    def _learn(self, done: Sequence[tuple[Deed, Outcome]], victim: str | None) -> None:
        """Take in how calls ended that were made at the same time."""
        effects: dict[Slot, list[Effect]] = {}
        what: dict[Slot, list[str]] = {}
        lines: list[str] = []
        for deed, outcome in done:
            line = self._line(deed, outcome)
            lines.append(line)
            self.lines.append(line)
            self.tally.calls[deed.method] += 1
            self.tally.failed[deed.method] += outcome.error is not None
            self._judge(outcome, victim)
            deed.heard(outcome)
        for (deed, outcome), line in zip(done, lines, strict=True):
            for slot, effect in deed.effects(outcome):
                effects.setdefault(slot, []).append(effect)
                what.setdefault(slot, []).append(line)
        busy: set[Slot] = set()
        for slot, done_to in effects.items():
            before = slot.visible
            slot.after(done_to, " | ".join(what[slot]))
            if slot.visible != before:
                busy.add(slot)
        for deed, outcome in done:
            if outcome.answer is not None:
                deed.check(outcome.answer, busy if len(done) > 1 else ())
        if len(done) == 1 and self.calm and isinstance(done[0][0], Close):
            self._check_closed(done[0][0])
        if victim is not None:
            self._lose_events(victim)

    def _line(self, deed: Deed, outcome: Outcome) -> str:
        """A call in a line of the log, which is to be read: the mark of all names is left out."""
        told: object = repr(outcome.error)
        if outcome.answer is not None:
            told = {name: value for name, value in outcome.answer.items() if name != "records"}
            told |= {"shown": [_short(record) for record in outcome.answer.get("records", ())]}
        line = f"{outcome.began}-{outcome.ended} {outcome.router} {deed.method} {deed.sent()} -> {told}"
        return line.replace(f"{self.world.mark}/", "@").replace(self.world.mark, "@").replace(_METADATA, "")

    def _check_closed(self, close: Close) -> None:
        """A session that was closed leaves working at once."""
        owners = [slot.owner for slot in self.world.sees(close.owner)]
        where = {"session": close.session, "owner": [*dict.fromkeys(owners)]}
        if left := self.federation.tiers["working"].entries(where=where):
            raise ContradictionError(f"{close.session} is closed, and working holds {left}")

    def _judge(self, outcome: Outcome, victim: str | None) -> None:
        """Raise where a call failed, or an answer lacks something, and nothing was wrong."""
        error = outcome.error
        if isinstance(error, TransportError):
            if outcome.router != victim:
                raise ContradictionError(f"{outcome.router} runs and did not answer: {error!r}")
        elif error is not None and not error.retryable:
            raise ContradictionError(f"what may be asked was refused: {error!r} {error.data}")
        if self.calm and (error is not None or "degraded" in (outcome.answer or {})):
            raise ContradictionError(f"while nothing was wrong: {error!r} {outcome.answer}")

    def _kill(self, victim: str) -> None:
        self.down, self.troubled, self.calm = victim, self.steps, False
        self.tally.kills[victim] += 1
        self.lines.append(f"{victim} is killed")
        self.federation.kill(victim)

    def _mend(self) -> None:
        """End what trouble there is."""
        if self.slow is not None:
            self.federation.cutters[self.slow].heal()
            self.lines.append(f"{self.slow} is itself again")
            self.slow = None
        if self.down is not None:
            self.federation.start(self.down)
            self.lines.append(f"{self.down} is back")
            self.down = None

    def _rest(self, router: int) -> None:
        """Bring everything to rest, and hold it against what was told."""
        self._mend()
        for tier, cutter in self.federation.cutters.items():
            poll(f"{tier} has been asked everything", lambda cutter=cutter: cutter.idle)
        # Each router knows of groups that it has parted itself.
        for each in self.federation.routers:
            poll(f"{each.name} has nothing to do", lambda each=each: _has_nothing_to_do(each), LONGEST_CALL)
        self.federation.settle()
        self.calm, self.rested = True, self.steps
        self.lines.append("all is at rest")
        audit(self.world, self.federation, self.federation.routers[router])
        turn = itertools.count(router)
        poll("the event log has shown everything", lambda: self._poll(self._live(next(turn))))

    def _poll(self, router: Caller) -> bool:
        """Look into the event log; whether it has shown all that it has to."""
        told = router.call("events", cursor=self.cursor)
        if told.get("reset"):
            raise ContradictionError(f"{router.name} does not know the cursor {self.cursor}")
        self.cursor = told["cursor"]
        for event in told["events"]:
            if event["kind"] == "written":
                self.world.written.pop((event["id"], event.get("revision", 0)), None)
            elif event["kind"] == "forgotten":
                for record_id in event["ids"]:
                    self.world.forgotten.pop(record_id, None)
        return not self.world.written and not self.world.forgotten

    def _lose_events(self, router: str) -> None:
        """The log is kept in memory first: what a router that died had not sent yet may be missing."""
        self.world.written = {e: by for e, by in self.world.written.items() if by != router}
        self.world.forgotten = {e: by for e, by in self.world.forgotten.items() if by != router}


def _short(record: Fields) -> str:
    name, tier = record["content"].split()[-1], record.get("tier")
    return f"{name} in {tier} r{record.get('revision', 0)} m{record.get('moves', 0)}"


def _has_nothing_to_do(router: Caller) -> bool:
    """Whether a router reaches all tiers, and consolidating over it changes nothing."""
    try:
        done = router.call("consolidate")
        moved = any(done[name] for name in ("moved", "promoted", "dropped"))
        return not moved and "degraded" not in router.call("timeline", limit=1)
    except A2MError:
        return False


@pytest.fixture(scope="module")
def shared(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation of three routers, of which three tiers can be slow."""
    folder = tmp_path_factory.mktemp("shared")
    with Federation(folder, nursery, routers=ROUTERS, proxied=PROXIED, sweep=SWEEP) as federation:
        yield federation


def test_a_few_random_clients_are_told_the_truth(
    shared: Federation, record_property: Callable[[str, object], None]
) -> None:
    _run(shared, record_property, examples=2, length=30, steps=60)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(2))
def test_random_clients_of_three_routers_are_told_the_truth(
    shared: Federation, record_property: Callable[[str, object], None], part: int
) -> None:
    _run(shared, record_property, examples=10, length=50, steps=1_000)


def _run(
    federation: Federation,
    record_property: Callable[[str, object], None],
    *,
    examples: int,
    length: int,
    steps: int,
) -> None:
    """Run rounds of examples of some `length`, each with a seed of its own, until `steps` have been made."""
    tally = Tally()

    def clients() -> Clients:
        return Clients(federation, tally)

    rules = settings(
        max_examples=examples,
        stateful_step_count=length,
        deadline=None,
        derandomize=False,
        print_blob=True,
        report_multiple_bugs=False,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    number = int(os.environ.get("A2M_MACHINE_SEED") or random.randrange(1 << 32))
    began = time.monotonic()
    try:
        while tally.steps < steps:
            # What makes a machine does as well as its class.
            made = cast("type[Clients]", seed(number)(clients))
            run_state_machine_as_test(made, settings=rules)
            number += 1
    except BaseException as error:
        error.add_note(f"to draw the same again: A2M_MACHINE_SEED={number}")
        raise
    finally:
        line = f"{tally.line()}, in {time.monotonic() - began:.0f} s; the last seed was {number}"
        print(line)
        record_property("machine", line)
