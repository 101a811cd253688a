"""The port: what every store implements, be it one database or a federation of services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from a2m_protocol.types import Draft, Record
from a2m_server.values import (
    Buried,
    Consolidated,
    Degraded,
    Deleted,
    Embedded,
    Entry,
    Erased,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Judged,
    Named,
    Page,
    Reason,
    Relocated,
    Scope,
    Search,
    Seen,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)


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
        """The active record at `key`: the scope's own first, then a pooled one."""
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

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        """Set the status of records that still have their etag; which of the ids were, each by itself.

        Who `approved` is kept with the provenance. The etag changes; nothing else does.
        """
        ...

    async def held(self, owner: str | None) -> dict[str, int]:
        """The bytes that records of exactly this owner take (about `records.weight`), by tier name.

        A copy that a move has not ended counts nothing: its original does. Of several tiers, one that does
        not answer is left out.
        """
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

        A record with a caller's own vector is left as it is. A vector of another width than the store's takes
        the place of all that models made before: those are no longer found by meaning until they are embedded
        anew. A store may clear them in several calls, which keep nothing. While it holds a caller's vector,
        or where its settings fix the width, another raises -32008, also for what is no longer there, and
        changes nothing. The etag of what is kept changes; nothing else does.
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


class ReviewedStore(TieredStore, Protocol):
    """A store of tiers of which some ask for evidence: the extension `approve`."""

    async def approve(self, ids: Sequence[str], scope: Scope, by: str) -> Mapping[str, str | None]:
        """Let pending records be believed; those of `ids` that were, each with its owner.

        What contradicts a fact takes its place, and is itself `superseded` from then on.
        """
        ...


class EmbeddingStore(TieredStore, Protocol):
    """A store of several tiers that makes the vectors of their records: the extension `reembed`."""

    async def reembed(self, tier: str | None) -> Embedded:
        """Give some records of `tier`, or of every tier, a vector of the present model where they have none.

        That takes a few seconds at most, and leaves callers' vectors alone. Raises -32003 without a model.
        """
        ...


class RelocatingStore(TieredStore, Protocol):
    """A store of several tiers that can bring one to another service while it serves: `relocate`."""

    async def relocate(self, tier: str, url: str, *, pause: float, dry: bool = False) -> Relocated:
        """Work on bringing `tier` to the service at `url`, for a few seconds at most, and say how far it is.

        It goes on as long as this is called again. At the end writes to the tier wait for `pause` seconds at
        most. A `dry` run changes nothing.
        """
        ...
