"""On a Cluster: a record that changes its session or owner, and so its bucket and its slot."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from a2m_protocol.clock import parse_ms
from a2m_protocol.errors import unavailable
from a2m_protocol.types import Draft
from a2m_server.records import with_alias
from a2m_server.values import EVERYONE, Named, Written
from a2m_working.claims import Claim, Claims
from a2m_working.database import WHAT, Argument
from a2m_working.root import Root
from a2m_working.rows import Row, draft_arguments

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Relocation:
    """Copies a record to its new bucket, moves the claims there, then deletes the old one.

    In between the old version is still in its old session. A crash there leaves it readable until it is
    deleted or a write brings its id or key back there; until then its claim says which buckets may have it.
    """

    claims: Claims
    root: Callable[[str], Root]

    async def rewrite(self, draft: Draft, record_id: str, key: Claim, home: str) -> Written | None:
        """A draft rewrites the key of a record of another bucket; None to take the claims anew."""
        copied = await self._move(draft, record_id, key, home, lambda row: _rewritten(draft, row))
        if copied is not None and copied.outcome != "created":
            raise unavailable(WHAT, "a key could not change its session")
        return None if copied is None else Written(record_id, "replaced", copied.etag, copied.revision)

    async def adopt(self, draft: Draft, held: Claim, key: Claim | None, home: str) -> Written | None:
        """A transfer takes the place of an older version in another bucket; None to take the claims anew."""
        given = draft_arguments(draft, transfer=True)
        along = key if key is not None and key.tag == held.tag else None
        return await self._move(draft, draft.id, along, home, lambda _: given, held)

    async def _move(
        self,
        draft: Draft,
        record_id: str,
        key: Claim | None,
        home: str,
        given_of: Callable[[Row], Sequence[Argument]],
        held: Claim | None = None,
    ) -> Written | None:
        before = held.tag if held is not None else key.tag if key is not None else home
        old, new = self.root(before), self.root(home)
        copy: Written | None = None
        for _ in range(ATTEMPTS):
            rows = await old.read([record_id], whole=False)
            if not rows:
                break
            await self.claims.part(record_id, before, home)
            fresh = await _copy(new, given_of(rows[0]), record_id)
            if fresh.outcome != "created":
                await self.claims.join(record_id, before, home)
                return fresh
            if copy is None and not await self._lock(draft, key, home, held):
                await new.remove([Named(record_id, fresh.etag)], "undo", None, whole=True)
                await self.claims.join(record_id, before, home)
                return None
            copy = fresh
            aliases: list[str] = rows[0].fields["aliases"]
            # An id that was forgotten and then rewrote a key has both an alias and a tombstone.
            await new.bury(await old.tombstones(aliases))
            await self._move_ids([record_id, *aliases], before, home)
            await old.unbury(aliases)
            gone = await old.remove([Named(record_id, rows[0].etag)], "undo", None, whole=True)
            if gone[record_id] == "deleted":
                break
            # It changed meanwhile: copy it again, unless the copy was already used.
            undone = await new.remove([Named(record_id, copy.etag)], "undo", None, whole=True)
            if undone[record_id] != "deleted":
                await old.remove([Named(record_id, "")], "undo", None, whole=True)
                break
        if copy is not None:
            await self.claims.join(record_id, before, home)
        return copy

    async def _lock(self, draft: Draft, key: Claim | None, home: str, held: Claim | None) -> bool:
        if held is not None and not await self.claims.move_id(draft.id, held, home):
            return False
        return key is None or await self.claims.move_key(draft.owner, draft.key or "", key, home)

    async def _move_ids(self, ids: Sequence[str], before: str, home: str) -> None:
        for record_id in ids:
            for _ in range(ATTEMPTS):
                claim = await self.claims.id(record_id)
                if claim is None or claim.tag != before:
                    break
                if await self.claims.move_id(record_id, claim, home):
                    break


async def _copy(new: Root, given: Sequence[Argument], record_id: str) -> Written:
    [copied] = await new.put_given([given], EVERYONE, transfer=True)
    if copied is not None and copied.reason == "exists":
        # Left by a crash: the claims say that the record is elsewhere.
        await new.remove([Named(record_id, "")], "undo", None, whole=True)
        [copied] = await new.put_given([given], EVERYONE, transfer=True)
    if copied is None:
        raise unavailable(WHAT, "a record could not change its session")
    return copied


def _rewritten(draft: Draft, row: Row) -> list[Argument]:
    """The record at a key as a draft rewrites it, as the script `transfer` takes it."""
    given: list[Argument] = [*draft_arguments(draft, transfer=False)]
    fields = row.fields
    aliases = with_alias(fields["aliases"], draft.id)
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
        fields.get("arrival", ""),
        *aliases,
    ]
    given[0], given[8] = row.id, json.dumps(state, ensure_ascii=False)
    return given
