"""What the store asks of a layout of buckets, and the values that go between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from a2m_protocol.types import Draft
from a2m_server.values import Buried, Deleted, Judged, Named, Reason, Scope, SessionInfo, Tombstone, Written
from a2m_working.rows import Row

PAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A page beyond a position: of one bucket by `tag`, or of every owner's of a `session` (encoded)."""

    count: int
    tag: str | None = None
    session: str | None = None
    after: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class BucketPage:
    """Rows of one bucket in order; `more` may follow beyond `last`."""

    tag: str
    rows: list[Row]
    elsewhere: bool
    more: bool
    last: tuple[int, str] | None


class Buckets(Protocol):
    """Where records are: on one server each call is one script; on a Cluster, one a bucket and its claims."""

    async def put(self, drafts: Sequence[Draft], scope: Scope, *, transfer: bool) -> list[Written]: ...

    async def remove(
        self, named: Sequence[Named], reason: Reason, target: str | None, *, whole: bool
    ) -> dict[str, Deleted]:
        """Delete by id and etag ("" for any): all or none if `whole`, else each that can be."""
        ...

    async def sweep(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that their ids lead to; on a Cluster, others were left by a crash and are removed."""
        ...

    async def settle(self, named: Sequence[Named]) -> None:
        """Clear the arrival of records that have their etag."""
        ...

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]: ...

    def arrivals(self) -> AsyncIterator[list[str]]:
        """Ids of the records that have an arrival, some at a time, in no order."""
        ...

    async def bury(self, stones: Sequence[Tombstone]) -> dict[str, Buried]: ...

    async def count(
        self, ids: Counter[str], scope: Scope, *, amount: float | None = None, at: str | None = None
    ) -> int:
        """Add `amount` to salience, or count as many accesses as an id is mentioned."""
        ...

    async def read(self, ids: Sequence[str], *, whole: bool) -> list[Row]: ...

    async def fetch(self, key: str, owners: Sequence[str | None], *, others: bool, whole: bool) -> list[Row]:
        """The record at a key of the first of `owners` that has one; else, if `others`, of everyone."""
        ...

    async def pages(self, requests: Sequence[Request], *, newest: bool, whole: bool) -> list[BucketPage]:
        """A page of each bucket asked for; of some, none of it yet when the call would be too large."""
        ...

    async def places(
        self, tags: Sequence[str], limit: int, after: tuple[int, str] | None, highest: int | None
    ) -> list[tuple[int, str]]:
        """The `seq` and id of the oldest `limit` of each bucket, beyond a position, up to a `seq`."""
        ...

    async def weigh(self, tags: Sequence[str]) -> int:
        """The bytes of all records in some buckets, but for what a move brought that may not have ended."""
        ...

    def tags(self, owner: str | None, size: int) -> AsyncIterator[list[str]]:
        """Tags of the buckets that hold records of an owner (encoded; None for all), `size` at a time."""
        ...

    async def sessions(self, owners: Sequence[str | None] | None) -> list[SessionInfo]:
        """The named sessions of these owners, or of all; in no order."""
        ...

    async def total(self, owners: Sequence[str | None] | None) -> int: ...

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]: ...

    async def forgotten(self, limit: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        """The `seq` and id of what was forgotten, in order, beyond a position; some may be written anew."""
        ...

    async def width(self) -> int | None:
        """The width of the vectors held, once one was."""
        ...
