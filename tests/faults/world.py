"""An example's own corner of a federation: owners, sessions, groups and keys, and what was told of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal
from uuid import uuid4

from possible import ContradictionError, Fields, Kept, Slot

Owner = str | None | Literal[False]
"""Whose call it is: an owner's, that of one who has none, or (False) of one who sees everything."""


@dataclass(eq=False)
class World:
    """What a federation was told here, and what it has still to show.

    `written` and `forgotten` are what the event log has to show, by the router that
    answered. `recalls` bounds how often anything can have been counted as recalled.
    """

    mark: str = field(default_factory=lambda: f"mark{uuid4().hex[:12]}")
    recalls: int = 0
    slots: list[Slot] = field(default_factory=list[Slot])
    written: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    forgotten: dict[str, str] = field(default_factory=dict[str, str])
    _moments: Iterator[int] = field(default_factory=lambda: count(1))
    _by_id: dict[str, Slot] = field(default_factory=dict[str, Slot])
    _by_content: dict[str, Slot] = field(default_factory=dict[str, Slot])
    _by_key: dict[tuple[str | None, str], Slot] = field(default_factory=dict[tuple[str | None, str], Slot])

    @property
    def owners(self) -> tuple[str | None, ...]:
        return f"ana-{self.mark}", f"bob-{self.mark}", None

    @property
    def sessions(self) -> tuple[str | None, ...]:
        """Named ones, then the implicit one."""
        return f"talk-{self.mark}", f"chat-{self.mark}", None

    @property
    def groups(self) -> tuple[str, ...]:
        return f"call-{self.mark}", f"book-{self.mark}"

    @property
    def keys(self) -> tuple[str, ...]:
        return f"{self.mark}/a", f"{self.mark}/a/b", f"{self.mark}/ab"

    def moment(self) -> int:
        """The next number of those that order calls; safe to use from several threads."""
        return next(self._moments)

    def slot(self, owner: str | None, draft: Fields) -> Slot:
        """The fact that a record to be written is about: what is at its key, else itself."""
        key = draft.get("key")
        slot = None if key is None else self._by_key.get((owner, key))
        if slot is None:
            slot = Slot(str(draft["content"]) if key is None else f"{key} of {owner}", owner, key)
            self.slots.append(slot)
            if key is not None:
                self._by_key[owner, key] = slot
        self._by_content[draft["content"]] = slot
        if "group" in draft:
            slot.groups.add(draft["group"])
        if "id" in draft:
            self._by_id[draft["id"]] = slot
        return slot

    def at(self, owner: str | None, key: str) -> Slot | None:
        return self._by_key.get((owner, key))

    def named(self, record_id: str) -> Slot | None:
        return self._by_id.get(record_id)

    def know(self, record_id: str, slot: Slot) -> None:
        """Take in the id that a record was given."""
        self._by_id[record_id] = slot

    def ids(self) -> list[str]:
        """Every id that was sent or told."""
        return [*self._by_id]

    def of(self, record: Fields) -> Slot:
        """The fact that a record shown is; raises where nobody can have written it."""
        slot = self._by_id.get(str(record["id"])) or self._by_content.get(str(record["content"]))
        if slot is None:
            raise ContradictionError(f"nobody wrote {record}")
        self._by_id[str(record["id"])] = slot
        return slot

    def sees(self, owner: Owner) -> list[Slot]:
        """The facts that a caller sees."""
        return [slot for slot in self.slots if owner is False or slot.owner in (owner, None)]

    def shown(self, records: Iterable[Fields], what: str) -> dict[Slot, Fields]:
        """Records that a read shows, by fact; raises where something is shown twice."""
        found: dict[Slot, Fields] = {}
        for record in records:
            slot = self.of(record)
            if slot in found:
                raise ContradictionError(f"{what} shows twice: {found[slot]} and {record}")
            found[slot] = record
        return found


@dataclass(frozen=True)
class Selection:
    """Which records a call is about: all that is given applies. `where` maps to a value each."""

    ids: tuple[str, ...] | None = None
    words: str | None = None
    prefix: str | None = None
    where: tuple[tuple[str, Any], ...] = ()

    def params(self) -> Fields:
        params: Fields = {}
        if self.ids is not None:
            params["ids"] = [*self.ids]
        if self.words is not None:
            params["query"] = self.words
        if self.prefix is not None:
            params["key_prefix"] = self.prefix
        if self.where:
            params["where"] = dict(self.where)
        return params

    def picks(self, slot: Slot, kept: Kept) -> bool:
        fields = kept.fields
        words = str(fields["content"]).split()
        key = str(fields.get("key", ""))
        return (
            (self.ids is None or (kept.id or slot.assigned) in self.ids)
            and (self.words is None or all(word in words for word in self.words.split()))
            and (self.prefix is None or key == self.prefix or key.startswith(self.prefix + "/"))
            and all(fields.get(n, fields["metadata"].get(n)) == value for n, value in self.where)
        )
