"""What drafts become, alike in every store that holds whole records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a2m_protocol.types import Draft, Provenance, Record, metadata_text
from a2m_server.values import Judged

MAX_ALIASES = 64

_NAMES = ("id", "role", "group", "session", "owner", "key", "media_type")


def record_of(draft: Draft, seq: int, created_at: str, etag: str) -> Record:
    """A draft as a new record."""
    given = draft.model_dump(exclude={"chosen", "salience", "seq", "created_at", "tier"})
    salience = 1.0 if draft.salience is None else draft.salience
    assigned = {"salience": salience, "seq": seq, "created_at": created_at, "etag": etag}
    return Record.model_validate(given | assigned)


def rewritten(old: Record, draft: Draft, etag: str) -> Record:
    """The record at a key as a draft rewrites it: the draft's, but for what the record is and counts."""
    return record_of(draft, old.seq, old.created_at, etag).model_copy(
        update={
            "id": old.id,
            "salience": old.salience if draft.salience is None else draft.salience,
            "revision": old.revision + 1,
            "moves": old.moves,
            "access_count": old.access_count,
            "accessed_at": old.accessed_at,
            "arrival": old.arrival,
            "aliases": with_alias(old.aliases, draft.id),
        }
    )


def judgement(record: Record, judged: Judged) -> dict[str, object]:
    """The fields of a record that a decision changes."""
    if judged.approved is None:
        return {"status": judged.status}
    origin = record.provenance or Provenance()
    return {
        "status": judged.status,
        "provenance": origin.model_copy(update={"approved": judged.approved}),
    }


def with_alias(aliases: Sequence[str], record_id: str) -> list[str]:
    """Aliases with one more at their end, where it may have been before; the last ones are kept."""
    return [*(alias for alias in aliases if alias != record_id), record_id][-MAX_ALIASES:]


def beneath(key: str | None, prefix: str) -> bool:
    """Whether a key is `prefix` or lies beneath it."""
    return key is not None and (key == prefix or key.startswith(prefix + "/"))


def is_callers(record: Draft | Record) -> bool:
    """Whether a record has a caller's own vector, which no model may touch."""
    return record.embedding is not None and record.embedding_model is None


def lacks(record: Draft | Record, model: str) -> bool:
    """Whether a record has content and no vector of a model, as `Filter.without` says."""
    if not record.content.strip() or is_callers(record):
        return False
    return record.embedding is None or (model != "" and record.embedding_model != model)


def weight(record: Draft | Record) -> int:
    """The bytes that a record counts for: its text in UTF-8, metadata and provenance as JSON, and its names.

    A vector that the caller gave is four bytes a number; what models made counts nothing.
    """
    texts = [record.content, record.uri or "", *(getattr(record, name) or "" for name in _NAMES)]
    if record.metadata is not None:
        texts.append(metadata_text(record.metadata))
    if record.provenance is not None:
        texts.append(record.provenance.model_dump_json(exclude_none=True))
    vector = record.embedding if is_callers(record) else None
    return sum(len(text.encode()) for text in texts) + 4 * len(vector or ())


def in_order_of_keys(records: Iterable[Record]) -> list[Record]:
    """Facts ascending by key; of one key somebody's own before a pooled one, then in the order of writing."""
    return sorted(records, key=lambda r: (r.key or "", r.owner is None, r.owner or "", r.seq, r.id))
