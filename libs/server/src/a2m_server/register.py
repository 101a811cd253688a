"""The file of principals: read, edited by several at a time, and watched by a server."""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from a2m_server.identity import Caller
from a2m_server.principals import Principals, verify

log = logging.getLogger(__name__)


class RegisterError(ValueError):
    """A file of principals that cannot be read; the message says why and holds nothing secret."""


def read(path: Path) -> Principals:
    """The principals of a file; raises `RegisterError`."""
    try:
        if path.exists() and not path.is_file():
            raise RegisterError(f"the principals file {path} is no file")
        text = path.read_bytes()
    except OSError as error:
        raise RegisterError(f"cannot read the principals file {path}: {error.strerror}") from error
    try:
        return Principals.model_validate_json(text)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        # Not chained: the error holds what was read.
        raise RegisterError(f"the principals file {path} is wrong: {'; '.join(problems[:5])}") from None


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
            _replace(path, edit.principals)
    finally:
        os.close(lock)


class Register:
    """Knows principals by their tokens. The file is read again whenever it changes.

    A file that vanishes or breaks leaves what was read last in force, which the log says once. Raises
    `RegisterError` where it cannot be read at the start.
    """

    def __init__(self, path: Path, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """`clock` gives milliseconds since 1970."""
        self._path = path
        self._clock = clock
        self._stamp = self._complaint = self._look()
        self._tokens = read(path).by_token()

    async def verify(self, credential: bytes) -> Caller | None:
        self._refresh()
        return verify(self._tokens, credential, self._clock())

    def _refresh(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        try:
            self._tokens = read(self._path).by_token()
            log.info("the principals file was read again: %d tokens", len(self._tokens))
        except RegisterError as error:
            if self._complaint != stamp:
                log.error("%s; those read last stay in force", error)
            self._complaint = stamp
            if stamp is not None and isinstance(error.__cause__, OSError):
                return  # it is there, and may be readable the next time
        self._stamp = stamp

    def _look(self) -> tuple[int, int, int] | None:
        """What changes when the file does, None while there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def _replace(path: Path, principals: Principals) -> None:
    """Write a file of mode 0600 whole or not at all, so that it is there after a loss of power too."""
    text = principals.model_dump_json(indent=2, exclude_none=True) + "\n"
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
        _sync(path.parent)
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
