"""What is kept of an id, as a point: the record as JSON text, and beside it what the filters look at."""

from __future__ import annotations

import array
import base64
import json
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from a2m_protocol.clock import parse_ms
from a2m_protocol.types import FIELDS, Record, facts_of
from a2m_retrieval.metric import Metric
from a2m_retrieval.text import index_terms, index_words, said
from a2m_semantic import tokens
from a2m_semantic.engine import Payload, Point, Stored, point_id
from a2m_semantic.lexical import document_terms
from a2m_server.records import weight
from a2m_server.values import Tombstone

LIVE = ("active", "pending", "superseded", "archived")
GRAVE = "grave"
ARRIVED = "arrived"
BLANK = "blank"
FORM = "form2"
"""What a point has whose fields are as they are now put in; it changes when more is put in of a record."""

FILTERED = frozenset(name for names in FIELDS.values() for name in names) - {"metadata", "embedding", "tier"}
NUMBER_FIELDS = {
    "salience": "salience",
    "access_count": "access_count",
    "revision": "revision",
    "created_at": "created_ms",
    "accessed_at": "accessed_ms",
}
BRIEF = ("id", "record")
WHOLE = (*BRIEF, "embedding", "features", "grave", "grave_ms", "buried", "version")

KEYWORDS = (
    "state",
    "owner",
    "address",
    "paths",
    "words",
    "tokens",
    "aliases",
    "origin",
    "mark",
)
INTEGERS = ("seq", "created_ms", "accessed_ms", "access_count", "revision", "grave_ms")
FLOATS = ("salience",)
"""Payload fields that are indexed, by type."""

NUMBERS_ARRAY = "numbers"
NUMBER_KEY = f"{NUMBERS_ARRAY}[].key"
NUMBER_HIGH = f"{NUMBERS_ARRAY}[].high"
"""The metadata's numbers, each an object, and the paths that are indexed object by object."""


@dataclass(frozen=True, slots=True)
class Held:
    """All that is kept under one id: a live record, or the tombstone of one that left, or neither.

    `buried` is the `seq` of the last forgetting. It outlives the tombstone when the id is written anew, so
    that a late transfer of what was forgotten is told from the new record. `grave_ms` is when the tombstone
    was put. `version` names the point as it was read.
    """

    id: str
    record: Record | None = None
    grave: Tombstone | None = None
    grave_ms: int = 0
    buried: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """How vectors and terms are put in: the metric, and the mean length that BM25 takes for granted."""

    metric: Metric
    mean_length: float


def owner_token(owner: str | None) -> str:
    return "-" if owner is None else f"={owner}"


def owner_of(token: str) -> str | None:
    return token[1:] if token.startswith("=") else None


def origin_token(model: str | None) -> str:
    return "-" if model is None else f"={model}"


def address_token(owner: str | None, key: str) -> str:
    """One keyword for the place of a fact, which is unique per owner."""
    return json.dumps([owner, key], ensure_ascii=False)


def key_paths(key: str) -> list[str]:
    """The key and everything that it is beneath."""
    return [key[:at] for at, character in enumerate(key) if character == "/" and at] + [key]


def encode(held: Held, space: Space) -> Point:
    """The point that keeps `held`, under a new version; a tombstone's holds nothing else."""
    payload: Payload = {"id": held.id, "version": uuid.uuid4().hex}
    point = point_id("record", held.id)
    if held.buried is not None:
        payload["buried"] = held.buried
    if held.grave is not None:
        payload |= _grave_payload(held.grave) | {"grave_ms": held.grave_ms}
    if held.record is None:
        return Point(point, payload)
    words = index_words(held.record.content)
    terms = index_terms(said(held.record.content, held.record.metadata))
    payload |= _record_payload(held.record) | {"words": list(dict.fromkeys(words))}
    return Point(
        point,
        payload,
        dense=None if held.record.embedding is None else scaled(held.record.embedding, space.metric),
        terms=document_terms(terms, space.mean_length),
    )


def decode(stored: Stored) -> Held:
    """All that a point keeps, from its `WHOLE` payload."""
    payload = stored.payload
    return Held(
        id=payload["id"],
        record=_record(payload) if "record" in payload else None,
        grave=grave_of(stored) if "grave" in payload else None,
        grave_ms=payload.get("grave_ms", 0),
        buried=payload.get("buried"),
        version=payload.get("version"),
    )


def grave_of(stored: Stored) -> Tombstone:
    """The tombstone of a point that a filter on tombstones found."""
    return Tombstone(**json.loads(stored.payload["grave"]))


def record_of(stored: Stored) -> Record:
    """The live record of a point that a filter on live records found, with what was read of it."""
    return _record(stored.payload)


def scaled(vector: Sequence[float], metric: Metric) -> list[float]:
    """A vector as it is indexed: made of unit length for cosine in double precision."""
    if metric != "cosine":
        return list(vector)
    length = math.hypot(*vector)
    return [x / length for x in vector] if length else list(vector)


def _record_payload(record: Record) -> Payload:
    kept = record.model_dump(exclude={"embedding", "features", "score", "tier"}, exclude_none=True)
    payload: Payload = {
        "record": json.dumps(kept, ensure_ascii=False, separators=(",", ":")),
        "state": record.status,
        "seq": record.seq,
        "owner": owner_token(record.owner),
        "salience": record.salience,
        "access_count": record.access_count,
        "revision": record.revision,
        "created_ms": parse_ms(record.created_at),
        "origin": origin_token(None if record.embedding is None else record.embedding_model),
    }
    if record.accessed_at is not None:
        payload["accessed_ms"] = parse_ms(record.accessed_at)
    if record.session is not None:
        payload["session"] = record.session
    if record.key is not None:
        payload["address"] = address_token(record.owner, record.key)
        payload["paths"] = key_paths(record.key)
    if record.aliases:
        payload["aliases"] = record.aliases
    if record.features is not None:
        payload["features"] = record.features
    if record.embedding is not None:
        packed = array.array("f", record.embedding)
        payload["embedding"] = base64.b64encode(packed.tobytes()).decode()
    own = {name: getattr(record, name) for name in sorted(FILTERED)}
    facts = facts_of(record.metadata, record.provenance)
    payload["tokens"] = tokens.tokens(own, metadata=False) + tokens.tokens(facts, metadata=True)
    if record.arrival is not None:
        payload["tokens"].append(ARRIVED)
    else:
        payload["bytes"] = weight(record)
    if not record.content.strip():
        payload["tokens"].append(BLANK)
    payload["tokens"].append(FORM)
    numbers = tokens.numbers(facts) + tokens.strings(facts)
    if numbers:
        payload[NUMBERS_ARRAY] = numbers
    return payload


def _grave_payload(grave: Tombstone) -> Payload:
    fields = {name: getattr(grave, name) for name in Tombstone.__dataclass_fields__}
    payload: Payload = {
        "grave": json.dumps(fields, ensure_ascii=False, separators=(",", ":")),
        "state": GRAVE,
    }
    if grave.reason == "forgotten":
        # By which they are listed; a tombstone of a move has none.
        payload["seq"] = grave.seq
    return payload


def _record(payload: Payload) -> Record:
    fields = json.loads(payload["record"])
    if "features" in payload:
        fields["features"] = payload["features"]
    if "embedding" in payload:
        packed = array.array("f")
        packed.frombytes(base64.b64decode(payload["embedding"]))
        fields["embedding"] = packed.tolist()
    return Record.model_validate(fields)
