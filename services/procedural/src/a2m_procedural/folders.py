"""Folders on disk: git syncs the files that it writes, but not the folders that their names are in."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def stamps(folder: Path) -> dict[str, int]:
    """When the names in a folder and in those directly in it changed last, by path.

    Those in it may go meanwhile, as the folder does in which git keeps what somebody pushes until it has
    checked it.
    """
    found = {str(folder): folder.stat().st_mtime_ns}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir():
                    found[entry.path] = entry.stat().st_mtime_ns
    return found


def sync_changed(folder: Path, before: Mapping[str, int]) -> None:
    """Sync those whose stamp is not what it was `before`, and that are still there."""
    for path, stamp in stamps(folder).items():
        if before.get(path) != stamp:
            with suppress(FileNotFoundError):
                sync(Path(path))


def sync(folder: Path) -> None:
    """Have the names in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(descriptor)
