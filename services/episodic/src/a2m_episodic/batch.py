"""What a batch of drafts changes, decided over the rows that it may meet; pure.

The caller reads those rows (by id, alias and key) under locks, and applies what the batch says.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from a2m_protocol.clock import created_at_of
from a2m_protocol.errors import scope_denied
from a2m_protocol.types import Draft
from a2m_server.records import with_alias
from a2m_server.values import Scope, Tombstone, Written

Bucket = tuple[str | None, str | None]
Address = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class Held:
    """What a batch must know of a live record. `pk` is None for one that the batch creates."""

    id: str
    pk: int | None
    owner: str | None
    session: str | None
    key: str | None
    seq: int
    created_at: str
    etag: str
    salience: float
    revision: int
    moves: int
    access_count: int
    accessed_at: str | None
    arrival: str | None
    aliases: tuple[str, ...]

    @property
    def bucket(self) -> Bucket:
        return self.owner, self.session

    def numbered(self, pk: int) -> Held:
        return replace(self, pk=pk)


@dataclass(slots=True)
class Batch:
    """Rows as they stand after the drafts so far, and what has to be done to make it so.

    `kept` are the records with new content, `renewed` those with nothing new but an etag, `before` the
    buckets that rewritten ones were in.
    """

    held: dict[str, Held]
    graves: dict[str, Tombstone]
    last: dict[Bucket, int] = field(default_factory=dict[Bucket, int])
    now: int = 0
    kept: dict[str, Draft] = field(default_factory=dict[str, Draft])
    renewed: set[str] = field(default_factory=set[str])
    before: dict[str, Bucket] = field(default_factory=dict[str, Bucket])
    removed: list[Held] = field(default_factory=list[Held])
    unburied: set[str] = field(default_factory=set[str])
    _keys: dict[Address, str] = field(default_factory=dict[Address, str])
    _aliases: dict[Address, str] = field(default_factory=dict[Address, str])
    _latest: int = 0

    @classmethod
    def over(cls, rows: Iterable[Held], graves: Iterable[Tombstone]) -> Batch:
        batch = cls({}, {grave.id: grave for grave in graves})
        for row in rows:
            batch._hold(row)
        return batch

    def check(self, drafts: Sequence[Draft], scope: Scope) -> None:
        """Raise -32005 when an id belongs to an owner whom the scope does not see."""
        for draft in drafts:
            standing = self._find(draft) or self._moved(draft.id)
            if standing is not None and not scope.sees(standing.owner):
                raise scope_denied(f"the id {draft.id!r} is taken: choose another")

    def sessions(self, drafts: Sequence[Draft]) -> set[Bucket]:
        """The buckets in which the drafts may change something."""
        return {(d.owner, d.session) for d in drafts} | {h.bucket for h in self.held.values()}

    def write(self, draft: Draft) -> Written:
        found = self._find(draft)
        if found is not None:
            if found.id not in self.kept and found.id not in self.renewed:
                found = self._hold(replace(found, etag=new_etag()))
                self.renewed.add(found.id)
            return Written(found.id, "existing", found.etag, found.revision)
        grave = self.graves.get(draft.id)
        if grave is not None and grave.reason == "moved":
            return Written(draft.id, "moved", tier=grave.target)
        occupant = None if draft.key is None else self._keys.get((draft.owner, draft.key))
        if occupant is not None:
            return self._rewrite(self.held[occupant], draft)
        bucket = (draft.owner, draft.session)
        seq = max(self.now, self.last.get(bucket, 0) + 1, self._latest + 1, grave.seq + 1 if grave else 0)
        return self._create(draft, seq, created_at_of(seq))

    def transfer(self, draft: Draft) -> Written:
        """Write a draft as it is; it has a `seq`."""
        seq = draft.seq or 0
        grave = self.graves.get(draft.id)
        if grave is not None and grave.reason == "forgotten" and seq <= grave.seq:
            return Written(draft.id, "refused", reason="forgotten")
        if grave is not None and grave.reason == "moved" and grave.moves >= draft.moves:
            return Written(draft.id, "refused", reason="moved", tier=grave.target)
        found = self._find(draft)
        if found is not None and (found.id != draft.id or found.moves >= draft.moves or found.seq > seq):
            return Written(found.id, "refused", found.etag, found.revision, reason="exists")
        occupant = None if draft.key is None else self._keys.get((draft.owner, draft.key))
        if occupant is not None and occupant != draft.id:
            return Written(draft.id, "refused", reason="key")
        if found is not None:
            self._remove(found)
        return self._create(draft, seq, draft.created_at or created_at_of(seq))

    def _create(self, draft: Draft, seq: int, created_at: str) -> Written:
        salience = 1.0 if draft.salience is None else draft.salience
        made = self._hold(
            Held(
                id=draft.id,
                pk=None,
                owner=draft.owner,
                session=draft.session,
                key=draft.key,
                seq=seq,
                created_at=created_at,
                etag=new_etag(),
                salience=salience,
                revision=draft.revision,
                moves=draft.moves,
                access_count=draft.access_count,
                accessed_at=draft.accessed_at,
                arrival=draft.arrival,
                aliases=tuple(draft.aliases),
            )
        )
        self.kept[made.id] = draft
        self.renewed.discard(made.id)
        if self.graves.pop(made.id, None) is not None:
            self.unburied.add(made.id)
        self.last[made.bucket] = max(self.last.get(made.bucket, 0), seq)
        self._latest = max(self._latest, seq)
        return Written(made.id, "created", made.etag, made.revision)

    def _rewrite(self, old: Held, draft: Draft) -> Written:
        aliases = tuple(with_alias(old.aliases, draft.id))
        self._forget_names(old)
        self.before.setdefault(old.id, old.bucket)
        kept = self._hold(
            replace(
                old,
                session=draft.session,
                etag=new_etag(),
                salience=old.salience if draft.salience is None else draft.salience,
                revision=old.revision + 1,
                aliases=aliases,
            )
        )
        self.kept[kept.id] = draft
        self.renewed.discard(kept.id)
        return Written(kept.id, "replaced", kept.etag, kept.revision)

    def _find(self, draft: Draft) -> Held | None:
        """The live record of a draft's id, or the one that has it as an alias, of the same owner."""
        alias = self._aliases.get((draft.owner, draft.id))
        return self.held.get(draft.id) or (None if alias is None else self.held[alias])

    def _moved(self, record_id: str) -> Tombstone | None:
        grave = self.graves.get(record_id)
        return grave if grave is not None and grave.reason == "moved" else None

    def _hold(self, row: Held) -> Held:
        self.held[row.id] = row
        if row.key is not None:
            self._keys[row.owner, row.key] = row.id
        for alias in row.aliases:
            self._aliases[row.owner, alias] = row.id
        return row

    def _remove(self, row: Held) -> None:
        self._forget_names(row)
        del self.held[row.id]
        self.kept.pop(row.id, None)
        if row.pk is not None:
            self.removed.append(row)

    def _forget_names(self, row: Held) -> None:
        if row.key is not None:
            self._keys.pop((row.owner, row.key), None)
        for alias in row.aliases:
            self._aliases.pop((row.owner, alias), None)


def new_etag() -> str:
    return uuid.uuid4().hex


Reason = Literal["forgotten", "moved"]


def tombstone(row: Held, reason: Reason, now: int, target: str | None) -> Tombstone:
    """What stays of a deleted record."""
    moved = reason == "moved"
    return Tombstone(
        id=row.id,
        reason=reason,
        seq=max(now, row.seq),
        owner=row.owner,
        key=row.key,
        session=row.session,
        target=target,
        moves=row.moves + 1 if moved else row.moves,
    )


def outranks(grave: Tombstone, old: Tombstone | None) -> bool:
    """Whether a tombstone takes the place of an older one of its id."""
    if old is None:
        return True
    if grave.reason == "forgotten":
        return old.reason == "moved" or old.seq < grave.seq
    return grave.seq > old.seq if old.reason == "forgotten" else grave.moves >= old.moves
