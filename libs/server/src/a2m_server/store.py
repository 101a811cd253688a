"""The port: what every store implements, be it one database or a federation of services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import Capability, Draft, Record
from a2m_protocol.where import Condition, Op, Where


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose records a call sees and writes.

    `readable` is the set of owners it may see (None stands for pooled records), or None for everything.
    `owner` is the owner of what it writes when a record names none.
    """

    readable: frozenset[str | None] | None = None
    owner: str | None = None

    @classmethod
    def of(cls, owner: str | None) -> Scope:
        """`owner`'s own records and pooled ones."""
        return cls(frozenset({owner, None}), owner)

    def sees(self, owner: str | None) -> bool:
        return self.readable is None or owner in self.readable


EVERYONE = Scope()
POOLED = Scope(frozenset({None}))


KEYED = Condition("key", False, Op.EXISTS, (True,))
"""Holds for records that have a key."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records: everything given applies together.

    `arrived` selects only what a move brought that may not have ended (`Record.arrival` is set). `without` is
    the name of a model, and selects what has content (more than blanks) but no vector, or one of another
    model: a caller's own vector, which names no model, counts as one of it. The empty name stands for every
    model, and selects what has no vector at all.
    `words` are the `a2m_retrieval.text.query_words` that a record's content must all hold; an empty tuple
    matches nothing. `ids` likewise. `key_prefix` has no trailing slash and matches the key itself and
    what is beneath it. `tier` is set for a federation alone.
    """

    scope: Scope = EVERYONE
    where: Where = field(default_factory=Where)
    key_prefix: str | None = None
    ids: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None
    arrived: bool = False
    without: str | None = None
    tier: str | None = None

    @property
    def keyed(self) -> bool:
        """Whether it selects records that have a key alone."""
        return self.key_prefix is not None or KEYED in self.where.conditions


@dataclass(frozen=True, slots=True)
class Search:
    """A recall: `text` by words (and by meaning where the store has vectors), `embedding` by metric.

    With neither, the most recently written first. `limit` is at least 1. `vectors` asks for
    embeddings in the results, `features` for what a model kept with each record for a router to rank by, and
    `explain` for how each came to its place.
    """

    filter: Filter
    limit: int
    text: str | None = None
    embedding: Sequence[float] | None = None
    embedding_model: str | None = None
    vectors: bool = False
    features: bool = False
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A timeline: ascending by `seq` then id; `limit` takes the newest, None takes all that match."""

    filter: Filter
    limit: int | None = None
    vectors: bool = False


@dataclass(frozen=True, slots=True)
class Degraded:
    """A tier that did not answer a read, and why."""

    tier: str
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a read found; `elsewhere` says that the session has records in other tiers (working's mark).

    `ranked_by` names what put them in order, where several tiers were asked. Where that was to be explained,
    `explained` says of each id how it came to its place, `suppressed` what stands behind the others, and
    why, and `took` how many seconds each part of the work was.
    """

    records: list[Record]
    elsewhere: bool = False
    degraded: tuple[Degraded, ...] = ()
    ranked_by: str | None = None
    explained: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    suppressed: tuple[JsonObject, ...] = ()
    took: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Fetched:
    """The record at a key, or None: where a tier did not answer, none that the others hold."""

    record: Record | None
    degraded: tuple[Degraded, ...] = ()


Wrote = Literal["created", "replaced", "existing", "moved", "refused"]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one draft, in the order given.

    `created`: a new record. `replaced`: it rewrote an occupied key (`id` is the record's). `existing`: the id
    (or alias) is here already. `moved`: a tombstone says that it lives in another tier. `refused` (transfers
    alone): an equal or newer record or tombstone is here, named in `reason`. `elsewhere` says of a created
    record that its session has records in other tiers (working's mark).
    """

    id: str
    outcome: Wrote
    etag: str = ""
    revision: int = 0
    reason: str = ""
    tier: str | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A forget's receipt: the ids that were removed and, over several tiers, how many in each.

    `owners` maps each id to its owner, so that the event is shown to those alone who could see the record; of
    an id left out, only who sees everything is told (or everybody, where the call saw pooled ones alone).
    `history` says, of each tier that keeps one, how many of the ids its history still holds.
    """

    ids: list[str]
    tiers: Mapping[str, int] = field(default_factory=dict[str, int])
    owners: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    history: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class SessionInfo:
    session: str
    records: int
    opened_at: str
    touched_at: str
    owner: str | None = None
    tiers: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a store, by name."""

    sessions: list[SessionInfo]
    degraded: tuple[Degraded, ...] = ()


Reason = Literal["forgotten", "moved", "undo"]
Deleted = Literal["deleted", "changed", "moved", "forgotten", "absent"]
Buried = Literal["forgotten", "live", "absent"]


@dataclass(frozen=True, slots=True)
class Named:
    """A record as a conditional delete names it."""

    id: str
    etag: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model saw in the record of an id and etag: its vector, the model's name, and its features."""

    id: str
    etag: str
    embedding: Sequence[float]
    embedding_model: str
    features: str | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a deleted record for 30 days: never its content.

    `seq` is that of the deletion: a transfer of a record with a lower or equal `seq` is refused. `target`
    names the tier a `moved` record went to. `session` lets working mark the session as having records
    elsewhere.
    """

    id: str
    reason: Literal["forgotten", "moved"]
    seq: int
    owner: str | None = None
    key: str | None = None
    session: str | None = None
    target: str | None = None
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Remnant:
    """A place in which something of an id is kept, such as `records` or `vectors`: a tombstone is none.

    `history`: kept there by design, until it is erased. `tier` is set by a federation.
    """

    id: str
    place: str
    history: bool = False
    tier: str | None = None


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in the tiers that were `checked`; those `unverified` could not, or not all, be seen."""

    remnants: list[Remnant]
    checked: tuple[str, ...]
    unverified: tuple[Degraded, ...] = ()


Erasure = Literal["erased", "held", "absent", "live"]


@dataclass(frozen=True, slots=True)
class Erased:
    """What became of each id in the histories of the tiers that keep one.

    `erased`: a history held it and holds it no more. `absent`: none did. `live`: a record of it is there, so
    that nothing of it was erased. `held`: it would be erased, in a dry run. `tiers` says how many were erased
    in each, `remotes` which repositories, known to a tier by these names, may hold the old history.
    """

    outcomes: Mapping[str, Erasure]
    tiers: Mapping[str, int] = field(default_factory=dict[str, int])
    remotes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class Entry:
    """A record without its content, for those who plan moves."""

    id: str
    seq: int
    etag: str
    owner: str | None = None
    session: str | None = None
    group: str | None = None
    key: str | None = None
    moves: int = 0
    access_count: int = 0
    accessed_at: str | None = None
    salience: float = 1.0
    arrival: str | None = None


@dataclass(frozen=True, slots=True)
class TierInfo:
    name: str
    kind: str | None = None
    capacity: int = 0
    per_session: bool = False
    spill_to: str | None = None
    promote_to: str | None = None
    promote_after: int | None = None
    half_life: float | None = None


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is: its name, declared capabilities, our extensions, and the details of `describe`."""

    name: str
    capabilities: frozenset[Capability]
    extensions: frozenset[str] = frozenset()
    kind: str | None = None
    tiers: tuple[TierInfo, ...] = ()
    read_only: bool = False
    dimensions: int | None = None
    metric: str = "cosine"
    metrics: tuple[str, ...] = ("cosine",)
    embedding_model: str | None = None


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a reorganisation did (PROTOCOL section 3): the records that it moved, each with its owner.

    Owners are told apart so that each is shown the figures of its own records; what was `summarized` is shown
    to who sees everything.
    """

    moved: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    promoted: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    dropped: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    summarized: int = 0


@dataclass(frozen=True, slots=True)
class Embedded:
    """What a step of embedding anew did: how many records got a vector, and how many there are left."""

    embedded: int
    left: int


class MemoryStore(Protocol):
    """A store of records. Every method applies `scope` inside the database.

    Stores raise `A2MError` alone; a driver's error becomes `unavailable(...)` at one place.
    """

    async def open(self) -> None:
        """Connect and make ready (migrations, indexes); called once, before any other method."""
        ...

    async def close(self) -> None: ...

    async def ready(self) -> Sequence[Degraded] | None:
        """Return when the database answers, else raise `A2MError`; of several tiers, those that do not."""
        ...

    async def info(self) -> StoreInfo: ...

    async def counts(self, scope: Scope) -> dict[str, int]:
        """Records a tier name; a service of one tier answers with its own name."""
        ...

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        """Write all or nothing; one `Written` a draft, in order.

        An existing id of a visible owner changes nothing but its etag; of another owner it raises -32005.
        The second of two equal ids in one batch counts as existing. `seq` ascends in the order given, over
        all sessions of the batch: the clock in microseconds, never below the last of the record's bucket.
        """
        ...

    async def search(self, search: Search) -> Found: ...

    async def timeline(self, page: Page) -> Found: ...

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        """The record at `key`: the scope's own first, then a pooled one."""
        ...

    async def forget(self, selected: Filter) -> Forgotten:
        """Remove what matches, leaving `forgotten` tombstones."""
        ...

    async def sessions(self, scope: Scope) -> Sessions:
        """Named sessions with at least one record here, by name."""
        ...

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        """Add `amount` to the salience of each record that exists (once an id); how many there were."""
        ...

    async def touch(self, ids: Sequence[str], at: str) -> None:
        """Count one access of each record that exists (once a mention) at time `at`; new etag."""
        ...


class TierStore(MemoryStore, Protocol):
    """A store that can be part of a move: our extensions (`a2m_server.memory.EXTENSIONS`)."""

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        """Write records as they are, `seq`, counts, vectors, `arrival` and all; one `Written` a draft.

        Refused: what is older (by `seq`) than its `forgotten` tombstone; what meets a record, a tombstone or
        an alias whose `moves` is not lower, or a record of a later `seq` (forgotten and written anew). A
        `moved` tombstone with lower `moves` gives way. A draft without `seq` gets one from its `created_at`,
        else from the clock, in the order given.
        """
        ...

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        """Delete all of `named` if each still has its etag, else none.

        `deleted` for each then; otherwise each id answers its own state, `deleted` standing for one that
        would have been. Reason `moved` leaves tombstones with `moves` one higher than the record's and marks
        their sessions; `undo` leaves none; `forgotten` leaves that.
        """
        ...

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        """The tombstones that exist for `ids`."""
        ...

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        """Up to `limit` tombstones of what was forgotten while tombstones last, by `seq` then id.

        Those beyond the (`seq`, id) given: what is forgotten while somebody pages comes at the end.
        """
        ...

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        """Put tombstones, whether the ids are held here or not.

        A `forgotten` one deletes a live record with a `seq` not above its own (`forgotten`) and leaves a
        newer one (`live`); a `moved` one never deletes (`live`), and marks its session; otherwise `absent`.
        """
        ...

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        """Up to `limit` matching records, oldest first, beyond the (`seq`, id) given; without content."""
        ...

    async def read(self, ids: Sequence[str]) -> list[Record]:
        """The records that exist of `ids`, whole, with vectors and features."""
        ...

    async def settle(self, named: Sequence[Named]) -> None:
        """Clear the `arrival` of records that still have their etag, which stays: the move has ended."""
        ...

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        """Every place of the database, its indexes and caches in which something of `ids` is found.

        The places themselves are looked at, whatever leads to them: what a failure left behind is found too.
        """
        ...


class SearchingStore(TierStore, Protocol):
    """A tier that keeps vectors made after a record was written: the extension `embed`."""

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        """Keep what a model saw in records that still have their etag; which of the ids were, each by itself.

        A caller's own vector is left, and only the features are kept beside it. A vector of another width
        than the store's takes the place of all that models made before: those are no longer found by meaning
        until they are embedded anew. While the store holds a caller's vector, that raises -32008. The etag
        changes; nothing else does.
        """
        ...


class HistoryStore(TierStore, Protocol):
    """A tier that keeps what was: the extension `erase`."""

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        """Rewrite history so that nothing of it holds `ids`, and all else stays what it was.

        A kill at any point leaves the old history or the new one. A `dry` run changes nothing and looks at
        nothing but what the tier remembers having left to history: it is quick.
        """
        ...


class TieredStore(MemoryStore, Protocol):
    """A store of several tiers, which reorganises itself."""

    async def promote(
        self, ids: Sequence[str], tier: str, salience: float, scope: Scope
    ) -> Mapping[str, str | None]:
        """Move records, with their groups, to `tier`; those of `ids` that moved, each with its owner."""
        ...

    async def consolidate(self) -> Consolidated: ...

    async def close_session(self, session: str, scope: Scope) -> Consolidated:
        """Move a session's records out of the working tier at once; `moved` are those that left it."""
        ...


class EmbeddingStore(TieredStore, Protocol):
    """A store of several tiers that makes the vectors of their records: the extension `reembed`."""

    async def reembed(self, tier: str | None) -> Embedded:
        """Give some records of `tier`, or of every tier, a vector of the present model where they have none.

        That takes a few seconds at most, and leaves callers' vectors alone. Raises -32003 without a model.
        """
        ...
