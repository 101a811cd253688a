"""Rows of the database as the port's values, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pgvector import Vector

from a2m_episodic.batch import Held
from a2m_episodic.terms import Analysis
from a2m_episodic.values import digest, facts
from a2m_protocol.types import Draft, Provenance, Record, facts_of, metadata_text
from a2m_server.records import lacks
from a2m_server.values import Entry, Tombstone

Row = Mapping[str, Any]
Fields = dict[str, Any]

HELD = (
    "pk",
    "id",
    "owner",
    "session",
    "key",
    "seq",
    "created_at",
    "etag",
    "salience",
    "revision",
    "moves",
    "access_count",
    "accessed_at",
    "arrival",
    "aliases",
)
ENTRY = (
    "id",
    "seq",
    "etag",
    "owner",
    "session",
    "group",
    "key",
    "moves",
    "access_count",
    "accessed_at",
    "salience",
    "arrival",
)
RECORD = (
    *HELD,
    "role",
    "group",
    "status",
    "embedding_model",
    "uri",
    "media_type",
    "provenance",
    "metadata",
    "content",
)
WHOLE = (*RECORD, "features")
STORED = (*WHOLE, "bucket", "slot", "facts", "unseen")


def columns(names: tuple[str, ...]) -> str:
    """Columns of `records r` as SQL."""
    return ", ".join(f'r."{name}"' for name in names)


def held(row: Row) -> Held:
    fields: Fields = {**row, "etag": row["etag"].hex, "aliases": tuple(row["aliases"])}
    return Held(**fields)


def entry(row: Row) -> Entry:
    fields: Fields = {**row, "etag": row["etag"].hex}
    return Entry(**fields)


def tombstone(row: Row) -> Tombstone:
    return Tombstone(**row)


def record(row: Row, score: float | None = None) -> Record:
    """A record from `RECORD` or `WHOLE` columns and, where it was asked for, its vector as `vec`."""
    fields = {name: row[name] for name in WHOLE if name != "pk" and row.get(name) is not None}
    fields["etag"] = row["etag"].hex
    if "metadata" in fields:
        fields["metadata"] = json.loads(row["metadata"])
    if "provenance" in fields:
        fields["provenance"] = Provenance.model_validate_json(row["provenance"])
    if row.get("vec") is not None:
        fields["embedding"] = row["vec"].to_list()
    # What the database holds was checked when it was written.
    return Record.model_construct(**fields, score=score)


def stored(live: Held, draft: Draft, bucket: int) -> dict[str, object]:
    """The values of `STORED` columns for a record with the content of `draft`."""
    provenance = draft.provenance
    return {
        "pk": live.pk,
        "id": live.id,
        "owner": live.owner,
        "session": live.session,
        "key": live.key,
        "seq": live.seq,
        "created_at": live.created_at,
        "etag": UUID(live.etag),
        "salience": live.salience,
        "revision": live.revision,
        "moves": live.moves,
        "access_count": live.access_count,
        "accessed_at": live.accessed_at,
        "arrival": live.arrival,
        "aliases": list(live.aliases),
        "role": draft.role,
        "group": draft.group,
        "status": draft.status,
        "embedding_model": None if draft.embedding is None else draft.embedding_model,
        "uri": draft.uri,
        "media_type": draft.media_type,
        "provenance": None if provenance is None else provenance.model_dump_json(exclude_none=True),
        "metadata": None if draft.metadata is None else metadata_text(draft.metadata),
        "content": draft.content,
        "features": draft.features,
        "bucket": bucket,
        "slot": slot(live.owner, live.key),
        "facts": facts(facts_of(draft.metadata, provenance)),
        "unseen": lacks(draft, ""),
    }


def lexical(live: Held, draft: Draft, analysis: Analysis, baked: float) -> dict[str, object]:
    return {
        "pk": live.pk,
        "seq": live.seq,
        "length": analysis.length,
        "baked": baked,
        "active": draft.status == "active",
        "owner": live.owner,
        "weights": analysis.weights,
    }


def vector(live: Held, draft: Draft, embedding: list[float]) -> dict[str, object]:
    return {
        "pk": live.pk,
        "seq": live.seq,
        "active": draft.status == "active",
        "owner": live.owner,
        "model": draft.embedding_model,
        "vec": Vector(embedding),
    }


def buried(grave: Tombstone) -> dict[str, object]:
    return {name: getattr(grave, name) for name in Tombstone.__slots__}


def slot(owner: str | None, key: str | None) -> UUID | None:
    return None if key is None else digest(owner, key)
