"""Files that are read again when they change, and files that appear when they are whole."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Watched(Generic[T]):
    """What `parse` makes of a file, made anew whenever the file changes.

    A file that vanishes or breaks leaves what was read last in force, which the log says once; one that is
    there and cannot be read is tried again. `parse` raises a `ValueError` that holds nothing secret, which
    passes the first time, as does `OSError`.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path = path
        self._parse = parse
        self._stamp = self._complaint = self._look()
        self._value = parse(path.read_bytes())

    @property
    def value(self) -> T:
        stamp = self._look()
        if stamp != self._stamp:
            self._refresh(stamp)
        return self._value

    def _refresh(self, stamp: tuple[int, int, int] | None) -> None:
        try:
            self._value = self._parse(self._path.read_bytes())
        except (OSError, ValueError) as error:
            if self._complaint != stamp:
                why = error.strerror if isinstance(error, OSError) else error
                log.error("%s: %s; what was read last stays in force", self._path, why)
            self._complaint = stamp
            if stamp is not None and isinstance(error, OSError):
                return
        self._stamp = stamp

    def _look(self) -> tuple[int, int, int] | None:
        """What changes when the file does, None while there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Write a file that takes its name at the end, synced to disk, readable by its owner alone (0600).

    Nothing is left of it when the work fails. Raises `OSError` where it cannot be written.
    """
    folder = path.absolute().parent
    # Beside its place, so that the rename cannot cross file systems.
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
        _sync(folder)
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()


def _sync(folder: Path) -> None:
    """Make a rename in a folder outlive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
