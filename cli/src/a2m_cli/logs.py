"""The log of a child: a file that the child writes to itself, kept below a limit from outside."""

import shutil
from pathlib import Path
from typing import BinaryIO

_LIMIT_BYTES = 10 * 2**20
_TAIL_BYTES = 2_000


class ChildLog:
    """A child's log, and the part before it under the name `*.log.1`; at most twice `limit` bytes.

    The child appends to the file by itself, so that it never waits for its supervisor. Lines written
    in the moment of rotation may be lost.
    """

    def __init__(self, path: Path, *, limit: int = _LIMIT_BYTES) -> None:
        self.path = path
        self._limit = limit

    def open(self) -> BinaryIO:
        """Open the file for a child to append to."""
        self.rotate()
        return self.path.open("ab")

    def rotate(self) -> None:
        """When the file is over the limit, copy it away and empty it under its writer."""
        if self.path.exists() and self.path.stat().st_size > self._limit:
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
            with self.path.open("r+b") as log:
                log.truncate(0)

    def tail(self) -> str:
        """Return the last lines, for an error message."""
        try:
            with self.path.open("rb") as log:
                log.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
