"""Files of conversations: which format a file has, and its lines as checked records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ValidationError

from a2m_cli.transcripts import EPOCH_MS, LineError, Stamps, chat_records, turn_record
from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, Json, JsonObject
from a2m_protocol.types import Draft, explain

EXPORT = "a2m-export"
EXPORT_VERSION = 1

TRANSIENT = frozenset({"etag", "score", "arrival"})
"""Fields of a record that are a server's own affair at the moment: they are not carried anywhere."""


class Format(StrEnum):
    CHAT = "chat transcripts"
    TURNS = "turn lines"
    EXPORT = "a2m export"


class FormatError(ValueError):
    """A file cannot be imported; the message names the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class Item:
    """A record to write, the line it comes from, and whether its time is none that the file gives."""

    line: int
    fields: JsonObject
    undated: bool = False

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def session(self) -> str | None:
        session = self.fields.get("session")
        return session if isinstance(session, str) else None

    @property
    def group(self) -> str | None:
        group = self.fields.get("group")
        return group if isinstance(group, str) else None

    @property
    def tier(self) -> str | None:
        tier = self.fields.get("tier")
        return tier if isinstance(tier, str) else None


def read_items(lines: Iterable[bytes], name: str, *, start: int = EPOCH_MS) -> Iterator[Item]:
    """The records of a file in its order; the first line decides the format.

    `name` stands in messages and for a conversation that has no name; `start` (ms since 1970) is when
    conversations without times begin. The same file gives the same records in every run. Raises
    `FormatError` at the first line that is wrong: none of that line has been given out then.
    """
    reader: Callable[[JsonObject, int], Iterable[JsonObject]] | None = None
    stamps = Stamps(start)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        value = _parse(line, place)
        if reader is None:
            try:
                found = detect(value)
                reader = _reader(found, value, name, stamps)
            except LineError as error:
                raise FormatError(f"{place}: {error}") from None
            if found is Format.EXPORT:
                continue
        try:
            before = stamps.undated
            records = [_checked(fields) for fields in reader(value, number)]
            # In a conversation, what stands before the first time has none.
            undated = stamps.undated - before
            items = [Item(number, fields, at < undated) for at, fields in enumerate(records)]
        except LineError as error:
            raise FormatError(f"{place}: {error}") from None
        yield from items


def detect(first: JsonObject) -> Format:
    """The format of a file by its first line; raises `LineError`."""
    if "format" in first and "messages" not in first and "content" not in first:
        return Format.EXPORT
    if "messages" in first:
        return Format.CHAT
    if "content" in first:
        return Format.TURNS
    raise LineError(
        "this is no format that can be imported: expected a conversation with `messages`, a turn with "
        "`content`, or the first line of an export"
    )


def header(name: Json, exported_at: str) -> JsonObject:
    """The first line of an export."""
    return {"format": EXPORT, "version": EXPORT_VERSION, "name": name, "exported_at": exported_at}


_Reader = Callable[[JsonObject, int], Iterable[JsonObject]]


def _reader(found: Format, first: JsonObject, name: str, stamps: Stamps) -> _Reader:
    if found is Format.EXPORT:
        _check_header(first)
        return lambda value, _: [_exported(value)]
    if found is Format.CHAT:
        return lambda value, number: list(chat_records(value, f"{name}-{number:06d}", stamps))
    return lambda value, _: [turn_record(value, name, stamps)]


def _check_header(first: JsonObject) -> None:
    if first.get("format") != EXPORT:
        raise LineError(f"format: expected {EXPORT!r}, not {str(first.get('format'))[:40]!r}")
    version = first.get("version")
    if version != EXPORT_VERSION or isinstance(version, bool):
        raise LineError(f"version: this release reads version {EXPORT_VERSION}, not {str(version)[:40]}")


def _exported(value: JsonObject) -> JsonObject:
    for field in ("id", "created_at", "seq"):
        if value.get(field) is None:
            raise LineError(f"{field}: is missing, and an exported record has one")
    return {name: held for name, held in value.items() if name not in TRANSIENT}


def _parse(line: bytes, place: str) -> JsonObject:
    try:
        value = jsonrpc.decode(line)
    except A2MError as error:
        raise FormatError(f"{place}: {error.message}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{place}: expected a JSON object")
    return value


def _checked(fields: JsonObject) -> JsonObject:
    """`fields`, if a server of ours would take them."""
    try:
        Draft.model_validate(fields)
    except ValidationError as error:
        raise LineError(explain(error, "record")) from None
    return fields
