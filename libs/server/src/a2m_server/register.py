"""The file of principals: read, edited by several at a time, and watched by a server."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from a2m_protocol.files import Watched, whole_file
from a2m_server.identity import Caller
from a2m_server.principals import Principals, verify


class RegisterError(ValueError):
    """A file of principals that cannot be read; the message says why and holds nothing secret."""


def read(path: Path) -> Principals:
    """The principals of a file; raises `RegisterError`."""
    with _explained(path):
        _check_file(path)
        return parse(path.read_bytes())


def parse(text: bytes) -> Principals:
    """Principals from JSON; raises `ValueError` without what was read."""
    try:
        return Principals.model_validate_json(text)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        # Not chained: the error holds what was read.
        raise ValueError("; ".join(problems[:5])) from None


@contextmanager
def _explained(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise RegisterError(f"cannot read the principals file {path}: {error.strerror}") from error
    except ValueError as error:
        raise RegisterError(f"the principals file {path} is wrong: {error}") from None


def _check_file(path: Path) -> None:
    """Raise for what is there and no file: reading it might never end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")


class Edit:
    """Principals while they are edited: what `principals` is set to is written at the end."""

    def __init__(self, principals: Principals) -> None:
        self.principals = principals


@contextmanager
def editing(path: Path) -> Generator[Edit]:
    """Change a file that may not exist yet, while nobody else edits it; readers see the old or the new whole.

    Nothing is written when the work fails or changes nothing. Raises `RegisterError`, and `OSError` where it
    cannot be written.
    """
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = read(path) if path.exists() else Principals()
        edit = Edit(held)
        yield edit
        if edit.principals != held:
            # Of mode 0600, and there after a loss of power too.
            with whole_file(path) as out:
                out.write((edit.principals.model_dump_json(indent=2, exclude_none=True) + "\n").encode())
    finally:
        os.close(lock)


class Register:
    """Knows principals by their tokens. The file is read again whenever it changes.

    A file that vanishes or breaks leaves what was read last in force, which the log says once. Raises
    `RegisterError` where it cannot be read at the start.
    """

    def __init__(self, path: Path, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """`clock` gives milliseconds since 1970."""
        self._clock = clock
        with _explained(path):
            _check_file(path)
            self._watched = Watched(path, lambda text: parse(text).by_token())

    async def verify(self, credential: bytes) -> Caller | None:
        return verify(self._watched.value, credential, self._clock())
