"""Calls that take turns: an event loop that stands still between them, and stores behind gates."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Record
from a2m_server.values import Found

T = TypeVar("T")
Fate = Literal["goes", "loses its answer", "lands late"]
"""What becomes of a call: it is done; done, but its answer is lost; done after its caller died."""

ACTOR: ContextVar[str] = ContextVar("actor", default="")


class StillLoop(asyncio.AbstractEventLoop):
    """An event loop that runs only when told to; its time stands still while anything can run."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._now = 0.0
        self._count = 0
        self.unhandled: list[str] = []

    @contextmanager
    def running(self) -> Generator[None]:
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def settle(self) -> None:
        """Run until everything waits."""
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def wait(self) -> bool:
        """Let time pass to the next timer; whether there was one."""
        while self._timers:
            self._now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._ready.append(timer)
                self.settle()
                return True
        return False

    def complete(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine that waits for nothing but timers to its end."""
        task = self.create_task(work)
        self.settle()
        while not task.done():
            assert self.wait(), "it waits for ever"
        return task.result()

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._count += 1
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[object]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[object, object, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, object]) -> None:
        self.unhandled.append(str(context.get("exception") or context.get("message")))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time comes."""


@dataclass(slots=True)
class Turn:
    """A call that waits: who makes it, as his how manieth, what it asks, and the call itself."""

    actor: str
    number: int
    label: str
    call: Callable[[], Awaitable[object]]
    go: asyncio.Future[Fate]

    @property
    def place(self) -> tuple[str, int]:
        return self.actor, self.number


@dataclass
class Schedule:
    """Whose turn it is: the calls that wait, what each actor was answered, and who is dead."""

    loop: StillLoop
    waiting: list[Turn] = field(default_factory=list[Turn])
    late: list[Turn] = field(default_factory=list[Turn])
    trace: list[str] = field(default_factory=list[str])
    dead: set[str] = field(default_factory=set[str])
    calls: dict[str, int] = field(default_factory=dict[str, int])
    told: int = 0
    freely: bool = False

    async def turn(self, label: str, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for a turn, and make the call."""
        actor = ACTOR.get()
        if self.freely:
            return await call()
        if actor in self.dead:
            raise asyncio.CancelledError
        number = self.calls[actor] = self.calls.get(actor, 0) + 1
        go: asyncio.Future[Fate] = asyncio.Future(loop=self.loop)
        self.waiting.append(Turn(actor, number, label, call, go))
        fate = await go
        answer = await call()
        # Of calls made at once it does not matter which was answered first: a set, made of one number.
        self.told ^= hash((actor, number, label, fate, digest(answer)))
        if fate == "loses its answer":
            raise A2MError(Code.INTERNAL, f"the answer of {label} was lost", {"retryable": True})
        return answer

    def take(self, turn: Turn, fate: Fate) -> None:
        """Let one call happen, and everything that follows from it up to the next calls."""
        self.trace.append(f"{turn.actor}: {turn.label}" + ("" if fate == "goes" else f" ({fate})"))
        if fate == "lands late":
            self.late.remove(turn)
            self.told ^= hash((turn.place, fate))
            self.loop.complete(_awaited(turn.call()))
        else:
            self.waiting.remove(turn)
            turn.go.set_result(fate)
        self.loop.settle()

    def kill(self, actors: Iterable[str], *, late: bool = False) -> None:
        """End actors where they are, and what they started that outlives a cancellation.

        With `late`, the calls that they had under way still happen, at some time.
        """
        self.dead.update(actors)
        for turn in [turn for turn in self.waiting if turn.actor in self.dead]:
            self.waiting.remove(turn)
            turn.go.cancel()
            if late:
                self.late.append(turn)


class Gated:
    """A store each of whose calls waits for its turn."""

    OPEN = frozenset({"info", "open", "close", "ready"})

    def __init__(self, store: object, schedule: Schedule, name: str) -> None:
        self._store = store
        self._schedule = schedule
        self._name = name

    def __getattr__(self, method: str) -> Callable[..., Awaitable[object]]:
        call = cast("Callable[..., Awaitable[object]]", getattr(self._store, method))
        label, schedule = f"{self._name}.{method}", self._schedule

        async def gated(*given: object, **named: object) -> object:
            return await schedule.turn(label, lambda: call(*given, **named))

        kept = call if method in self.OPEN else gated
        setattr(self, method, kept)
        return kept


def digest(value: object) -> Hashable:
    """What an answer says, fit to be compared."""
    if isinstance(value, Record):
        return repr(value.__dict__)
    if isinstance(value, Found):
        return digest(value.records), value.elsewhere
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(digest(each) for each in cast("Sequence[object]", value))
    return repr(value)


async def _awaited(call: Awaitable[T]) -> T:
    return await call
