"""What a supervised child is, and how it says how it fares."""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from a2m_engines.engine import Engine
from a2m_engines.process import owned

Probe = Callable[[], Awaitable[bool]]
"""Asks once whether a child serves; false, never an exception, while it does not yet."""


class State(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """A child's state as of now; `detail` says why, for a person."""

    name: str
    state: State
    pid: int | None = None
    restarts: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep alive.

    `prepare` (blocking, run in a thread), then `command` and `environment` (the whole of it) are called
    before every start, so they may use what the children named in `after` made known by becoming ready.
    `command` must end with its parent (`a2m_engines.process.owned`). `ready` is a probe, or a URL that
    answers 2xx to GET. `finish` (blocking) is called once after the last stop. Times are in seconds.
    """

    name: str
    command: Callable[[], Sequence[str]]
    environment: Callable[[], Mapping[str, str]]
    ready: Probe | str
    after: tuple[str, ...] = ()
    working_directory: Callable[[], Path] = Path.cwd
    prepare: Callable[[], None] | None = None
    finish: Callable[[], None] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 10.0
    start_timeout: float = 60.0


def engine_child(engine: Engine, *, name: str | None = None) -> Child:
    """Describe an embedded engine, which holds its folder from the first start to the last stop."""

    async def answers() -> bool:
        return engine.answers()  # one exchange with a local process

    return Child(
        name=name or engine.name,
        command=engine.command,
        environment=engine.environment,
        ready=answers,
        working_directory=lambda: engine.working_directory,
        prepare=engine.prepare,
        finish=engine.release,
        stop_signal=engine.stop_signal,
    )


def service_child(
    name: str,
    command: Sequence[str],
    *,
    settings: Callable[[], Mapping[str, str]],
    ready: Probe | str,
    after: Sequence[str] = (),
) -> Child:
    """Describe a process of ours: our own environment, over which `settings` are laid at each start."""
    return Child(
        name=name,
        command=lambda: owned(command),
        environment=lambda: {**os.environ, "PYTHONUNBUFFERED": "1", **settings()},
        ready=ready,
        after=tuple(after),
    )
