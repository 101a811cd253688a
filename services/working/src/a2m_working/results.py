"""What scripts return, as the port's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from a2m_protocol.errors import A2MError, embedding_mismatch, scope_denied
from a2m_server.values import SessionInfo, Written, Wrote
from a2m_working.buckets import BucketPage
from a2m_working.layout import decode
from a2m_working.rows import created_at, row_of


def written_of(parts: Sequence[Any]) -> Written | None:
    """What became of a draft, or None for one whose claim was given to another bucket."""
    record_id, outcome, etag, revision, tier, *more = (cast("bytes", part).decode() for part in parts)
    if outcome == "retry":
        return None
    return Written(
        id=record_id,
        outcome=cast("Wrote", outcome),
        etag=etag,
        revision=int(revision),
        reason=more[0] if more else "",
        tier=tier[1:] if tier.startswith("=") else None,
        elsewhere=more[1:] == ["1"],
    )


def refusal_of(answer: Sequence[Any]) -> A2MError | None:
    """Why a batch was refused whole, if it was."""
    match answer[0]:
        case b"denied":
            return scope_denied(f"the id {answer[1].decode()!r} is taken: choose another")
        case b"width":
            return embedding_mismatch(int(answer[1]), int(answer[2]))
        case _:
            return None


def page_of(parts: Sequence[Any]) -> BucketPage:
    tag, _, elsewhere, more, seq, last, rows = parts
    return BucketPage(
        tag=tag.decode(),
        rows=[row_of(row) for row in rows],
        elsewhere=elsewhere == b"1",
        more=more == b"1",
        last=(int(seq), last.decode()) if seq else None,
    )


def session_of(parts: Sequence[Any]) -> SessionInfo | None:
    """A named session, or None for the bucket of records without one."""
    _, owner, session, records, first, last = parts
    name = decode(session)
    if name is None:
        return None
    return SessionInfo(name, int(records), created_at(first), created_at(last), decode(owner))
