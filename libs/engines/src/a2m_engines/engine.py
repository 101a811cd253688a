"""What every embedded engine is: a folder, a command that serves it, and a way to ask whether it answers."""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from a2m_engines.errors import EngineError
from a2m_engines.lock import FolderLock
from a2m_engines.process import end, owned, processes_in

_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 2_000


class Engine(ABC):
    """A database server over one folder, which only one process may have in use at a time.

    A supervisor calls `prepare`, spawns `command()` in `environment()`, polls `answers`, stops it by
    `stop_signal` and calls `release`. `start` and `stop` do all that for a caller without one. Spawn
    from the main thread: see `process.owned`.
    """

    name: ClassVar[str]
    process_names: ClassVar[frozenset[str]]
    stop_signal: ClassVar[signal.Signals]
    death_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._lock = FolderLock(self.folder)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect; known once prepared, and the same after every restart."""

    @abstractmethod
    def answers(self) -> bool:
        """Ask the server once whether it serves; never raises for one that does not yet."""

    @property
    @abstractmethod
    def working_directory(self) -> Path:
        """Where the server runs: what tells its processes from those of other folders."""

    @abstractmethod
    def _set_up(self) -> None:
        """Bring the folder into a state from which the command serves it."""

    @abstractmethod
    def _arguments(self) -> list[str | Path]:
        """The bare command of the server, in the foreground."""

    def _user(self) -> tuple[int, int] | None:
        """The (uid, gid) to become before the command, when another than our own."""
        return None

    @abstractmethod
    def _tidy(self) -> None:
        """Remove what a stopped server has no use for."""

    def prepare(self) -> None:
        """Lock the folder, end what a killed owner left running in it, and make it ready to be served.

        Call it before every start, a restart included. Raises `EngineError` when another process has the
        folder in use or it cannot be made ready.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise EngineError(f"cannot use {self.folder} for {self.name}: {error}") from error
        self._lock.acquire()
        try:
            self._end_leftovers()
            self._set_up()
        except (EngineError, OSError) as error:
            self._lock.release()
            raise EngineError(f"cannot prepare {self.folder} for {self.name}: {error}") from error

    def command(self) -> list[str]:
        """Return the command to spawn, which ends with the process that spawns it."""
        return owned(self._arguments(), death_signal=self.death_signal, user=self._user())

    def environment(self) -> Mapping[str, str]:
        """Return the whole environment for the command: no more of ours than a server needs."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
        return {**kept, "LC_ALL": "C", "TZ": "UTC"}

    def release(self) -> None:
        """After the server ended: end what it left, remove sockets and pid files, give up the folder."""
        if self.folder.is_dir():
            self._end_leftovers()
            self._tidy()
        self._lock.release()

    @property
    def pid(self) -> int:
        """The pid of the server that `start` started."""
        if self._process is None:
            raise EngineError(f"{self.name} is not started")
        return self._process.pid

    def start(self, timeout: float = 30.0) -> Self:
        """Start the server and return when it answers; `EngineError` with its log when it does not."""
        if self._process is not None:
            raise EngineError(f"{self.name} is already started")
        self.prepare()
        log_path = self.folder / f"{self.name}.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - a command of our own, without a shell
                self.command(),
                env=self.environment(),
                cwd=self.working_directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout
        while not self.answers():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.stop(grace=1.0)
                reason = "did not answer in time" if ended is None else f"ended with status {ended}"
                tail = log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
                raise EngineError(f"{self.name} {reason}; its log {log_path} ends with:\n{tail}")
            time.sleep(_POLL_SECONDS)
        return self

    def stop(self, grace: float = 10.0) -> None:
        """Stop the server, by force after `grace` seconds; does nothing when it is not started."""
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self.release()

    def kill(self) -> None:
        """End the server as a crash does (SIGKILL), leaving its files as they are; `start` recovers."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _end_leftovers(self) -> None:
        # The lock is ours, so nobody alive owns what still runs here.
        end(processes_in(self.working_directory, self.process_names), self.death_signal, grace=10.0)
