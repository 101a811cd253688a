"""A tier in memory: the port's reference, and a store for a process that needs no other."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from a2m_protocol.clock import created_at_of
from a2m_protocol.errors import embedding_mismatch, scope_denied
from a2m_protocol.types import Capability, Draft, Record
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import bm25, squash
from a2m_retrieval.metric import Metric, similarity
from a2m_retrieval.text import holds, index_terms, query_terms, said
from a2m_server.ledger import Bucket, Ledger
from a2m_server.records import beneath, is_callers, judgement, lacks, record_of, rewritten, weight
from a2m_server.sequence import with_seq
from a2m_server.values import (
    EVERYONE,
    Buried,
    Deleted,
    Entry,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Judged,
    Named,
    Page,
    Reason,
    Remnant,
    Scope,
    Search,
    Seen,
    SessionInfo,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)

EXTENSIONS = frozenset(
    {"transfer", "forget_if", "tombstones", "list", "touch", "arrivals", "verify", "held", "judge"}
)
SEARCHING = EXTENSIONS | {"embed"}
"""Those of a tier that keeps vectors made after a record was written."""
TIER_CAPABILITIES = frozenset(set(Capability) - {Capability.TIERS})

DAY = 86_400_000_000
"""Microseconds."""
STEP = 64
"""Old tombstones that one call removes beyond as many as it may add."""


class MemoryTier:
    """A `SearchingStore` whose records live as long as the object; `clock` gives microseconds since 1970.

    Tombstones older than `tombstone_days` go, a few with each write.
    """

    def __init__(
        self,
        name: str = "memory",
        kind: str | None = None,
        *,
        metric: Metric = "cosine",
        dimensions: int | None = None,
        tombstone_days: float = 30.0,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._name = name
        self._kind = kind
        self._metric: Metric = metric
        self._clock = clock
        self._etags = itertools.count(1)
        self._ledger = Ledger()
        self._age = int(tombstone_days * DAY)
        self._width = dimensions

    async def open(self) -> None:
        """Nothing to connect."""

    async def close(self) -> None:
        """Nothing to disconnect; the records stay with the object."""

    async def ready(self) -> None:
        """Always."""

    async def info(self) -> StoreInfo:
        return StoreInfo(
            name=self._name,
            kind=self._kind,
            capabilities=TIER_CAPABILITIES,
            extensions=SEARCHING,
            dimensions=self._width,
            metric=self._metric,
            metrics=("cosine", "dot", "l2"),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        return {self._name: sum(1 for _ in self._select(Filter(scope)))}

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        self._check(drafts, scope)
        self._expire(len(drafts))
        return [self._write(draft) for draft in drafts]

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        self._check(drafts, EVERYONE)
        self._expire(len(drafts))
        return [self._transfer(draft) for draft in with_seq(drafts, self._clock())]

    async def search(self, search: Search) -> Found:
        found = [r for r in self._select(search.filter) if r.status == "active"]
        found.reverse()
        scores = self._rank(found, search)
        best = sorted(scores.items(), key=lambda pair: -pair[1])[: search.limit]
        return Found([found[at].model_copy(update={"score": score}) for at, score in best])

    async def timeline(self, page: Page) -> Found:
        found = list(self._select(page.filter))
        if page.limit is not None:
            found = found[-page.limit :]
        return Found(found, elsewhere=self._has_elsewhere(page.filter))

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:  # noqa: ARG002 always there
        found = [
            self._ledger.records[record_id]
            for (owner, held), record_id in self._ledger.keys.items()
            if held == key and scope.sees(owner)
        ]
        found = [record for record in found if record.status == "active"]
        found.sort(key=lambda r: (r.owner != scope.owner, r.owner is not None, r.seq, r.id))
        return Fetched(found[0] if found else None)

    async def forget(self, selected: Filter) -> Forgotten:
        found = list(self._select(selected))
        now = self._expire(len(found))
        for record in found:
            self._ledger.end(record, "forgotten", None, now)
        return Forgotten([record.id for record in found], owners={r.id: r.owner for r in found})

    async def sessions(self, scope: Scope) -> Sessions:
        sessions: dict[Bucket, list[Record]] = {}
        for record in self._select(Filter(scope)):
            if record.session is not None:
                sessions.setdefault((record.owner, record.session), []).append(record)
        infos = [
            SessionInfo(
                session=session,
                records=len(held),
                opened_at=held[0].created_at,
                touched_at=held[-1].created_at,
                owner=owner,
            )
            for (owner, session), held in sorted(sessions.items(), key=lambda s: (s[0][1], s[0][0] or ""))
            if session is not None
        ]
        return Sessions(infos)

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        found = list(self._select(Filter(scope, ids=tuple(ids))))
        for record in found:
            self._change(record, salience=record.salience + amount)
        return len(found)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        for record_id, times in Counter(ids).items():
            record = self._ledger.records.get(record_id)
            if record is not None:
                self._change(record, access_count=record.access_count + times, accessed_at=at)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        outcomes: dict[str, Deleted] = {name.id: self._ledger.standing(name) for name in named}
        if all(outcome == "deleted" for outcome in outcomes.values()):
            now = self._expire(len(outcomes))
            for record_id in outcomes:
                record = self._ledger.records[record_id]
                if reason == "undo":
                    self._ledger.remove(record)
                else:
                    self._ledger.end(record, reason, target, now)
        return outcomes

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return [self._ledger.graves[i] for i in dict.fromkeys(ids) if i in self._ledger.graves]

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        return self._ledger.forgotten(limit, after, self._clock() - self._age)

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        now = self._expire(len(tombstones))
        return {grave.id: self._ledger.bury(grave, now) for grave in tombstones}

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        return [
            Entry(
                id=record.id,
                seq=record.seq,
                etag=record.etag,
                owner=record.owner,
                session=record.session,
                group=record.group,
                key=record.key,
                moves=record.moves,
                access_count=record.access_count,
                accessed_at=record.accessed_at,
                salience=record.salience,
                arrival=record.arrival,
            )
            for record in itertools.islice(self._select(selected, after), limit)
        ]

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return [self._ledger.records[i] for i in dict.fromkeys(ids) if i in self._ledger.records]

    async def settle(self, named: Sequence[Named]) -> None:
        for name in named:
            record = self._ledger.records.get(name.id)
            if record is not None and record.etag == name.etag:
                self._ledger.keep(record.model_copy(update={"arrival": None}))

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        outcomes: dict[str, bool] = {}
        for one in judged:
            record = self._ledger.records.get(one.id)
            outcomes[one.id] = record is not None and record.etag == one.etag
            if record is not None and record.etag == one.etag:
                self._change(record, **judgement(record, one))
        return outcomes

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        held = {one.id: self._ledger.records.get(one.id) for one in seen}
        found = [
            one
            for one in seen
            if (record := held[one.id]) and record.etag == one.etag and not is_callers(record)
        ]
        self._make_room([len(one.embedding) for one in seen], clear=bool(found))
        for one in found:
            update = {"embedding": [*one.embedding], "embedding_model": one.embedding_model}
            self._change(self._ledger.records[one.id], **update, features=one.features)
        return dict.fromkeys(held, False) | {one.id: True for one in found}

    async def held(self, owner: str | None) -> dict[str, int]:
        records = self._ledger.records.values()
        return {self._name: sum(weight(r) for r in records if r.owner == owner and r.arrival is None)}

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        found = [Remnant(record_id, place) for record_id, place in self._ledger.traces(ids)]
        return Inspected(found, (self._name,))

    def _check(self, drafts: Sequence[Draft], scope: Scope) -> None:
        """Raise for what would refuse the batch, before any of it is written."""
        for draft in drafts:
            standing = self._ledger.held(draft.id, draft.owner) or self._ledger.moved(draft.id)
            if standing is not None and not scope.sees(standing.owner):
                raise scope_denied(f"the id {draft.id!r} is taken: choose another")
        widths = [len(draft.embedding) for draft in drafts if draft.embedding is not None]
        for width in widths:
            self._check_width(width, self._width or widths[0])
        if widths:
            self._width = widths[0]

    def _make_room(self, widths: Sequence[int], *, clear: bool) -> None:
        """Refuse vectors of a width that cannot be; where some come, what models made of another goes."""
        for width in widths:
            self._check_width(width, widths[0])
        other = bool(widths) and self._width not in (None, widths[0])
        made = [r for r in self._ledger.records.values() if r.embedding is not None] if other else []
        if any(map(is_callers, made)):
            self._check_width(widths[0], self._width or widths[0])
        if clear:
            for record in made:
                self._change(record, embedding=None, embedding_model=None, features=None)
            self._width = widths[0]

    def _write(self, draft: Draft) -> Written:
        held = self._ledger.held(draft.id, draft.owner)
        if held is not None:
            kept = self._change(held)
            return Written(kept.id, "existing", kept.etag, kept.revision)
        grave = self._ledger.graves.get(draft.id)
        if grave is not None and grave.reason == "moved":
            return Written(draft.id, "moved", tier=grave.target)
        occupant = None if draft.key is None else self._ledger.keys.get((draft.owner, draft.key))
        if occupant is not None:
            return self._rewrite(self._ledger.records[occupant], draft)
        seq = self._ledger.next_seq(self._clock(), (draft.owner, draft.session), grave)
        record = self._ledger.keep(record_of(draft, seq, created_at_of(seq), self._etag()))
        elsewhere = (record.owner, record.session) in self._ledger.elsewhere
        return Written(record.id, "created", record.etag, elsewhere=elsewhere)

    def _rewrite(self, old: Record, draft: Draft) -> Written:
        kept = rewritten(old, draft, self._etag())
        self._ledger.remove(old)
        self._ledger.keep(kept)
        return Written(kept.id, "replaced", kept.etag, kept.revision)

    def _transfer(self, draft: Draft) -> Written:
        seq = draft.seq or 0
        grave = self._ledger.graves.get(draft.id)
        if grave is not None and grave.reason == "forgotten" and seq <= grave.seq:
            return Written(draft.id, "refused", reason="forgotten")
        if grave is not None and grave.reason == "moved" and grave.moves >= draft.moves:
            return Written(draft.id, "refused", reason="moved", tier=grave.target)
        held = self._ledger.held(draft.id, draft.owner)
        if held is not None and (held.id != draft.id or held.moves >= draft.moves or held.seq > seq):
            return Written(held.id, "refused", held.etag, held.revision, reason="exists")
        if draft.key is not None:
            occupant = self._ledger.keys.get((draft.owner, draft.key))
            if occupant is not None and occupant != draft.id:
                return Written(draft.id, "refused", reason="key")
        if held is not None:
            self._ledger.remove(held)
        created_at = draft.created_at or created_at_of(seq)
        record = self._ledger.keep(record_of(draft, seq, created_at, self._etag()))
        elsewhere = (record.owner, record.session) in self._ledger.elsewhere
        return Written(record.id, "created", record.etag, record.revision, elsewhere=elsewhere)

    def _change(self, record: Record, **update: object) -> Record:
        return self._ledger.keep(record.model_copy(update={**update, "etag": self._etag()}))

    def _has_elsewhere(self, selected: Filter) -> bool:
        sessions = selected.where.only("session")
        return sessions is not None and any(
            session in sessions and selected.scope.sees(owner) for owner, session in self._ledger.elsewhere
        )

    def _select(self, selected: Filter, after: tuple[int, str] | None = None) -> Iterator[Record]:
        """Matching records, oldest first."""
        wanted = None if selected.ids is None else set(selected.ids)
        for record in self._ledger.after(after):
            if (
                selected.scope.sees(record.owner)
                and (wanted is None or record.id in wanted)
                and (record.arrival is not None or not selected.arrived)
                and (selected.statuses is None or record.status in selected.statuses)
                and (selected.key_prefix is None or beneath(record.key, selected.key_prefix))
                and selected.where.matches(record.__dict__)
                and (selected.words is None or holds(record.content, selected.words))
                and (selected.without is None or lacks(record, selected.without))
            ):
                yield record

    def _rank(self, found: Sequence[Record], search: Search) -> dict[int, float]:
        """Scores of what is worth returning, by position in `found`, which is newest first."""
        rankings: list[dict[int, float]] = []
        if search.text is not None:
            scores = bm25([index_terms(said(r.content, r.metadata)) for r in found], query_terms(search.text))
            rankings.append({at: squash(score) for at, score in enumerate(scores) if score > 0})
        if search.embedding is not None:
            query = search.embedding
            self._check_width(len(query), self._width or len(query))
            rankings.append(
                {
                    at: similarity(self._metric, query, r.embedding)
                    for at, r in enumerate(found)
                    if r.embedding is not None and r.embedding_model == search.embedding_model
                }
            )
        if not rankings:
            return {at: 1 / (1 + at) for at in range(len(found))}
        if len(rankings) == 1:
            return rankings[0]
        return reciprocal_rank_fusion([sorted(r, key=lambda at, r=r: -r[at]) for r in rankings])

    @staticmethod
    def _check_width(width: int, expected: int) -> None:
        if width != expected:
            raise embedding_mismatch(expected, width)

    def _expire(self, added: int) -> int:
        """Remove a few of the tombstones that are too old, more than the `added`; returns the time."""
        now = self._clock()
        self._ledger.expire(now, self._age, STEP + 2 * added)
        return now

    def _etag(self) -> str:
        return f"{next(self._etags):x}"
