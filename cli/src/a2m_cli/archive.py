"""A backup on disk: a zip file of records and tombstones, and a manifest of what must be in it."""

from __future__ import annotations

import hashlib
import struct
import time
import zlib
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Self
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from pydantic import BaseModel, ConfigDict, ValidationError

from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, JsonObject
from a2m_protocol.types import explain

FORMAT = "a2m-backup"
VERSION = 1

RECORDS = "records.jsonl"
"""An export: its header line, then the records; `a2m import` takes it too."""
TOMBSTONES = "tombstones.jsonl"
MANIFEST = "manifest.json"

_CHUNK = 2**20
_LONGEST_MANIFEST = 2**20
_LONGEST_LINE = 64 * 2**20
"""Bytes; a server takes no more in a call, and so has no record of more."""


class ArchiveError(ValueError):
    """A file is no whole backup; the message names it and says why."""


class Part(BaseModel):
    """What a file in a backup must be: its SHA-256, its size in bytes, and how many things it tells of."""

    model_config = ConfigDict(strict=True)

    sha256: str
    bytes: int
    count: int


class Manifest(BaseModel):
    """What a backup says of itself.

    `as_of` is the time up to which a forget that had returned counts. `scope` is `everything`, or `pooled`
    where the server shows no owner's records. `tiers` has how many records each held.
    """

    model_config = ConfigDict(strict=True)

    format: str
    version: int
    name: str
    began_at: str
    as_of: str
    scope: str
    tiers: dict[str, int]
    files: dict[str, Part]


class Writer:
    """Writes an archive into a file, each of its own files as it comes; use as a context manager."""

    def __init__(self, out: BinaryIO) -> None:
        self._zip = ZipFile(out, "w", ZIP_DEFLATED)
        self.parts: dict[str, Part] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._zip.close()

    async def add(
        self, name: str, values: AsyncIterable[JsonObject], first: JsonObject | None = None
    ) -> None:
        """Write a file of JSON lines, `first` at its head, which does not count."""
        digest, size, count = hashlib.sha256(), 0, 0
        entry = ZipInfo(name, time.localtime()[:6])
        entry.compress_type = ZIP_DEFLATED
        with self._zip.open(entry, "w", force_zip64=True) as out:
            if first is not None:
                line = _line(first)
                digest.update(line)
                size += out.write(line)
            async for value in values:
                line = _line(value)
                digest.update(line)
                size += out.write(line)
                count += 1
        self.parts[name] = Part(sha256=digest.hexdigest(), bytes=size, count=count)

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which makes it whole."""
        self._zip.writestr(MANIFEST, manifest.model_dump_json(indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Archive:
    """A backup that was found to be whole."""

    path: Path
    manifest: Manifest

    @classmethod
    def checked(cls, path: Path) -> Self:
        """Read all of a backup and compare it with its manifest; raises `ArchiveError`."""
        try:
            with ZipFile(path) as archive:
                with archive.open(MANIFEST) as stored:
                    manifest = _manifest(path, stored.read(_LONGEST_MANIFEST))
                for name, part in manifest.files.items():
                    with archive.open(name) as stored:
                        if _measured(stored, part.bytes) != (part.sha256, part.bytes):
                            raise ArchiveError(f"{path} is damaged: {name} is not what was written")
        except OSError as error:
            raise ArchiveError(f"cannot read {path}: {error.strerror or error}") from error
        except _DAMAGED as error:
            raise ArchiveError(f"{path} is damaged, or no backup: {error}") from error
        return cls(path, manifest)

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of one of its files; raises `ArchiveError` for one that is too long."""
        with ZipFile(self.path) as archive, archive.open(name) as stored:
            while line := stored.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise ArchiveError(f"{self.path}: {name} has a line that is too long")
                yield line

    def values(self, name: str) -> Iterator[JsonObject]:
        """The JSON objects of one of its files; raises `ArchiveError` where it holds something else."""
        for line in self.lines(name):
            try:
                value = jsonrpc.decode(line)
            except A2MError as error:
                raise ArchiveError(f"{self.path}: {name}: {error.message}") from error
            if not isinstance(value, dict):
                raise ArchiveError(f"{self.path}: {name} holds something else than objects")
            yield value


# What `zipfile` raises for bytes that are not what it wrote.
_DAMAGED = (BadZipFile, zlib.error, struct.error, EOFError, KeyError, IndexError, RuntimeError, UnicodeError)


def _manifest(path: Path, text: bytes) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ArchiveError(f"{path} is no backup: {explain(error, MANIFEST)}") from error
    if manifest.format != FORMAT:
        raise ArchiveError(f"{path}: format: expected {FORMAT!r}, not {manifest.format[:40]!r}")
    if manifest.version != VERSION:
        raise ArchiveError(f"{path}: this release reads version {VERSION} of backups, not {manifest.version}")
    missing = {RECORDS, TOMBSTONES} - manifest.files.keys()
    if missing:
        raise ArchiveError(f"{path}: its manifest does not tell of {', '.join(sorted(missing))}")
    return manifest


def _measured(stored: IO[bytes], most: int) -> tuple[str, int]:
    """The SHA-256 and size of a file, of which little more than `most` bytes is read."""
    digest, size = hashlib.sha256(), 0
    while size <= most and (chunk := stored.read(_CHUNK)):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _line(value: JsonObject) -> bytes:
    return jsonrpc.encode(value) + b"\n"
