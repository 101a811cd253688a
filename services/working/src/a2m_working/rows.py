"""Records as Redis holds them: JSON text never re-encoded, a state that scripts change, and a vector."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from a2m_protocol.clock import created_at_of, format_ms, parse_ms
from a2m_protocol.types import Draft, Provenance, Record
from a2m_server.records import MAX_ALIASES
from a2m_server.values import Judged
from a2m_working.layout import bucket_tag, encode

_BODY = {
    "content",
    "role",
    "metadata",
    "group",
    "session",
    "owner",
    "key",
    "uri",
    "media_type",
    "embedding_model",
    "provenance",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it was read: `fields` are those of `Record`, `provenance` still as JSON."""

    fields: dict[str, Any]
    vector: bytes = b""
    features: str | None = None
    terms: list[str] = field(default_factory=list[str])

    @property
    def id(self) -> str:
        return self.fields["id"]

    @property
    def seq(self) -> int:
        return self.fields["seq"]

    @property
    def etag(self) -> str:
        return self.fields["etag"]

    @property
    def content(self) -> str:
        return self.fields["content"]

    def embedding(self) -> NDArray[np.float32]:
        """The caller's vector, as it was given."""
        return np.frombuffer(self.vector, "<f4")

    def record(self, score: float | None = None) -> Record:
        fields = dict(self.fields)
        if "provenance" in fields:
            fields["provenance"] = Provenance.model_validate(fields["provenance"])
        if self.vector:
            fields["embedding"] = self.embedding().tolist()
        if self.features is not None:
            fields["features"] = self.features
        # Validated when it was written; validating every record of every replay would cost more than Redis.
        return Record.model_construct(**fields, score=score)


def row_of(parts: Sequence[bytes]) -> Row:
    """A row from what scripts return: id, JSON, state, vector, features."""
    record_id, body, state, vector, features = parts
    fields: dict[str, Any] = json.loads(body)
    etag, seq, created, revision, moves, accesses, salience, accessed, status, _, arrival, *aliases = (
        json.loads(state)
    )
    fields["id"] = record_id.decode()
    fields["etag"] = etag
    fields["seq"] = int(seq)
    fields["created_at"] = format_ms(int(created)) if created else created_at_of(int(seq))
    fields["revision"] = int(revision)
    fields["moves"] = int(moves)
    fields["access_count"] = int(accesses)
    fields["salience"] = float(salience)
    if accessed:
        fields["accessed_at"] = accessed
    fields["status"] = status
    if arrival:
        fields["arrival"] = arrival
    fields["aliases"] = aliases
    return Row(fields, vector, features.decode() if features else None)


def judged_text(row: Row, judged: Judged) -> str:
    """The JSON of a row's record with who approved of it."""
    body = {name: value for name, value in row.fields.items() if name in _BODY}
    body["provenance"] = {**(body.get("provenance") or {}), "approved": judged.approved}
    return _text(body)


def created_at(state: bytes) -> str:
    """The `created_at` in a state."""
    _, seq, created, *_ = json.loads(state)
    return format_ms(int(created)) if created else created_at_of(int(seq))


def draft_arguments(draft: Draft, *, transfer: bool) -> list[str | bytes]:
    """A draft as the scripts `write` and `transfer` take it."""
    body = draft.model_dump(include=_BODY, exclude_none=True)
    vector = b"" if draft.embedding is None else np.asarray(draft.embedding, "<f4").tobytes()
    return [
        draft.id,
        bucket_tag(draft.owner, draft.session),
        encode(draft.owner),
        encode(draft.session),
        _text(body),
        vector,
        draft.features or "",
        draft.key or "",
        json.dumps(_state(draft, transfer=transfer), ensure_ascii=False),
    ]


def _text(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _state(draft: Draft, *, transfer: bool) -> list[str]:
    salience = "" if draft.salience is None else repr(draft.salience)
    key = draft.key or ""
    if not transfer:
        return ["", "", "", "0", "0", "0", salience, "", draft.status, key, ""]
    return [
        "",
        "" if draft.seq is None else str(draft.seq),
        "" if draft.created_at is None else str(parse_ms(draft.created_at)),
        str(draft.revision),
        str(draft.moves),
        str(draft.access_count),
        salience,
        draft.accessed_at or "",
        draft.status,
        key,
        draft.arrival or "",
        *draft.aliases[-MAX_ALIASES:],
    ]
