"""The audit log: who wrote, forgot, purged or was refused what, and never what it said.

A file of JSON lines. Each has the digest of the one before it, so that a line that was changed, taken out or
put in shows; that lines are missing at the end shows against a digest that was noted elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import A2MError, Code, JsonObject

BEGINNING = "0" * 64
"""What stands for the digest before the first line."""
MAX_IDS = 100
"""Ids that a line names."""
WAITING = 10_000
"""Lines that wait for a disk that takes none; what is beyond is counted, and the count is logged."""
PAUSE = 0.2
TAIL = 2**20
"""More bytes than a line has."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verified:
    """What a log turned out to be: how many lines are right, the digest of the last, and what is wrong."""

    lines: int
    head: str
    problem: str | None = None


class _DamagedError(A2MError):
    """A file that does not end as an audit log does."""

    def __init__(self, path: Path) -> None:
        why = f"{path} does not end as an audit log does: verify it, or name another file"
        super().__init__(Code.INTERNAL, why)


class AuditLog:
    """Appends to a file from a background task, in order and on disk within a moment.

    `note` never waits: a process that is killed loses what it noted in the last `PAUSE` seconds. One process
    at a time has the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._head = BEGINNING
        self._count = 0
        self._waiting: list[JsonObject] = []
        self._lost = 0
        self._noted = asyncio.Event()
        self._ending = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises `A2MError` for a file that this log could not go on with, and for one in use."""
        await asyncio.to_thread(self._open)
        self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        if self._writing is not None:
            # Not cancelled: a thread that writes would go on, beside the next one.
            self._ending.set()
            self._noted.set()
            await self._writing
            self._writing = None
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def waiting(self) -> int:
        """How many lines are not on disk yet."""
        return len(self._waiting)

    def note(self, entry: Mapping[str, object]) -> None:
        """Add a line; when, its number and its digest are ours to say.

        Of what is the same as the last one, which waits still, the number of `times` is counted.
        """
        last = self._waiting[-1] if self._waiting else {}
        if entry.items() == {name: last[name] for name in last.keys() - {"at", "times"}}.items():
            last["times"] = int(cast("int", last.get("times", 1))) + 1
            return
        if len(self._waiting) >= WAITING:
            self._lost += 1
            return
        at = format_ms(time.time_ns() // 1_000_000)
        self._waiting.append(cast("JsonObject", {"at": at, **entry}))
        self._noted.set()

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise A2MError(
                Code.INTERNAL, f"cannot use the audit log {self._path}: {error.strerror or error}"
            ) from error
        with contextlib.ExitStack() as closing:
            file = os.fdopen(descriptor, "r+b", buffering=0)
            closing.callback(file.close)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                why = f"the audit log {self._path} is in use: give each server one of its own"
                raise A2MError(Code.INTERNAL, why) from error
            try:
                self._count, self._head = _end_of(file, self._path)
            except _DamagedError:
                if not _begins_as_ours(file):
                    raise
                aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns() // 1_000_000}")
                self._path.rename(aside)
                log.error("the audit log %s is damaged: it is kept as %s", self._path, aside.name)
                self._open()
                return
            closing.pop_all()
            self._file = file

    async def _write(self) -> None:
        while not self._ending.is_set():
            await self._noted.wait()
            self._noted.clear()
            entries, self._waiting = self._waiting, []
            if entries and not await asyncio.to_thread(self._append, entries):
                # No line is left out: what cannot be written goes on waiting.
                self._waiting[:0] = entries
                self._noted.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), PAUSE)
        if self._waiting and not await asyncio.to_thread(self._append, self._waiting):
            log.error("the audit log lacks its last %d lines", len(self._waiting))

    def _is_there(self) -> bool:
        """Whether the open file is still the one of its name; begins another where it is not."""
        try:
            if self._file is not None:
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(self._path.stat(), os.fstat(self._file.fileno())):
                        return True
                log.error("the audit log %s was taken away under this server: another is begun", self._path)
                self._file.close()
                self._file = None
            self._open()
        except (A2MError, OSError) as error:
            # What is to be written waits, and this is tried again.
            log.error("the audit log cannot be written: %s", error)
            return False
        return True

    def _append(self, entries: Sequence[JsonObject]) -> bool:
        """Write lines, all or none; whether they are on disk."""
        if not self._is_there() or self._file is None:
            return False
        count, head = self._count, self._head
        lines: list[bytes] = []
        for entry in entries:
            count += 1
            line = sealed({"line": count, **entry}, head)
            head = str(line["digest"])
            lines.append(_encode(line) + b"\n")
        end = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(b"".join(lines))
            if written != sum(map(len, lines)):
                raise OSError(None, "the disk took a part of it")
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), end)
            log.error("cannot write the audit log %s: %s", self._path, error.strerror)
            return False
        self._count, self._head = count, head
        if self._lost:
            log.error("the audit log lacks %d lines that found no room in memory", self._lost)
            self._lost = 0
        return True


def sealed(entry: JsonObject, previous: str) -> JsonObject:
    """A line with the digest of the one before it and its own."""
    entry = {**entry, "previous": previous}
    return {**entry, "digest": hashlib.sha256(_encode(entry)).hexdigest()}


def verify(path: Path, noted: str | None = None) -> Verified:
    """Read a whole log, a line at a time, and look for the digest that was `noted`; raises `OSError`."""
    count, head = 0, BEGINNING
    found = noted in (None, head)
    with path.open("rb") as file:
        for raw in file:
            problem = _problem(raw, count + 1, head)
            if problem is not None:
                return Verified(count, head, f"line {count + 1} {problem}")
            count += 1
            head = str(json.loads(raw)["digest"])
            found = found or head == noted
    return Verified(
        count, head, None if found else "the line of the noted digest is missing: the end was cut off"
    )


def _problem(raw: bytes, number: int, head: str) -> str | None:
    if not raw.endswith(b"\n"):
        return "is not whole"
    line = _parsed(raw)
    if line is None:
        return "is not one of this log"
    if line.get("previous") != head:
        return "does not follow the one before it: one was changed, taken out or put in"
    told = {name: value for name, value in line.items() if name not in ("digest", "previous")}
    # Byte for byte as it was written: a name that stands twice would be read once.
    if _encode(sealed(told, head)) + b"\n" != raw or line.get("line") != number:
        return "was changed"
    return None


def _end_of(file: BinaryIO, path: Path) -> tuple[int, str]:
    """How many lines a log has, and the digest of the last; a line that was not finished is taken away."""
    size = file.seek(0, os.SEEK_END)
    if size and not _begins_as_ours(file):
        raise _DamagedError(path)
    raw = b""
    for raw in _lines_from_end(file, size):
        if raw.endswith(b"\n"):
            break
        log.warning("the last line of the audit log %s was not finished, and is taken away", path)
        size -= len(raw)
        os.ftruncate(file.fileno(), size)
    if not size:
        return 0, BEGINNING
    line = _parsed(raw)
    number, digest = (None, None) if line is None else (line.get("line"), line.get("digest"))
    if not isinstance(number, int) or not isinstance(digest, str):
        raise _DamagedError(path)
    return number, digest


def _begins_as_ours(file: BinaryIO) -> bool:
    """Whether the first line is one of an audit log, or begins like one, so that the file is no other."""
    file.seek(0)
    first = file.readline(TAIL)
    if not first.endswith(b"\n"):
        return first.startswith(b'{"at":"')
    line = _parsed(first)
    return line is not None and line.get("line") == 1 and line.get("previous") == BEGINNING


def _lines_from_end(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The lines of the last `TAIL` bytes, last first; a line is shorter than that."""
    start = max(0, size - TAIL)
    file.seek(start)
    yield from reversed(file.read(size - start).splitlines(keepends=True))


def _parsed(raw: bytes) -> JsonObject | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return cast("JsonObject", line) if isinstance(line, dict) else None


def _encode(line: Mapping[str, object]) -> bytes:
    return json.dumps(line, separators=(",", ":"), sort_keys=True).encode()
