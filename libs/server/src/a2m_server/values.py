"""What the port speaks of: whose records, which of them, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import Capability, Record, Status
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


ACTIVE: tuple[Status, ...] = ("active",)
"""What may be believed."""

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
    what is beneath it. `statuses` are those that it may have; None stands for all, but a search and a fetch
    find what is active alone, whatever is given. `tier` is set for a federation alone.
    """

    scope: Scope = EVERYONE
    where: Where = field(default_factory=Where)
    key_prefix: str | None = None
    ids: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None
    arrived: bool = False
    without: str | None = None
    statuses: tuple[Status, ...] | None = None
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
    `explain` for how each came to its place. A router that ranks what it finds sets `least`: so many it must
    have, the others up to `limit` as far as a server sends them.
    """

    filter: Filter
    limit: int
    text: str | None = None
    embedding: Sequence[float] | None = None
    embedding_model: str | None = None
    vectors: bool = False
    features: bool = False
    explain: bool = False
    least: int | None = None


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
    record that its session has records in other tiers (working's mark), and `pending` that a federation does
    not believe it yet.
    """

    id: str
    outcome: Wrote
    etag: str = ""
    revision: int = 0
    reason: str = ""
    tier: str | None = None
    elsewhere: bool = False
    pending: bool = False


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
class Judged:
    """What was decided of the record of an id and etag: its status, and who `approved` of it, if anybody."""

    id: str
    etag: str
    status: Status
    approved: str | None = None


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
class Due:
    """A tier whose records are to be embedded anew, and why."""

    tier: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is: its name, declared capabilities, our extensions, and the details of `describe`.

    `max_recall` is the greatest limit of a recall that a tier behind the wire announces. `reembed` has the
    tiers in which only `EmbeddingStore.reembed` brings vectors of the present model.
    """

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
    max_recall: int | None = None
    reembed: tuple[Due, ...] = ()


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
    """What a step of embedding anew did: how many records got a vector, and how many there are left.

    `refused` are those whose text the model refuses, for good; they are not among the others.
    """

    embedded: int
    left: int
    refused: int = 0


Relocation = Literal["ready", "copying", "switched"]


@dataclass(frozen=True, slots=True)
class Relocated:
    """How far a tier is on its way from the service at `source` to the one at `target`.

    `ready`: a dry run found nothing in the way. `switched`: the tier is at `target` now. Of the `records`,
    `verified` are the same in both; `copied` were transferred by this router, some of them again.
    `tombstones` are those that the new service has of the old one. `held` is how long writes waited, in
    seconds, as is `took`. `digest` is that of all records as both services gave them back. `strays` are
    records of the old service that changed after that, by somebody who does not ask this router.
    """

    tier: str
    source: str
    target: str
    state: Relocation
    records: int = 0
    verified: int = 0
    copied: int = 0
    tombstones: int = 0
    passes: int = 0
    took: float = 0.0
    held: float = 0.0
    digest: str | None = None
    strays: int = 0
