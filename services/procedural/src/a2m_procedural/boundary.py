"""Where the errors of git, SQLite and the disk end."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from git.exc import GitError as GitPythonError

from a2m_procedural.plumbing import GitError
from a2m_protocol.errors import A2MError, unavailable


@contextmanager
def translated(path: Path) -> Generator[None]:
    """The one place where git's, SQLite's and the disk's errors become ours; `path` is left out of them."""
    try:
        yield
    except A2MError:
        raise
    except (GitError, GitPythonError, sqlite3.Error, OSError) as error:
        why = _known(str(error)) or _state_of(path) or _said(error)
        raise unavailable("the skills repository", why.replace(str(path), "(its path)")) from error


FULL = "its disk is full: make room there"
READ_ONLY = "it is read-only: let it be written"
FORBIDDEN = "it may not be written: correct its permissions"
LITTLE = 2**20
"""Bytes that are left on a disk when a write that was too large for it has been taken back."""


def _known(text: str) -> str | None:
    known = {
        "No space left on device": FULL,
        "Out of diskspace": FULL,
        "database or disk is full": FULL,
        "File too large": "a file may not grow so large here: raise the limit",
        "Read-only file system": READ_ONLY,
        "readonly database": READ_ONLY,
        "ermission denied": FORBIDDEN,
        "insufficient permission": FORBIDDEN,
    }
    return next((ours for theirs, ours in known.items() if theirs in text), None)


def _state_of(path: Path) -> str | None:
    """What is wrong with the disk, where git only says that it could not write."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    if disk.f_flag & os.ST_RDONLY:
        return READ_ONLY
    return FULL if disk.f_bavail * disk.f_frsize < LITTLE else None


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
