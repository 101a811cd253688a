"""One tier's service made the same as another: what is missing is copied, what is too much removed.

Nothing is remembered on disk. What a run before this one has copied is recognised by its value, and what was
compared is known by both etags until one of them changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft, Record
from a2m_router.listing import PAGE, every_entry
from a2m_router.tiers import Member
from a2m_server.store import TierStore
from a2m_server.values import Entry, Filter, Named, Tombstone

BATCH = 100

T = TypeVar("T")
Bucket = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Pair:
    """The etags of a record and of its copy when both had the same value, and the digest of that."""

    original: str
    copy: str
    digest: bytes


class Mirror:
    """Brings `target` to what `source` is, pass by pass, while `source` may change.

    `others` are the tiers to which records of `source` have moved: what it knows of those is asked by their
    ids. With `marks`, sessions that have records there are marked at the target as well. `tick` is called
    before each batch, and may raise. `pairs` are those that a run before this one found.
    """

    def __init__(
        self,
        source: TierStore,
        target: TierStore,
        others: Sequence[Member],
        *,
        marks: bool,
        tick: Callable[[], None],
        pairs: dict[str, Pair] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._others = others
        self._marks = marks
        self._tick = tick
        self._forgotten: dict[str, int] | None = None
        self._moved: dict[str, Tombstone] = {}
        self._asked: set[tuple[str, str, int]] = set()
        self._marked: set[Bucket] = set()
        self.pairs: dict[str, Pair] = pairs or {}
        self.records = 0
        self.copied = 0
        self.passes = 0
        self.left = 0
        self.refused: dict[str, str] = {}

    @property
    def tombstones(self) -> int:
        """How many the target was given or had already."""
        return len(self._forgotten or {}) + len(self._moved)

    @property
    def digest(self) -> str:
        """A digest of all pairs in the order of their ids, as both sides gave it."""
        whole = hashlib.sha256()
        for record_id in sorted(self.pairs):
            whole.update(record_id.encode() + b"\0" + self.pairs[record_id].digest)
        return whole.hexdigest()

    async def once(self) -> int:
        """One pass over everything; how much was found to differ, or was not compared yet.

        What changes at the source during a pass is for the next one. Where nothing does and `left` is 0 at
        the end, all is the same.
        """
        self.passes += 1
        self.left = 0
        self.refused = {}
        here, there = await asyncio.gather(self._listed(self._source), self._listed(self._target))
        self.records = len(here)
        self.pairs = {
            i: pair
            for i, pair in self.pairs.items()
            if i in here and i in there and (here[i].etag, there[i].etag) == (pair.original, pair.copy)
        }
        doomed = [Named(entry.id, entry.etag) for i, entry in there.items() if i not in here]
        await self._remove(doomed)
        wanted = [i for i in here if i not in self.pairs]
        # All that is stale goes first: it may hold a key or an alias that another record has by now.
        for ids in _parts([i for i in wanted if i in there], BATCH):
            self._tick()
            await self._compare(ids)
        for ids in _parts([i for i in wanted if i not in self.pairs], BATCH):
            self._tick()
            await self._copy(ids)
        found = len(doomed) + len(wanted) + await self._bury_forgotten() + await self._bury_moved(here)
        self.left += len(here) - len(self.pairs)
        return found

    async def strays(self, store: TierStore) -> int:
        """How many records of what was the source are not as they were when all was the same."""
        here = await self._listed(store)
        same = sum(i in self.pairs and self.pairs[i].original == entry.etag for i, entry in here.items())
        return len(here) + len(self.pairs) - 2 * same

    async def _listed(self, store: TierStore) -> dict[str, Entry]:
        self._tick()
        return {entry.id: entry for entry in await every_entry(store, Filter())}

    async def _compare(self, ids: Sequence[str]) -> None:
        """Note which copies are true ones, and remove those that are not."""
        originals = {record.id: record for record in await self._source.read(ids)}
        copies = await self._target.read(ids)
        stale = [copy for copy in copies if not self._note(originals.get(copy.id), copy)]
        await self._remove([Named(copy.id, copy.etag) for copy in stale])

    async def _copy(self, ids: Sequence[str]) -> None:
        originals = {record.id: record for record in await self._source.read(ids)}
        drafts = [_draft(record) for record in originals.values()]
        if not drafts:
            return
        written = await self._target.transfer(drafts)
        refused = {wrote.id: wrote.reason for wrote in written if wrote.outcome == "refused"}
        gone = [draft for draft in drafts if refused.get(draft.id) == "moved"]
        if gone:
            # It left the source, was forgotten and written anew, all since the pass before.
            graves = [Tombstone(d.id, "forgotten", (d.seq or 0) - 1, owner=d.owner) for d in gone]
            await self._target.bury(graves)
            await self._target.transfer(gone)
        self.copied += len(drafts)
        copies = await self._target.read([*originals])
        same = {copy.id for copy in copies if self._note(originals[copy.id], copy)}
        untrue = originals.keys() - same
        self.refused |= {i: refused.get(i, "it does not give it back as it was") for i in untrue}

    def _note(self, original: Record | None, copy: Record) -> bool:
        """Whether a copy has the value of its original, which is remembered then."""
        if original is None:
            return False
        digest = _digest(original)
        if digest != _digest(copy):
            return False
        self.pairs[original.id] = Pair(original.etag, copy.etag, digest)
        return True

    async def _remove(self, named: Sequence[Named]) -> None:
        """Take copies back, without tombstones."""
        for names in _parts(named, BATCH):
            self._tick()
            outcomes = await self._target.delete_if(names, "undo", None)
            if any(outcome == "changed" for outcome in outcomes.values()):
                raise A2MError(Code.INTERNAL, "somebody else writes to the new service: nothing may, yet")

    async def _bury_forgotten(self) -> int:
        """Put what the source knows to be forgotten; how many were not there."""
        if self._forgotten is None:
            self._forgotten = {grave.id: grave.seq for grave in await self._graves(self._target)}
        graves = await self._graves(self._source)
        wanted = [grave for grave in graves if self._forgotten.get(grave.id) != grave.seq]
        for part in _parts(wanted, PAGE):
            outcomes = await self._target.bury(part)
            put = [grave for grave in part if outcomes[grave.id] != "live"]
            self._forgotten |= {grave.id: grave.seq for grave in put}
            self.left += len(part) - len(put)
        return len(wanted)

    async def _graves(self, store: TierStore) -> list[Tombstone]:
        graves: list[Tombstone] = []
        after: tuple[int, str] | None = None
        while True:
            self._tick()
            page = await store.graves(PAGE, after)
            graves += page
            if len(page) < PAGE:
                return graves
            after = (page[-1].seq, page[-1].id)

    async def _bury_moved(self, here: dict[str, Entry]) -> int:
        """Put what the source knows of records that left it, and mark their sessions; how many were new."""
        found = 0
        for member in self._others:
            entries = [e for e in await every_entry(member.store, Filter()) if e.id not in here]
            wanted = {e.id: e for e in entries if (e.id, member.name, e.moves) not in self._asked}
            for ids in _parts([*wanted], PAGE):
                self._tick()
                # Of what has none yet, it is asked again: it may be on its way.
                graves = [g for g in await self._source.tombstones(ids) if g.reason == "moved"]
                fresh = [grave for grave in graves if self._moved.get(grave.id) != grave]
                fresh += self._claims([wanted[i] for i in ids], graves, member.name)
                outcomes = await self._target.bury(fresh) if fresh else {}
                put = [grave for grave in graves if outcomes.get(grave.id) != "live"]
                self._moved |= {grave.id: grave for grave in put}
                self.left += len(graves) - len(put)
                self._asked |= {(grave.id, member.name, wanted[grave.id].moves) for grave in put}
                found += len(fresh)
        return found

    def _claims(self, entries: Sequence[Entry], graves: Sequence[Tombstone], tier: str) -> list[Tombstone]:
        """A tombstone for each session of which those of the source are gone by now: its mark stays."""
        if not self._marks:
            return []
        self._marked |= {(grave.owner, grave.session) for grave in graves}
        claims: list[Tombstone] = []
        for entry in entries:
            bucket = (entry.owner, entry.session)
            if entry.session is not None and bucket not in self._marked:
                self._marked.add(bucket)
                claims.append(
                    Tombstone(
                        entry.id,
                        "moved",
                        entry.seq,
                        owner=entry.owner,
                        key=entry.key,
                        session=entry.session,
                        target=tier,
                        moves=entry.moves,
                    )
                )
        return claims


_OWN = {"etag", "score", "tier"}
"""What each service gives a record itself."""


def _draft(record: Record) -> Draft:
    return Draft.model_validate(record.model_dump(exclude=_OWN, exclude_none=True))


def _digest(record: Record) -> bytes:
    """Of all that a record is; numbers that are equal but written differently differ, as 1 and 1.0 do."""
    value = record.model_dump(mode="json", exclude=_OWN, exclude_none=True)
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
