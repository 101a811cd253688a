"""Keeps a federation's processes alive: starts them in order, restarts what dies, and stops them all."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Self, cast

import httpx

from a2m_cli.children import Child, Status
from a2m_cli.ledger import ProcessLedger
from a2m_cli.logs import ChildLog
from a2m_cli.runner import Backoff, Runner, SupervisorError
from a2m_engines.errors import EngineError
from a2m_engines.lock import FolderLock

_logger = logging.getLogger(__name__)

_PROBE_SECONDS = 2.0
_AGAIN_SECONDS = 0.05
_LOG_CHECK_SECONDS = 10.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """Children over one data folder, which is locked from `start` to `stop`.

    Writes `folder/logs/NAME.log`, and `folder/lock` and `folder/children.json` while it runs. `on_status`
    is called in the event loop at every change. Use it in the main thread: on Linux the children end with
    the thread that started them.
    """

    def __init__(
        self,
        folder: Path,
        children: Sequence[Child],
        *,
        on_status: Callable[[Status], None] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        folder = folder.absolute()
        self.logs = folder / "logs"
        self._folder = folder
        self._lock = FolderLock(folder)
        self._ledger = ProcessLedger(folder / "children.json")
        self._stopping = asyncio.Event()
        self._force = asyncio.Event()
        self._stages = _stages(children)
        self._http: httpx.AsyncClient | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._runners = {
            child.name: Runner(
                child,
                log=ChildLog(self.logs / f"{child.name}.log"),
                backoff=backoff or Backoff(),
                stopping=self._stopping,
                probe=self._probe,
                on_status=on_status or _ignore,
                on_spawn=self._ledger.add,
            )
            for child in children
        }

    @property
    def statuses(self) -> list[Status]:
        """Every child's status, in the order given."""
        return [runner.status for runner in self._runners.values()]

    @property
    def stopping(self) -> bool:
        """Whether a stop has been asked for."""
        return self._stopping.is_set()

    async def start(self) -> None:
        """Start everything and return when all are ready, or as soon as a stop is asked for.

        Raises `SupervisorError` when the folder is in use or a child cannot be started; all is stopped then.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            self._lock.acquire()
        except (EngineError, OSError) as error:
            raise SupervisorError(str(error)) from error
        await asyncio.to_thread(self._ledger.end_leftovers)
        self._http = httpx.AsyncClient(timeout=_PROBE_SECONDS, trust_env=False)
        self._tasks = [asyncio.create_task(self._rotate_logs())]
        for runner in self._runners.values():
            after = [self._runners[name] for name in runner.child.after]
            self._tasks.append(asyncio.create_task(runner.run(after), name=runner.child.name))
        all_ready = asyncio.create_task(self._all_ready())
        async with contextlib.AsyncExitStack() as failed:
            failed.push_async_callback(self.stop)
            try:
                await self._until(all_ready)
            finally:
                all_ready.cancel()
            failed.pop_all()

    async def wait(self) -> None:
        """Return when a stop is asked for."""
        await self._until(asyncio.create_task(self._stopping.wait()))

    def request_stop(self) -> None:
        """Ask for a stop; asked again, what still runs is killed without waiting for its grace."""
        if self._stopping.is_set():
            self._force.set()
        self._stopping.set()

    async def stop(self) -> None:
        """Stop all, the last started first, and give the folder up; nothing runs afterwards."""
        self._stopping.set()
        for stage in reversed(self._stages):
            await asyncio.gather(*(self._runners[name].stop(self._force) for name in stage))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        self._ledger.remove()
        self._lock.release()

    async def run(self, on_ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start all, call `on_ready`, keep all alive until SIGINT, SIGTERM or SIGHUP, then stop all."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.request_stop)
        try:
            async with self:
                if on_ready is not None and not self.stopping:
                    await on_ready()
                await self.wait()
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def _all_ready(self) -> None:
        for runner in self._runners.values():
            await runner.ready.wait()
        # A router that began before its tiers may meanwhile have given one up: it looks again every second.
        for runner in self._runners.values():
            while isinstance(runner.child.ready, str) and not await self._probe(runner.child):  # noqa: ASYNC110 over HTTP one can but ask
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _until(self, wanted: asyncio.Task[object]) -> None:
        """Wait for `wanted` or a stop; a runner that fails meanwhile raises its error here."""
        stop = asyncio.create_task(self._stopping.wait())
        try:
            done, _ = await asyncio.wait([wanted, stop, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            wanted.cancel()
            stop.cancel()
        for task in done:
            if task in self._tasks:
                task.result()

    async def _probe(self, child: Child) -> bool:
        if not isinstance(child.ready, str):
            return await child.ready()
        if self._http is None:
            return False
        try:
            answer = await self._http.get(child.ready)
        except httpx.HTTPError:
            return False
        return answer.is_success and _silent(answer).isdisjoint(self._runners)

    async def _rotate_logs(self) -> None:
        while not self._stopping.is_set():
            for runner in self._runners.values():
                try:
                    await asyncio.to_thread(runner.log.rotate)
                except OSError as error:  # a full disk must not end what still works
                    _logger.warning("cannot rotate %s: %s", runner.log.path, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOG_CHECK_SECONDS)


def _ignore(_: Status) -> None:
    """Be told for nothing."""


def _silent(answer: httpx.Response) -> set[str]:
    """The tiers that a `/readyz` of ours says do not answer."""
    try:
        told = cast("dict[str, Any]", answer.json())
    except ValueError:
        return set()
    return {str(item["tier"]) for item in told.get("degraded", ())}


def _stages(children: Sequence[Child]) -> list[tuple[str, ...]]:
    """Sort the children into stages, each of which needs only those before it; refuse what cannot be."""
    names = [child.name for child in children]
    if len(set(names)) < len(names):
        raise SupervisorError(f"two children have the same name: {', '.join(sorted(names))}")
    for child in children:
        for other in child.after:
            if other not in names:
                raise SupervisorError(f"{child.name} is to start after {other}, which is not there")
    sorter = TopologicalSorter({child.name: child.after for child in children})
    try:
        sorter.prepare()
    except CycleError as error:
        raise SupervisorError(f"children wait for each other: {' after '.join(error.args[1])}") from error
    stages: list[tuple[str, ...]] = []
    while sorter.is_active():
        stage = sorter.get_ready()
        stages.append(stage)
        sorter.done(*stage)
    return stages
