"""What a tier in memory holds: records by id, order, key and alias, and the graves of those that left."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Literal

from a2m_protocol.types import Record
from a2m_server.values import Buried, Deleted, Named, Tombstone

Bucket = tuple[str | None, str | None]
Address = tuple[str | None, str]


@dataclass(slots=True)
class Ledger:
    """Indexes that are kept in step; every method is synchronous and leaves them consistent.

    `dug` says when each grave was put, oldest first. `latest` has the last `seq` of a session, and may lack
    one that is not above `last`. `elsewhere` is for good: without its mark, a session would be shown without
    what lies in other tiers.
    """

    records: dict[str, Record] = field(default_factory=dict[str, Record])
    order: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    keys: dict[Address, str] = field(default_factory=dict[Address, str])
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    graves: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    dug: dict[str, int] = field(default_factory=dict[str, int])
    last: int = 0
    latest: dict[Bucket, int] = field(default_factory=dict[Bucket, int])
    elsewhere: set[Bucket] = field(default_factory=set[Bucket])

    def held(self, record_id: str, owner: str | None) -> Record | None:
        """The live record of an id, or the one that an alias of the same owner stands for."""
        record = self.records.get(record_id)
        if record is None and record_id in self.aliases:
            record = self.records[self.aliases[record_id]]
            return record if record.owner == owner else None
        return record

    def moved(self, record_id: str) -> Tombstone | None:
        """The grave that says that a record lives in another tier."""
        grave = self.graves.get(record_id)
        return grave if grave is not None and grave.reason == "moved" else None

    def next_seq(self, now: int, bucket: Bucket, grave: Tombstone | None) -> int:
        """The `seq` of a record that is written now: above all that was, and above its session and grave.

        What a transfer brings, from the future say, raises its own session alone.
        """
        self.last = max(now, self.last + 1)
        return max(self.last, self.latest.get(bucket, 0) + 1, grave.seq + 1 if grave else 0)

    def after(self, position: tuple[int, str] | None) -> Iterator[Record]:
        """Records by `seq` then id, beyond a position."""
        start = 0 if position is None else bisect_right(self.order, position)
        for _, record_id in self.order[start:]:
            yield self.records[record_id]

    def keep(self, record: Record) -> Record:
        """Hold a record, new or changed; its grave goes."""
        if record.id not in self.records:
            insort(self.order, (record.seq, record.id))
            self._fill(record.id)
        self.records[record.id] = record
        if record.key is not None:
            self.keys[record.owner, record.key] = record.id
        for alias in record.aliases:
            self.aliases[alias] = record.id
        bucket = (record.owner, record.session)
        self.latest[bucket] = max(self.latest.get(bucket, record.seq), record.seq)
        return record

    def remove(self, record: Record) -> None:
        del self.records[record.id]
        del self.order[bisect_left(self.order, (record.seq, record.id))]
        if record.key is not None:
            self.keys.pop((record.owner, record.key), None)
        for alias in record.aliases:
            self.aliases.pop(alias, None)

    def end(
        self, record: Record, reason: Literal["forgotten", "moved"], target: str | None, now: int
    ) -> None:
        """Remove a record and leave its grave; `moved` marks its session."""
        self.remove(record)
        moved = reason == "moved"
        if moved:
            self.elsewhere.add((record.owner, record.session))
        grave = Tombstone(
            id=record.id,
            reason=reason,
            seq=max(now, record.seq),
            owner=record.owner,
            key=record.key,
            session=record.session,
            target=target,
            moves=record.moves + 1 if moved else record.moves,
        )
        self._dig(grave, now)

    def bury(self, grave: Tombstone, now: int) -> Buried:
        """Put a grave that somebody else dug, as `TierStore.bury` says."""
        live = self.records.get(grave.id)
        old = self.graves.get(grave.id)
        if grave.reason == "moved":
            self.elsewhere.add((grave.owner, grave.session))
            if live is not None:
                return "live"
            if old is None or _outranks(grave, old):
                self._dig(grave, now)
            return "absent" if self.graves[grave.id].reason == "moved" else "forgotten"
        if live is not None and live.seq > grave.seq:
            return "live"
        if live is not None:
            self.remove(live)
        if old is None or old.reason == "moved" or old.seq < grave.seq:
            self._dig(grave, now)
        return "absent" if live is None else "forgotten"

    def forgotten(self, limit: int, after: tuple[int, str] | None, oldest: int) -> list[Tombstone]:
        """Up to `limit` of the graves of what was forgotten at the `seq` `oldest` or later, in order."""
        found = (g for g in self.graves.values() if g.reason == "forgotten" and g.seq >= oldest)
        beyond = (g for g in found if after is None or (g.seq, g.id) > after)
        return nsmallest(limit, beyond, key=lambda grave: (grave.seq, grave.id))

    def traces(self, ids: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each of `ids` with each index that has something of it; graves apart."""
        indexes: dict[str, set[str]] = {
            "records": set(self.records),
            "order": {record_id for _, record_id in self.order},
            "keys": set(self.keys.values()),
            "aliases": {*self.aliases, *self.aliases.values()},
        }
        for record_id in dict.fromkeys(ids):
            yield from ((record_id, name) for name, held in indexes.items() if record_id in held)

    def standing(self, name: Named) -> Deleted:
        record = self.records.get(name.id)
        if record is not None:
            return "deleted" if record.etag == name.etag else "changed"
        grave = self.graves.get(name.id)
        return grave.reason if grave is not None else "absent"

    def expire(self, now: int, age: int, most: int) -> None:
        """Drop up to `most` graves that are older than `age` (in units of `seq`), and as many sessions from
        `latest` of which the clock has passed the last `seq`.
        """
        for record_id, dug in list(islice(self.dug.items(), most)):
            if now - dug <= age:
                break
            self._fill(record_id)
        for bucket, seq in list(islice(self.latest.items(), most)):
            del self.latest[bucket]
            if seq > now:
                self.latest[bucket] = seq
            else:
                # Should the clock be turned back, this still is above it.
                self.last = max(self.last, seq)

    def _dig(self, grave: Tombstone, now: int) -> None:
        self._fill(grave.id)
        self.graves[grave.id] = grave
        self.dug[grave.id] = now

    def _fill(self, record_id: str) -> None:
        self.graves.pop(record_id, None)
        self.dug.pop(record_id, None)


def _outranks(grave: Tombstone, old: Tombstone) -> bool:
    return grave.seq > old.seq if old.reason == "forgotten" else grave.moves >= old.moves
