"""The engine port: points with payload and vectors, and filters that no library's types appear in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

DENSE = "dense"
TERMS = "terms"

Payload: TypeAlias = dict[str, Any]

_NAMESPACE = uuid.UUID("6d1f5f0e-3c53-5a0b-9d0e-0c5b1f8f4a21")


def point_id(kind: str, name: str) -> str:
    """The point id of a name: whatever the name holds, the engine sees a UUID."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}\n{name}"))


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The keyword field holds at least one of `values`; no value matches nothing."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The keyword field holds a value that starts with `text`."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Between:
    """The numeric field lies within the given bounds."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True)
class Points:
    """The point is one of these; none matches nothing."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HasVector:
    """The point has a vector of this name; a name that no vector has yet matches nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    clause: Clause


@dataclass(frozen=True, slots=True)
class All:
    """Every clause holds; none at all matches everything."""

    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one clause holds; none at all matches nothing."""

    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """The array `field` has an object for which the clause, on the object's own fields, holds."""

    field: str
    clause: Clause


Clause: TypeAlias = AnyOf | Prefix | Between | Points | HasVector | Not | All | Some | Within

NOTHING = Points(())


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: distinct indices of 32 bits, and a weight for each."""

    indices: list[int]
    weights: list[float]


@dataclass(frozen=True, slots=True)
class Point:
    """What is stored under an id; an upsert replaces all of it, vectors included."""

    id: str
    payload: Payload
    dense: list[float] | None = None
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A point as it was read: the payload fields asked for, and the score in a search."""

    id: str
    payload: Payload
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is kept under a point's id: the whole payload, and the names of its vectors."""

    id: str
    payload: Payload
    vectors: frozenset[str]


def names_of(vectors: object) -> frozenset[str]:
    """The names of a point's vectors, as both libraries give them."""
    return frozenset(cast("Mapping[str, object]", vectors)) if isinstance(vectors, Mapping) else frozenset()


class ConflictError(Exception):
    """Another writer changed one of the points between our read and our write."""


class Engine(Protocol):
    """Qdrant, in process or by URL. Raises `A2MError` alone, but for `ConflictError` from `upsert`."""

    @property
    def shared(self) -> bool:
        """Whether other processes may write to the same points."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def fix_width(self, width: int) -> int:
        """Make room for dense vectors of `width` numbers unless there is already; the width in force."""
        ...

    async def refit(self, width: int) -> None:
        """Make room for dense vectors of `width` numbers; all those of another width go."""
        ...

    async def upsert(self, points: Sequence[Point], expected: frozenset[str]) -> None:
        """Write points as one operation; a reader sees each point before or after it, never in between.

        `expected` holds the `version` of every existing point that is overwritten. A shared engine raises
        `ConflictError` when one has another by now.
        """
        ...

    async def delete(self, where: Clause) -> None: ...

    async def retrieve(self, ids: Sequence[str], fields: Sequence[str]) -> list[Stored]:
        """The points that exist of `ids`, in no particular order."""
        ...

    async def scroll(
        self, where: Clause, fields: Sequence[str], limit: int, after: str | None = None
    ) -> tuple[list[Stored], str | None]:
        """A page of what matches, by point id, and where the next one starts (None: there is none)."""
        ...

    async def ordered(
        self,
        where: Clause,
        fields: Sequence[str],
        limit: int,
        *,
        by: str,
        descending: bool,
        start: int | None = None,
    ) -> list[Stored]:
        """What matches and has the integer field `by`, ordered by it, from the value `start` (inclusive)."""
        ...

    async def look(self, where: Clause) -> list[Seen]:
        """Everything that matches, whole; `where` may name fields that are not indexed."""
        ...

    async def count(self, where: Clause) -> int: ...

    async def space(self) -> tuple[int, int] | None:
        """Bytes that are taken on the disk, and those that could be; None where the engine does not say."""
        ...

    async def nearest(
        self, query: Sequence[float] | Terms, where: Clause, fields: Sequence[str], limit: int
    ) -> list[Stored]:
        """The best by dense vector or by terms, best first; what has no such vector is left out."""
        ...
