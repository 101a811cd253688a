"""One writer at a time over all processes that share a repository."""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from a2m_protocol.errors import unavailable


@contextmanager
def locked(path: Path, timeout: float) -> Generator[int]:
    """Hold the lock file at `path`; yields its descriptor, or raises after `timeout` seconds.

    The kernel lets go when the last process with the descriptor ends. A child that was given it keeps the
    lock while it runs, so that a git command whose parent was killed ends before the next writer begins.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise unavailable("the skills repository", f"other writers kept it for {timeout:g} s")
            time.sleep(random.uniform(0.001, 0.008))  # noqa: S311 jitter, no secret
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
