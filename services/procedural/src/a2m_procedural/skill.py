"""`SKILL.md`: YAML front matter, then the content, byte for byte.

The file is `---`, YAML, `---`, and whatever follows the line feed of that second line is the content.
Every text that we write into the YAML is quoted on one line, so that no line of it can be `---`.
Our own fields stand under `a2m`; other keys are the author's and are kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import yaml
from pydantic import Field, ValidationError

from a2m_protocol.clock import MAX_SEQ
from a2m_protocol.errors import JsonObject
from a2m_protocol.types import (
    MAX_CONTENT,
    MAX_DEPTH,
    Count,
    Model,
    Name,
    Provenance,
    Record,
    Stamp,
    Status,
    Text,
    check_text,
    metadata_text,
)

MAX_DESCRIPTION = 1024
MAX_FRONT = 4 * 1024 * 1024
NAMESPACE = "a2m"

_FRONT = re.compile(
    rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
_SPACE = re.compile(r"\s+")


class Fields(Model):
    """What the front matter keeps of a record; the rest is the content, or is kept outside git."""

    id: Name
    created_at: Stamp
    seq: Annotated[int, Field(ge=-MAX_SEQ, le=MAX_SEQ)]
    key: Name | None = None
    revision: Count = 0
    moves: Count = 0
    role: Name | None = None
    group: Name | None = None
    session: Name | None = None
    owner: Name | None = None
    uri: Text | None = None
    media_type: Name | None = None
    status: Status = "active"
    metadata: Text | None = None
    provenance: Provenance | None = None
    aliases: list[Name] = Field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Skill:
    """A parsed `SKILL.md`. `front` holds the keys that are not ours; `fields` is None for a person's."""

    content: str
    front: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fields: Fields | None = None

    @property
    def description(self) -> str:
        given = self.front.get("description")
        return given if isinstance(given, str) else ""

    def metadata(self) -> JsonObject | None:
        """The metadata of the record: ours from its JSON text, a person's front matter as JSON."""
        if self.fields is None:
            return {str(name): _json(value) for name, value in self.front.items()} or None
        return None if self.fields.metadata is None else json.loads(self.fields.metadata)


def parse(data: bytes) -> Skill | None:
    """A `SKILL.md`, or None for one that is no text that a record can hold.

    Front matter that cannot be read counts as content, so that a person's slip never hides a skill.
    """
    match = _FRONT.match(data)
    front = None if match is None or len(match[1]) > MAX_FRONT else _load(match[1])
    try:
        content = check_text((data if front is None or match is None else data[match.end() :]).decode())
    except ValueError:
        return None
    if len(content) > MAX_CONTENT:
        return None
    if front is None:
        return Skill(content)
    ours = front.pop(NAMESPACE, None)
    if ours is None:
        return Skill(content, front)
    try:
        fields = Fields.model_validate(ours)
        metadata = None if fields.metadata is None else json.loads(fields.metadata)
    except (ValidationError, ValueError, RecursionError):
        return Skill(content, front)
    if not isinstance(metadata, dict | None):
        return Skill(content, front)
    return Skill(content, front, fields)


def render(record: Record, folder: str, front: Mapping[str, Any], description: str | None = None) -> bytes:
    """The file of a record in `folder`; `front` holds the keys that the file has now, which are kept.

    `description` is a person's, kept unless the metadata give one.
    """
    kept = {name: value for name, value in front.items() if name not in ("name", "description", NAMESPACE)}
    if description is None or "description" in (record.metadata or {}):
        description = describe(record)
    head = {
        "name": front.get("name") or folder or "skill",
        "description": description,
        **kept,
        NAMESPACE: _fields(record),
    }
    text = yaml.dump(
        head, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=math.inf, default_flow_style=False
    )
    return b"---\n" + text.encode() + b"---\n" + record.content.encode()


def describe(record: Record) -> str:
    """One line that says what a skill is for: its metadata's description, else the content's first line."""
    metadata = record.metadata or {}
    lines = (line.strip(" \t#*-=>`") for line in record.content.splitlines())
    candidates = [metadata.get("description"), metadata.get("title"), metadata.get("name"), *lines]
    for candidate in [*candidates, record.key, record.uri, record.id]:
        if isinstance(candidate, str):
            line = _SPACE.sub(" ", "".join(c for c in candidate if c.isprintable() or c.isspace()))
            line = line.replace("<", "").replace(">", "").strip()[:MAX_DESCRIPTION].strip()
            if line:
                return line
    return "A skill."


def kept_in_git(record: Record) -> tuple[object, ...]:
    """What of a record its file holds, for comparing two states of it."""
    return (record.content, _fields(record))


class _Dumper(yaml.SafeDumper):
    """Every text in double quotes and on one line, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 the library's name
        return True


def _text(_: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[a-z][a-z0-9_-]*", text) and text not in _WORDS
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=None if plain else '"')


_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_Dumper.add_representer(str, _text)


def _fields(record: Record) -> dict[str, Any]:
    fields = record.model_dump(include=set(Fields.model_fields) - {"metadata"}, exclude_none=True)
    if record.metadata is not None:
        fields["metadata"] = metadata_text(record.metadata)
    if record.status == "active":
        del fields["status"]
    # Zeros and empty lists are what a reader takes absence for.
    return {name: fields[name] for name in Fields.model_fields if fields.get(name) or name == "seq"}


def _load(text: bytes) -> dict[str, Any] | None:
    """A YAML mapping, or None; aliases and deep nesting could grow without bound and count as none."""
    depth = 0
    events = cast("Callable[..., Iterator[object]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType] no types
    try:
        for event in events(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if isinstance(event, yaml.AliasEvent) or depth > MAX_DEPTH:
                return None
        loaded: object = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", loaded) if isinstance(loaded, dict) else None


def _json(value: object) -> Any:
    """A YAML value as JSON: dates and other kinds as their text."""
    if isinstance(value, dict):
        return {str(name): _json(item) for name, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple | set):
        return [_json(item) for item in cast("list[object]", value)]
    if value is None or isinstance(value, str | bool | int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)
