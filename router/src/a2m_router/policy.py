"""What should move where: pure functions of entries, tiers and a clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from a2m_protocol.clock import parse_ms
from a2m_protocol.types import Record
from a2m_server.values import Entry

Group = tuple[str | None, str | None, str]


@dataclass(frozen=True, slots=True)
class Unit:
    """Records that move together: a group's members, or one record of no group; oldest first."""

    entries: tuple[Entry, ...]

    @property
    def ids(self) -> list[str]:
        return [entry.id for entry in self.entries]

    @property
    def age(self) -> tuple[int, str]:
        """Where the unit stands in the order of leaving: with its oldest record."""
        return self.entries[0].seq, self.entries[0].id


def units(entries: Iterable[Entry]) -> list[Unit]:
    """Entries gathered into units, oldest unit first."""
    gathered: dict[Group, list[Entry]] = defaultdict(list)
    for entry in entries:
        address = (entry.owner, entry.group, "") if entry.group is not None else (None, None, entry.id)
        gathered[address].append(entry)
    made = [Unit(tuple(sorted(held, key=lambda e: (e.seq, e.id)))) for held in gathered.values()]
    return sorted(made, key=lambda unit: unit.age)


def overflow(
    entries: Sequence[Entry], capacity: int, *, half_life: float | None = None, now: int = 0
) -> list[Unit]:
    """The units whose leaving brings `entries` down to `capacity`; 0 is unbounded.

    The oldest leave first; with a `half_life` (seconds), those whose salience has decayed the furthest by
    `now` (microseconds), the salience of a unit being that of its most salient record.
    """
    excess = len(entries) - capacity if capacity else 0
    leaving: list[Unit] = []
    ordered = units(entries)
    if half_life is not None:
        ordered.sort(key=lambda unit: max(decayed(entry, half_life, now) for entry in unit.entries))
    for unit in ordered:
        if excess <= 0:
            break
        leaving.append(unit)
        excess -= len(unit.entries)
    return leaving


def decayed(entry: Entry, half_life: float, now: int) -> float:
    """An entry's salience at `now`, halved for each `half_life` since it was written or last recalled."""
    last = entry.seq if entry.accessed_at is None else max(entry.seq, parse_ms(entry.accessed_at) * 1_000)
    return entry.salience * 0.5 ** (max(0, now - last) / (half_life * 1e6))


def batches(moving: Iterable[Unit], size: int) -> Iterator[list[Unit]]:
    """Units in batches of at most `size` records, but never part of a unit."""
    batch: list[Unit] = []
    held = 0
    for unit in moving:
        if batch and held + len(unit.entries) > size:
            yield batch
            batch, held = [], 0
        batch.append(unit)
        held += len(unit.entries)
    if batch:
        yield batch


def newest(a: Record, b: Record) -> Record:
    """Which of two copies of one record holds: the higher revision, then the higher `moves`."""
    return b if (b.revision, b.moves) > (a.revision, a.moves) else a


Standing = Literal["same", "ahead", "stale"]

_MARKS = frozenset({"etag", "moves", "tier", "score", "arrival"})
_VECTOR = frozenset({"embedding", "embedding_model", "features"})
_COUNTS = frozenset({"salience", "access_count", "accessed_at"})


def arrival(source: str, record: Record) -> str:
    """The mark of a copy: the tier it came from and the etag of what was copied."""
    return f"{source} {record.etag}"


def standing(record: Record, source: str, copy: Record, salience: float) -> Standing:
    """How a target's record stands to the one that is to be moved there from `source`.

    `same`: a true copy, `salience` added. `ahead`: the target's is the later one, since its move has ended,
    it was rewritten, or something was counted on it; the original is a leftover. `stale`: the original
    changed after it was copied, or the target does not give back what it was given.
    """
    if copy.revision > record.revision or copy.moves > record.moves + 1:
        return "ahead"
    if copy.arrival is None or not copy.arrival.startswith(source + " "):
        return "ahead"
    if copy.arrival != arrival(source, record) or not true_copy(record, copy):
        return "stale"
    but = _changed(record, copy) | {"salience"}
    counted = copy.salience != record.salience + salience or not _equal(record, copy, but)
    return "ahead" if counted else "same"


def true_copy(record: Record, copy: Record) -> bool:
    """Whether a copy is what was copied, but for what a move changes and what is counted on either."""
    return _equal(record, copy, _changed(record, copy) | _COUNTS)


def _changed(record: Record, copy: Record) -> frozenset[str]:
    """The fields that a move changes: the copy may have been given a vector or features on its way."""
    changed = _MARKS if record.features is not None else _MARKS | {"features"}
    added = record.embedding is None and copy.embedding_model is not None
    return changed | _VECTOR if added else changed


def _equal(record: Record, copy: Record, but: Collection[str]) -> bool:
    excluded = set(but)
    return record.model_dump(exclude=excluded) == copy.model_dump(exclude=excluded) and repr(
        record.metadata
    ) == repr(copy.metadata)
