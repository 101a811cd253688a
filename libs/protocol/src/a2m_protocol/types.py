"""Records on the wire: what a client writes (`Draft`) and what a store holds (`Record`)."""

from __future__ import annotations

import array
import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from a2m_protocol.clock import MAX_SEQ, format_ms, parse_ms
from a2m_protocol.errors import JsonObject, invalid_params

PROTOCOL = "a2m/0.1"

MAX_NAME = 512
MAX_URI = 8_192
MAX_CONTENT = 1_000_000
MAX_METADATA = 65_536
MAX_DEPTH = 32
MAX_WIDTH = 4_000
MAX_FEATURES = 262_144
MAX_RECORDS = 500
MAX_RECALL = 1_000


class Capability(StrEnum):
    CORE = "core"
    TIERS = "tiers"
    SALIENCE = "salience"
    SCOPES = "scopes"
    SESSIONS = "sessions"
    KEYS = "keys"
    EMBEDDINGS = "embeddings"
    EXTERNAL = "external"
    EVENTS = "events"
    SUMMARIZE = "summarize"
    PROMPT = "prompt"


FIELDS: Mapping[Capability, tuple[str, ...]] = {
    Capability.CORE: ("id", "content", "created_at", "role", "metadata", "group"),
    Capability.TIERS: ("tier",),
    Capability.SALIENCE: ("salience", "access_count", "accessed_at"),
    Capability.SCOPES: ("owner",),
    Capability.SESSIONS: ("session",),
    Capability.KEYS: ("key", "revision"),
    Capability.EMBEDDINGS: ("embedding",),
    Capability.EXTERNAL: ("uri", "media_type"),
}
"""The record fields of each capability (PROTOCOL section 1)."""

Status = Literal["active", "pending", "superseded", "archived"]
STATUSES: tuple[Status, ...] = ("active", "pending", "superseded", "archived")


def check_text(text: str) -> str:
    """`text` unless it holds what some tier cannot keep: NUL or a lone surrogate."""
    if "\x00" in text:
        raise ValueError("holds a NUL character, which no tier can keep: remove it")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("holds a lone surrogate, which is not Unicode text: remove it") from None
    return text


def _check_stamp(text: str) -> str:
    return format_ms(parse_ms(text))


def _check_json(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number that is not finite")
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            _check_json(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            check_text(key)
            _check_json(item, depth + 1)


def _check_metadata(value: dict[str, Any]) -> dict[str, Any]:
    _check_json(value, 1)
    if len(metadata_text(value)) > MAX_METADATA:
        raise ValueError(f"is longer than {MAX_METADATA} characters as JSON")
    return value


def _check_vector(value: list[float]) -> list[float]:
    rounded = float32(value)
    if not all(map(math.isfinite, rounded)):
        raise ValueError("holds a number that is not finite in 32 bits")
    return rounded


def float32(value: list[float]) -> list[float]:
    """Each number rounded to the nearest 32-bit float, which is what every tier can hold."""
    return array.array("f", value).tolist()


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """Metadata as the JSON text that stores keep; it parses back to exactly what was given."""
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))


Text = Annotated[str, AfterValidator(check_text)]
Name = Annotated[Text, Field(min_length=1, max_length=MAX_NAME)]
Stamp = Annotated[str, AfterValidator(_check_stamp)]
Vector = Annotated[list[float], Field(min_length=1, max_length=MAX_WIDTH), AfterValidator(_check_vector)]
Metadata = Annotated[dict[str, Any], AfterValidator(_check_metadata)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_SEQ)]


class Model(BaseModel):
    """Base of wire types: immutable, no coercion, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


MAX_SOURCES = 1_000

Names = Annotated[list[Name], Field(min_length=1, max_length=MAX_SOURCES)]


class Provenance(Model):
    """Where a record came from.

    `source` and the ids `derived_from` are the client's to say; who wrote it (`principal`), with what
    `authority` (the greatest of its roles), through which `method` and `client`, and when it was last written
    (`at`) is asserted by the server that took it in. So is what it has from those that it was derived from,
    which outlives them: all their sources (`origins`), and the ids that they were derived from in turn
    (`ancestors`, the nearest first). `contests` is the key of a fact that a record contradicts, and
    `approved` who found that it may be believed: a curator, or `EVIDENCE`.
    """

    source: Name | None = None
    principal: Name | None = None
    method: Name | None = None
    client: Name | None = None
    at: Stamp | None = None
    authority: Name | None = None
    contests: Name | None = None
    approved: Name | None = None
    derived_from: Names | None = None
    origins: Names | None = None
    ancestors: Names | None = None


EVIDENCE = "evidence"
"""Who approved what independent records say as well."""

PROVENANCE = {f"provenance.{name}": name for name in Provenance.model_fields}
"""The parts of a provenance, by how `where` names them."""


def facts_of(
    metadata: Mapping[str, object] | None, provenance: Provenance | Mapping[str, object] | None
) -> dict[str, object]:
    """What `where` looks at beside the fields of a record: its metadata, and the parts of its provenance.

    Metadata that goes by the name of a part does not count as one.
    """
    if isinstance(provenance, Provenance):
        provenance = provenance.model_dump(exclude_none=True)
    told = provenance or {}
    facts = {name: value for name, value in (metadata or {}).items() if name not in PROVENANCE}
    return facts | {name: told[part] for name, part in PROVENANCE.items() if part in told}


class _Fields(Model):
    content: Annotated[Text, Field(max_length=MAX_CONTENT)] = ""
    role: Name | None = None
    metadata: Metadata | None = None
    group: Name | None = None
    session: Name | None = None
    owner: Name | None = None
    key: Name | None = None
    uri: Annotated[Text, Field(min_length=1, max_length=MAX_URI)] | None = None
    media_type: Name | None = None
    tier: Name | None = None
    embedding: Vector | None = None
    embedding_model: Name | None = None
    features: Annotated[Text, Field(max_length=MAX_FEATURES)] | None = None
    arrival: Name | None = None
    provenance: Provenance | None = None
    accessed_at: Stamp | None = None


class Draft(_Fields):
    """A record as it is written, complete but for what the store assigns.

    `id` is always set (the dispatcher makes one when the client did not); `chosen` says whether the
    client chose it, so that a store may skip looking for an id that was made just now. `created_at`,
    `seq` and the counters are set in a transfer alone.
    """

    id: Name
    chosen: bool = True
    salience: Finite | None = None
    created_at: Stamp | None = None
    seq: Annotated[int, Field(ge=-MAX_SEQ, le=MAX_SEQ)] | None = None
    revision: Count = 0
    moves: Count = 0
    access_count: Count = 0
    status: Status = "active"
    aliases: list[Name] = []


class Record(_Fields):
    """A record as a store holds it.

    `seq` orders writing (microseconds, never below the last of its session), `etag` changes with every
    change, `moves` counts moves between services. `arrival` says from where a move that may not have ended
    brought it. `score` is set in recall results, `tier` by a federation.
    """

    id: Name
    created_at: str
    seq: int
    etag: str
    salience: float = 1.0
    revision: int = 0
    moves: int = 0
    access_count: int = 0
    status: Status = "active"
    aliases: list[str] = []
    score: float | None = None

    def wire(
        self, capabilities: frozenset[Capability], *, embeddings: bool = False, private: bool = False
    ) -> JsonObject:
        """The record as JSON for a client of `capabilities`.

        What does not exist is left out. `embeddings` adds the vector; `private` adds what only a router
        may see (`features`, `aliases`, `arrival`).
        """
        fields = self.model_dump(exclude_none=True, exclude=_HIDDEN)
        for capability, names in FIELDS.items():
            if capability not in capabilities:
                for name in names:
                    fields.pop(name, None)
        if "key" not in fields:
            fields.pop("revision", None)
        if not self.moves:
            del fields["moves"]
        if self.status == "active":
            del fields["status"]
        if embeddings and self.embedding is not None and Capability.EMBEDDINGS in capabilities:
            fields["embedding"] = self.embedding
            if self.embedding_model is not None:
                fields["embedding_model"] = self.embedding_model
        if private:
            if self.features is not None:
                fields["features"] = self.features
            if self.aliases:
                fields["aliases"] = [*self.aliases]
            if self.arrival is not None:
                fields["arrival"] = self.arrival
        return fields

    @classmethod
    def parse(cls, fields: Mapping[str, object]) -> Self:
        """A record from JSON; raises `A2MError` (-32602) that names the field."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise invalid_params(explain(error, "record")) from error


_HIDDEN = {"embedding", "embedding_model", "features", "aliases", "arrival"}


def explain(error: ValidationError, where: str) -> str:
    """The first failure of a pydantic validation in one sentence: where, what, and what was expected."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = where + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"{path}: {first['msg'].removeprefix('Value error, ')}"
