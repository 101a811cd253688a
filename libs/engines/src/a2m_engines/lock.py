"""A lock on a folder that the kernel gives up when its holder dies, however it dies."""

import fcntl
import os
from pathlib import Path

from a2m_engines.errors import EngineError


class FolderLock:
    """Exclusive use of a folder by one process, through a file `lock` in it that holds the owner's pid.

    `flock` rather than the existence of the file decides, so a file left by a `kill -9` locks nobody out.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `EngineError` naming the process that has it."""
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 32).decode().strip() or "unknown"
                os.close(descriptor)
                raise EngineError(
                    f"{self._path.parent} is in use by process {owner}: stop that one first, "
                    "or choose another data folder"
                ) from None
            if not self._is_current(descriptor):
                os.close(descriptor)  # its holder removed the file between our open and our flock
                continue
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock up and remove its file; does nothing when it is not held."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False
