"""Which processes a supervisor has started, on disk, so that the next one can end what a killed one left.

On Linux the kernel ends the children of a killed supervisor. This is for systems where it does not.
"""

import json
import logging
import signal
from pathlib import Path

import psutil

from a2m_engines.process import end, is_running

_logger = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0
_SAME_START_SECONDS = 0.5


class ProcessLedger:
    """A JSON file of each child's pid and start time, which together name a process for good."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, tuple[int, float]] = {}

    def add(self, name: str, pid: int) -> None:
        """Note that this child is now this process."""
        try:
            self._entries[name] = (pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            self._entries.pop(name, None)
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            fresh.write_text(json.dumps(self._entries), encoding="utf-8")
            fresh.replace(self._path)
        except OSError as error:  # a full disk must not end what still works
            _logger.warning("cannot note the processes in %s: %s", self._path, error)

    def end_leftovers(self) -> None:
        """End the processes that an earlier supervisor noted and that still run."""
        end([process for process in self._noted() if is_running(process)], signal.SIGTERM, _GRACE_SECONDS)

    def remove(self) -> None:
        """Forget everything: all have ended."""
        self._path.unlink(missing_ok=True)

    def _noted(self) -> list[psutil.Process]:
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return []
        found: list[psutil.Process] = []
        for pid, started in entries.values():
            try:
                process = psutil.Process(pid)
                if abs(process.create_time() - started) < _SAME_START_SECONDS:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found
