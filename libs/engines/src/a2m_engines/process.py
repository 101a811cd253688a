"""Processes that end with the one that owns them, and the search for those that did not."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from a2m_engines import launch

_POLL_SECONDS = 0.02


def owned(
    command: Sequence[str | Path],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    user: tuple[int, int] | None = None,
) -> list[str]:
    """Wrap a command so that it runs as a child that gets `death_signal` when its parent is gone.

    The pid of the wrapper is the pid of the command. On Linux the kernel sends the signal when the *thread*
    that spawned the child ends, so spawn from the main thread. Elsewhere there is no such signal, and
    the next start ends what was left (`processes_in`). `user` is a (uid, gid) to become first.
    """
    uid, gid = user or (-1, -1)
    arguments = (os.getpid(), int(death_signal), uid, gid)
    return [sys.executable, "-I", "-S", launch.__file__, *map(str, arguments), *map(str, command)]


def processes_in(folder: Path, names: Iterable[str]) -> list[psutil.Process]:
    """Return the live processes of these names whose working directory is `folder`."""
    target = folder.resolve()
    wanted = frozenset(names)
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.name() in wanted and Path(process.cwd()) == target and is_running(process):
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or not ours to look into
            continue
    return found


def is_running(process: psutil.Process) -> bool:
    """Tell whether a process still runs: a zombie that nobody has reaped yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(processes: Sequence[psutil.Process], first: signal.Signals, grace: float) -> None:
    """Send `first`, wait up to `grace` seconds, then SIGKILL what is left and wait for it."""
    for stop in (first, signal.SIGKILL):
        alive = [process for process in processes if is_running(process)]
        for process in alive:
            try:
                process.send_signal(stop)
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + grace
        # Not `psutil.wait_procs`: it waits for the zombies that a container without an init never reaps.
        while any(is_running(process) for process in alive) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
