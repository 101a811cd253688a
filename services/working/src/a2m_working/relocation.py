"""On a Cluster: a key rewritten from another session, whose record changes its bucket and so its slot."""

from __future__ import annotations

import json
from collections.abc import Callable

from a2m_protocol.clock import parse_ms
from a2m_protocol.errors import unavailable
from a2m_protocol.types import Draft
from a2m_server.store import EVERYONE, Named, Written
from a2m_working.claims import Claim, Claims
from a2m_working.database import WHAT, Argument
from a2m_working.root import Root
from a2m_working.rows import MAX_ALIASES, Row, draft_arguments

ATTEMPTS = 5


class Relocation:
    """Copies the rewritten record to its new bucket, moves the claims there, then deletes the old one.

    In between the old version is still in its old session; a crash there leaves it until the id is forgotten.
    """

    def __init__(self, claims: Claims, root: Callable[[str], Root]) -> None:
        self._claims = claims
        self._root = root

    async def rewrite(self, draft: Draft, record_id: str, key: Claim, home: str) -> Written | None:
        """The answer to a draft, or None when its claims have to be taken anew."""
        old, new = self._root(key.tag), self._root(home)
        copy: Written | None = None
        for _ in range(ATTEMPTS):
            rows = await old.read([record_id], whole=False)
            if not rows:
                break
            fresh = await self._copy(new, draft, rows[0])
            if copy is None and not await self._claims.move_key(draft.owner, draft.key or "", key, home):
                await new.remove([Named(record_id, fresh.etag)], "undo", None, whole=True)
                return None
            copy = fresh
            await self._move_ids([record_id, *rows[0].fields["aliases"]], key.tag, home)
            gone = await old.remove([Named(record_id, rows[0].etag)], "undo", None, whole=True)
            if gone[record_id] == "deleted":
                break
            # It changed meanwhile: copy it again, unless the copy was already used.
            undone = await new.remove([Named(record_id, copy.etag)], "undo", None, whole=True)
            if undone[record_id] != "deleted":
                await old.remove([Named(record_id, "")], "undo", None, whole=True)
                break
        return copy

    async def _copy(self, new: Root, draft: Draft, row: Row) -> Written:
        given = _rewritten(draft, row)
        [copied] = await new.put_given([given], EVERYONE, transfer=True)
        if copied is not None and copied.reason == "exists":
            # Left by a crash: the claims say that the record is elsewhere.
            await new.remove([Named(row.id, "")], "undo", None, whole=True)
            [copied] = await new.put_given([given], EVERYONE, transfer=True)
        if copied is None or copied.outcome != "created":
            raise unavailable(WHAT, "a key could not change its session")
        return Written(row.id, "replaced", copied.etag, copied.revision)

    async def _move_ids(self, ids: list[str], before: str, home: str) -> None:
        for record_id in ids:
            for _ in range(ATTEMPTS):
                claim = await self._claims.id(record_id)
                if claim is None or claim.tag != before:
                    break
                if await self._claims.move_id(record_id, claim, home):
                    break


def _rewritten(draft: Draft, row: Row) -> list[Argument]:
    """The record at a key as a draft rewrites it, as the script `transfer` takes it."""
    given: list[Argument] = [*draft_arguments(draft, transfer=False)]
    fields = row.fields
    aliases = [*(alias for alias in fields["aliases"] if alias != draft.id), draft.id][-MAX_ALIASES:]
    state = [
        "",
        str(row.seq),
        str(parse_ms(fields["created_at"])),
        str(fields["revision"] + 1),
        str(fields["moves"]),
        str(fields["access_count"]),
        repr(fields["salience"] if draft.salience is None else draft.salience),
        fields.get("accessed_at", ""),
        draft.status,
        draft.key or "",
        *aliases,
    ]
    given[0], given[8] = row.id, json.dumps(state, ensure_ascii=False)
    return given
