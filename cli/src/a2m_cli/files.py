"""Files that appear when they are whole."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from a2m_cli.connection import CliError
from a2m_protocol import files


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """As of `a2m_protocol.files`; raises `CliError` where it cannot be written."""
    try:
        with files.whole_file(path) as out:
            yield out
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror or error}") from error
