"""What a write makes of the ids that it touches: pure decisions over what was loaded of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace

from a2m_protocol.clock import SEQ_PER_MS, created_at_of
from a2m_protocol.errors import scope_denied
from a2m_protocol.types import Draft, Record
from a2m_semantic.points import Held
from a2m_server.records import is_callers, judgement, record_of, rewritten
from a2m_server.values import Buried, Deleted, Judged, Named, Reason, Scope, Seen, Tombstone, Written

Bucket = tuple[str | None, str | None]


class Batch:
    """One write's working set; afterwards `changed` is what to store, in one operation.

    It must be loaded with all that is held of the ids, keys and aliases that the write names. `now` is the
    clock in microseconds, the unit of `seq`; `last` is the highest `seq` in the store.
    """

    def __init__(self, held: Iterable[Held], now: int, last: int = 0) -> None:
        self._held = {one.id: one for one in held}
        self._now = now
        self._keys: dict[tuple[str | None, str], str] = {}
        self._aliases: dict[tuple[str | None, str], str] = {}
        self._changed: dict[str, None] = {}
        self.last = last
        self.marks: set[Bucket] = set()
        self.expected = frozenset(one.version for one in self._held.values() if one.version is not None)
        for one in self._held.values():
            self._index(one.record)

    @property
    def changed(self) -> list[Held]:
        return [self._held[one] for one in self._changed]

    def check_scope(self, drafts: Iterable[Draft], scope: Scope) -> None:
        """Raise -32005 if an id is one that `scope` may not see."""
        for draft in drafts:
            standing = self._live(draft) or self._moved(draft.id)
            if standing is not None and not scope.sees(standing.owner):
                raise scope_denied(f"the id {draft.id!r} is taken: choose another")

    def write(self, draft: Draft) -> Written:
        live = self._live(draft)
        if live is not None:
            kept = self._change(live)
            return Written(kept.id, "existing", kept.etag, kept.revision)
        grave = self._of(draft.id).grave
        if grave is not None and grave.reason == "moved":
            return Written(draft.id, "moved", tier=grave.target)
        occupant = None if draft.key is None else self._keys.get((draft.owner, draft.key))
        if occupant is not None:
            return self._rewrite(self._record(occupant), draft)
        seq = max(self._now, self.last + 1, grave.seq + 1 if grave is not None else 0)
        record = self._keep(record_of(draft, seq, created_at_of(seq), _etag()))
        return Written(record.id, "created", record.etag)

    def transfer(self, draft: Draft) -> Written:
        """Write a draft that has a `seq` as it is, unless it gives way (`TierStore.transfer`)."""
        seq = draft.seq or 0
        held = self._of(draft.id)
        if held.buried is not None and seq <= held.buried:
            return Written(draft.id, "refused", reason="forgotten")
        grave = held.grave
        if grave is not None and grave.reason == "moved" and grave.moves >= draft.moves:
            return Written(draft.id, "refused", reason="moved", tier=grave.target)
        live = self._live(draft)
        if live is not None and (live.id != draft.id or live.moves >= draft.moves):
            return Written(live.id, "refused", live.etag, live.revision, reason="exists")
        occupant = None if draft.key is None else self._keys.get((draft.owner, draft.key))
        if occupant is not None and occupant != draft.id:
            return Written(draft.id, "refused", reason="key")
        created_at = draft.created_at or created_at_of(seq)
        record = self._keep(record_of(draft, seq, created_at, _etag()))
        return Written(record.id, "created", record.etag, record.revision)

    def touch(self, record_id: str, times: int, at: str) -> None:
        record = self._of(record_id).record
        if record is not None:
            self._change(record, access_count=record.access_count + times, accessed_at=at)

    def reinforce(self, record_id: str, amount: float, scope: Scope) -> bool:
        record = self._of(record_id).record
        if record is None or not scope.sees(record.owner):
            return False
        self._change(record, salience=record.salience + amount)
        return True

    def takes(self, one: Seen) -> bool:
        """Whether a record is still what a model saw, and has no vector of a caller."""
        record = self._of(one.id).record
        return record is not None and record.etag == one.etag and not is_callers(record)

    def embed(self, one: Seen) -> None:
        """Keep what a model saw in a live record (`SearchingStore.embed`)."""
        update = {"embedding": [*one.embedding], "embedding_model": one.embedding_model}
        self._change(self._record(one.id), **update, features=one.features)

    def clear(self) -> None:
        """Take what models made from every record that was loaded."""
        for held in [*self._held.values()]:
            if held.record is not None:
                self._change(held.record, embedding=None, embedding_model=None, features=None)

    def settle(self, name: Named) -> None:
        """Clear the `arrival` of a record that still has its etag, which stays."""
        record = self._of(name.id).record
        if record is not None and record.etag == name.etag:
            self._keep(record.model_copy(update={"arrival": None}))

    def judge(self, judged: Judged) -> bool:
        """Set the status of a record that still has its etag; whether it has."""
        record = self._of(judged.id).record
        if record is None or record.etag != judged.etag:
            return False
        self._change(record, **judgement(record, judged))
        return True

    def standing(self, name: Named) -> Deleted:
        held = self._of(name.id)
        if held.record is not None:
            return "deleted" if held.record.etag == name.etag else "changed"
        return "absent" if held.grave is None else held.grave.reason

    def end(self, record_id: str, reason: Reason, target: str | None = None) -> None:
        """Remove a live record and leave what `reason` asks for."""
        held = self._of(record_id)
        record = self._record(record_id)
        if reason == "undo":
            self._put(replace(held, record=None))
            return
        grave = Tombstone(
            id=record.id,
            reason=reason,
            seq=max(self._now, record.seq),
            owner=record.owner,
            key=record.key,
            session=record.session,
            target=target,
            moves=record.moves + 1 if reason == "moved" else record.moves,
        )
        self._entomb(held, grave)
        if reason == "moved":
            self.marks.add((record.owner, record.session))

    def renew(self) -> None:
        """Put in anew all that was loaded, as it is."""
        self._changed |= dict.fromkeys(self._held)

    def bury(self, grave: Tombstone) -> Buried:
        """Put a tombstone that somebody else made (`TierStore.bury`)."""
        held = self._of(grave.id)
        live, old = held.record, held.grave
        if grave.reason == "moved":
            self.marks.add((grave.owner, grave.session))
            if live is not None:
                return "live"
            if old is None or _outranks(grave, old):
                self._entomb(held, grave)
            standing = self._of(grave.id).grave
            return "forgotten" if standing is not None and standing.reason == "forgotten" else "absent"
        if live is not None and live.seq > grave.seq:
            self._put(replace(held, buried=max(grave.seq, held.buried or grave.seq)))
            return "live"
        if live is not None or old is None or old.reason == "moved" or old.seq < grave.seq:
            self._entomb(held, grave)
        return "absent" if live is None else "forgotten"

    def _rewrite(self, old: Record, draft: Draft) -> Written:
        kept = rewritten(old, draft, _etag())
        self._keep(kept)
        return Written(kept.id, "replaced", kept.etag, kept.revision)

    def _live(self, draft: Draft) -> Record | None:
        """The live record of a draft's id, or the one that the id is an alias of."""
        record = self._of(draft.id).record
        alias = self._aliases.get((draft.owner, draft.id))
        return record if record is not None or alias is None else self._record(alias)

    def _moved(self, record_id: str) -> Tombstone | None:
        grave = self._of(record_id).grave
        return grave if grave is not None and grave.reason == "moved" else None

    def _of(self, record_id: str) -> Held:
        return self._held.get(record_id) or Held(record_id)

    def _record(self, record_id: str) -> Record:
        record = self._held[record_id].record
        assert record is not None, "keys and aliases lead to live records"  # noqa: S101 an invariant of `_index`
        return record

    def _change(self, record: Record, **update: object) -> Record:
        return self._keep(record.model_copy(update={**update, "etag": _etag()}))

    def _keep(self, record: Record) -> Record:
        self._put(replace(self._of(record.id), record=record, grave=None, grave_ms=0))
        self.last = max(self.last, record.seq)
        return record

    def _entomb(self, held: Held, grave: Tombstone) -> None:
        buried = held.buried
        if grave.reason == "forgotten":
            buried = grave.seq if buried is None else max(buried, grave.seq)
        self._put(replace(held, record=None, grave=grave, grave_ms=self._now // SEQ_PER_MS, buried=buried))

    def _put(self, held: Held) -> None:
        before = self._of(held.id).record
        if before is not None:
            if before.key is not None:
                self._keys.pop((before.owner, before.key), None)
            for alias in before.aliases:
                self._aliases.pop((before.owner, alias), None)
        self._held[held.id] = held
        self._changed[held.id] = None
        self._index(held.record)

    def _index(self, record: Record | None) -> None:
        if record is not None:
            if record.key is not None:
                self._keys[record.owner, record.key] = record.id
            for alias in record.aliases:
                self._aliases[record.owner, alias] = record.id


def _outranks(grave: Tombstone, old: Tombstone) -> bool:
    return grave.seq > old.seq if old.reason == "forgotten" else grave.moves >= old.moves


def _etag() -> str:
    return secrets.token_hex(8)
