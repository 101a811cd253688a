"""The life of one supervised child: wait for others, start, be ready, die, start again."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from a2m_cli.children import Child, State, Status
from a2m_cli.logs import ChildLog
from a2m_engines.errors import EngineError

_POLL_SECONDS = 0.05


class SupervisorError(Exception):
    """A child cannot be started; the message names it, says why and shows the end of its log."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next start of a child that ended by itself.

    Doubling from `first` to `longest` seconds, and from the beginning again once a child had been
    ready for `forgiven_after` seconds. A child that was never ready is given up after `attempts` starts.
    """

    first: float = 0.1
    longest: float = 10.0
    forgiven_after: float = 30.0
    attempts: int = 3

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row (1 or more)."""
        return min(self.longest, self.first * 2 ** min(failures - 1, 30))


class Runner:
    """Keeps one child alive from `run` until `stopping` is set and `stop` is called."""

    def __init__(
        self,
        child: Child,
        *,
        log: ChildLog,
        backoff: Backoff,
        stopping: asyncio.Event,
        probe: Callable[[Child], Awaitable[bool]],
        on_status: Callable[[Status], None],
        on_spawn: Callable[[str, int], None],
    ) -> None:
        self.child = child
        self.log = log
        self.ready = asyncio.Event()
        self.status = Status(child.name, State.WAITING)
        self._backoff = backoff
        self._stopping = stopping
        self._probe = probe
        self._on_status = on_status
        self._on_spawn = on_spawn
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._restarts = 0

    async def run(self, after: list["Runner"]) -> None:
        """Keep the child alive once those before it are ready; return when all is to stop.

        Raises `SupervisorError` for a child that cannot be made ready for the first time.
        """
        self._tell(State.WAITING)
        for other in after:
            await self._or_stopping(other.ready.wait())
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = await self._live()
            if self._stopping.is_set():
                break
            if self.ready.is_set() and time.monotonic() - began > self._backoff.forgiven_after:
                failures = 0
            failures += 1
            if not self.ready.is_set() and failures >= self._backoff.attempts:
                self._fail(f"{reason}, {failures} times")
            delay = self._backoff.delay(failures)
            self._restarts += 1
            self._tell(State.BACKING_OFF, f"{reason}; starting again in {delay:.1f} s")
            await self._or_stopping(asyncio.sleep(delay))

    async def stop(self, force: asyncio.Event) -> None:
        """Stop the child, politely for its grace and at once when `force` is set, and let it tidy up."""
        async with self._starting:  # what is just being started has no process yet; nothing starts after this
            process = self._process
        if process is not None and process.returncode is None:
            self._tell(State.STOPPING)
            with suppress(ProcessLookupError):
                process.send_signal(self.child.stop_signal)
            await _either(process.wait(), force.wait(), seconds=self.child.grace)
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process is not None:
            _end_group(process.pid)
        if self.child.finish is not None:
            await asyncio.to_thread(self.child.finish)
        if self.status.state is not State.FAILED:
            self._tell(State.STOPPED)

    async def _live(self) -> str:
        """Start the child, see it become ready and wait for its end; return why it ended."""
        self._tell(State.STARTING)
        try:
            async with self._starting:
                if self.child.prepare is not None and not self._stopping.is_set():
                    await asyncio.to_thread(self.child.prepare)
                if self._stopping.is_set():
                    return "stopping"
                process = await self._spawn()
        except (EngineError, OSError) as error:
            # Ctrl-C also ends what an engine runs to be made ready: that is no failure of it.
            if not self.ready.is_set() and not self._stopping.is_set():
                self._fail(str(error))
            return str(error)
        self._on_spawn(self.child.name, process.pid)
        self._tell(State.STARTING)
        if await self._becomes_ready(process):
            self.ready.set()
            self._tell(State.READY)
        elif process.returncode is None and not self._stopping.is_set():
            process.kill()
            await process.wait()
            _end_group(process.pid)
            return f"not ready within {self.child.start_timeout:.0f} s"
        status = await process.wait()
        if not self._stopping.is_set():
            _end_group(process.pid)
        return _explain(status)

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self.log.open() as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.child.command(),
                env=dict(self.child.environment()),
                cwd=self.child.working_directory(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the supervisor, which stops all in order
            )
        return self._process

    async def _becomes_ready(self, process: asyncio.subprocess.Process) -> bool:
        deadline = time.monotonic() + self.child.start_timeout
        while time.monotonic() < deadline and process.returncode is None and not self._stopping.is_set():
            if await self._probe(self.child) and process.returncode is None:
                return True
            await self._or_stopping(_either(process.wait(), seconds=_POLL_SECONDS))
        return False

    def _fail(self, reason: str) -> None:
        self._tell(State.FAILED, reason)
        tail = self.log.tail()
        shown = f"\nIts log {self.log.path} ends with:\n{tail}" if tail else ""
        raise SupervisorError(f"{self.child.name} did not start: {reason}{shown}")

    def _tell(self, state: State, detail: str = "") -> None:
        process = self._process
        pid = process.pid if process is not None and process.returncode is None else None
        self.status = Status(self.child.name, state, pid, self._restarts, detail)
        self._on_status(self.status)

    async def _or_stopping(self, wanted: Awaitable[object]) -> None:
        await _either(wanted, self._stopping.wait())


async def _either(*wanted: Awaitable[object], seconds: float | None = None) -> None:
    """Wait until one of these is done or the time is over, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in wanted]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end_group(pid: int) -> None:
    """End what a child started and left in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _explain(status: int) -> str:
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
