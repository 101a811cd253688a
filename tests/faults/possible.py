"""What may be in a memory, as its clients can know it: of each fact the set of the states that it may be in.

A call that returned changes every state that agrees with its answer. One that failed may have been carried
out, or not, or may still be: its change is pending, and may come once at any later moment until all is quiet.
A read leaves the states that agree with what it showed; when none is left, somebody was told wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations
from typing import Any

Fields = dict[str, Any]

UNBOUNDED = 1 << 60
MOST_PENDING = 4
"""Changes that may be pending of one fact before it is left alone: each doubles what is possible."""

SHOWN = ("content", "role", "metadata", "session", "group", "owner", "key")
"""What every read shows of a record as its client sent it."""


class ContradictionError(AssertionError):
    """What was shown agrees with nothing that is possible."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A record. `sent` is what its client sent, as JSON; `id` is "" where no answer told it.

    It was first written between the moments `born`, in the batch and at the position `place`. `home` is the
    tier where it must be once all is quiet, if that is known. `aliases` are ids that rewrote its key.
    """

    id: str
    sent: str
    born: tuple[int, int]
    place: tuple[int, int]
    revision: int = 0
    salience: float = 1.0
    home: str | None = None
    aliases: frozenset[str] = frozenset()

    @property
    def fields(self) -> Fields:
        return _fields(self.sent)

    def knows(self, record_id: str) -> bool:
        """Whether a write with this id is a retry."""
        return record_id == self.id or record_id in self.aliases

    def shows(self, record: Fields) -> bool:
        """Whether a read may show it like that."""
        sent = self.fields
        return record.get("revision", 0) == self.revision and all(
            json.dumps(record.get(name)) == json.dumps(sent.get(name)) for name in SHOWN
        )


Change = Callable[[Kept | None], Kept | None]
Test = Callable[[Kept | None], bool]


@dataclass(frozen=True, eq=False)
class Pending:
    """A change that may still come, once."""

    change: Change


State = tuple[Kept | None, frozenset[Pending]]
States = frozenset[State]
Effect = Callable[[States], States]
"""What a call that is over did to a fact; nothing is left where its answer was impossible."""


def surely(change: Change, when: Test) -> Effect:
    """The change of a call that was answered, in the states that its answer agrees with."""

    def effect(states: States) -> States:
        return closed((change(kept), pending) for kept, pending in states if when(kept))

    return effect


def either(change: Change) -> Effect:
    """A change that happened or not, and will not happen later."""
    return lambda states: states | closed((change(kept), pending) for kept, pending in states)


def perhaps(*changes: Change) -> Effect:
    """Changes of a call that failed."""
    more = frozenset(map(Pending, changes))
    return lambda states: closed((kept, pending | more) for kept, pending in states)


def in_turn(effects: Sequence[Effect]) -> Effect:
    def effect(states: States) -> States:
        for one in effects:
            states = one(states)
        return states

    return effect


def closed(states: Iterable[State]) -> States:
    """States, and those that they become when what is pending comes."""
    found = set(states)
    waiting = list(found)
    while waiting:
        kept, pending = waiting.pop()
        for one in pending:
            state = (one.change(kept), pending - {one})
            if state not in found:
                found.add(state)
                waiting.append(state)
    return frozenset(found)


@dataclass(eq=False)
class Slot:
    """One fact: a record without a key, or whatever is at a key of an owner.

    `assigned` is the id that its writer was not told, once a read has shown it. `groups` are those that
    anything written to it named.
    """

    name: str
    owner: str | None
    key: str | None = None
    states: States = frozenset({(None, frozenset[Pending]())})
    assigned: str | None = None
    groups: set[str] = field(default_factory=set[str])
    told: list[str] = field(default_factory=list[str])

    def kept(self) -> list[Kept]:
        """The records that may be there."""
        return [*{kept: None for kept, _ in self.states if kept is not None}]

    @property
    def visible(self) -> set[tuple[str, str, int] | None]:
        """What reads may show of it."""
        return {None if kept is None else (kept.id, kept.sent, kept.revision) for kept, _ in self.states}

    @property
    def unsettled(self) -> bool:
        """Whether so much is pending that nothing more should be asked of it."""
        return max(len(pending) for _, pending in self.states) >= MOST_PENDING

    def after(self, effects: Collection[Effect], what: str) -> None:
        """Take in calls that are over, which ran at the same time: in some order each did what it said."""
        found = frozenset[State]()
        for order in permutations(effects):
            found |= in_turn(order)(self.states)
        self._leave(found, what)

    def seen(self, record: Fields, what: str, *, more: Callable[[Kept], bool] = lambda _: True) -> None:
        """Take in that a record was shown; `more` is what must hold of it besides."""
        record_id = str(record["id"])

        def agrees(kept: Kept | None) -> bool:
            if kept is None or not kept.shows(record) or not more(kept):
                return False
            return kept.id == record_id or (kept.id == "" and self.assigned in (None, record_id))

        self._keep(agrees, f"{what} shows {record}", brief=f"{what} shows it")
        if self.key is None:
            self.assigned = record_id

    def missed(self, selected: Callable[[Kept], bool], what: str) -> None:
        """Take in that nothing of it was shown by a read of what is `selected`."""
        self._keep(lambda kept: kept is None or not selected(kept), f"{what} does not show it")

    def settle(self, now: int) -> None:
        """All is quiet: what was pending has come or never will."""

        def over(kept: Kept | None) -> Kept | None:
            if kept is None or kept.born[1] < UNBOUNDED:
                return kept
            return replace(kept, born=(kept.born[0], now))

        self.states = frozenset((over(kept), frozenset[Pending]()) for kept, _ in self.states)

    def _keep(self, agrees: Test, what: str, brief: str | None = None) -> None:
        self._leave(frozenset(state for state in self.states if agrees(state[0])), what, brief)

    def _leave(self, states: States, what: str, brief: str | None = None) -> None:
        if not states:
            possible = "\n".join(f"  {kept} {len(pending)} pending" for kept, pending in self.states)
            history = "\n".join(f"  {line}" for line in self.told)
            raise ContradictionError(f"{self.name}: {what}\npossible were\n{possible}\nafter\n{history}")
        if states != self.states:
            self.told.append(brief or what)
        self.states = states


@lru_cache(maxsize=4_096)
def _fields(sent: str) -> Fields:
    return json.loads(sent)
