"""Files that appear when they are whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from a2m_cli.connection import CliError


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Write a file that takes its name at the end, synced to disk, readable by its owner alone (0600).

    Nothing is left of it when the work fails. Raises `CliError` where it cannot be written.
    """
    folder = path.absolute().parent
    try:
        # Beside its place, so that the rename cannot cross file systems.
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
        _sync(folder)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror or error}") from error
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
