"""The event log: bounded, in memory, read by cursor or pushed to those who subscribed."""

from __future__ import annotations

import secrets
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TypeAlias

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import Json, JsonObject
from a2m_server.store import Consolidated, Scope

RETAINED = 1_024
MAX_IDS = 1_000

UNKNOWN = "\x00"
"""Stands for an owner that is not known, which no owner can be named."""

Tally: TypeAlias = Mapping[str | None, int]
"""How many records of each owner."""


class Kind(StrEnum):
    WRITTEN = "written"
    FORGOTTEN = "forgotten"
    PROMOTED = "promoted"
    CONSOLIDATED = "consolidated"
    SESSION_CLOSED = "session_closed"


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, and to whose records.

    `owners` are those whom it is about (None: pooled records); it is shown to who sees one of them, and one
    of no owner to everybody. `ids` maps records to their owners and `tallies` counts them: of these each sees
    its own part, and where that is nothing, the event only as one of its `owners`.
    """

    kind: Kind
    fields: Mapping[str, Json]
    owners: frozenset[str | None] = frozenset()
    ids: Mapping[str, str | None] | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict[str, Tally])

    def shown(self, scope: Scope) -> JsonObject | None:
        """The event's own fields as a scope may see them, or None."""
        shown = {**self.fields, **figures(self.tallies, scope)}
        if self.ids is not None:
            shown["ids"] = [i for i, owner in self.ids.items() if scope.sees(owner)]
        if any(shown[name] for name in ("ids", *self.tallies) if name in shown):
            return shown
        nobodys = not self.owners and not self.ids and not any(self.tallies.values())
        return shown if nobodys or any(map(scope.sees, self.owners)) else None


def written(
    record_id: str,
    owner: str | None,
    *,
    tier: str | None = None,
    session: str | None = None,
    key: str | None = None,
    revision: int = 0,
) -> Event:
    fields: JsonObject = {"id": record_id}
    if tier is not None:
        fields["tier"] = tier
    if session is not None:
        fields["session"] = session
    if key is not None:
        fields |= {"key": key, "revision": revision}
    return Event(Kind.WRITTEN, fields, frozenset({owner}))


def forgotten(ids: Mapping[str, str | None]) -> Event:
    """Records that a forget removed, with the owner of each (`UNKNOWN` where it is not known).

    Of more than `MAX_IDS` their number is kept alone.
    """
    tallies = {"count": Counter(ids.values())}
    return Event(Kind.FORGOTTEN, {}, ids=ids if len(ids) <= MAX_IDS else None, tallies=tallies)


def promoted(ids: Mapping[str, str | None], tier: str) -> Event:
    return Event(Kind.PROMOTED, {"tier": tier}, ids=ids)


def consolidated(result: Consolidated, owners: Iterable[str | None] = ()) -> Event:
    """A reorganisation; to `owners` it is shown even if it moved nothing of theirs."""
    return Event(Kind.CONSOLIDATED, {}, frozenset(owners), tallies=tallies(result))


def session_closed(session: str, owners: Iterable[str | None]) -> Event:
    return Event(Kind.SESSION_CLOSED, {"session": session}, frozenset(owners))


def tallies(result: Consolidated) -> dict[str, Tally]:
    """What a reorganisation did, by name."""
    return {
        "moved": Counter(result.moved.values()),
        "promoted": Counter(result.promoted.values()),
        "dropped": Counter(result.dropped.values()),
        "summarized": Counter({UNKNOWN: result.summarized} if result.summarized else {}),
    }


def figures(counted: Mapping[str, Tally], scope: Scope) -> JsonObject:
    """How many records a scope sees of each tally."""
    return {
        name: sum(count for owner, count in tally.items() if scope.sees(owner))
        for name, tally in counted.items()
    }


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll found: events oldest first, the cursor to go on from, and whether there is more."""

    events: list[JsonObject]
    cursor: str
    more: bool = False
    reset: bool = False


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Subscription:
    """Who is told of what; the log keeps it as long as its peer does."""

    scope: Scope
    kinds: frozenset[Kind] | None
    notify: Callable[[JsonObject], None]


@dataclass(frozen=True, slots=True)
class _Held:
    event: Event
    at: str
    background: bool

    def shown(self, scope: Scope, kinds: frozenset[Kind] | None) -> JsonObject | None:
        if kinds is not None and self.event.kind not in kinds:
            return None
        fields = self.event.shown(scope)
        return None if fields is None else {"kind": str(self.event.kind), "at": self.at, **fields}


class EventLog:
    """The last `retained` events of a process; `clock` gives milliseconds since 1970."""

    def __init__(
        self, retained: int = RETAINED, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._held: deque[_Held] = deque(maxlen=retained)
        self._clock = clock
        self._epoch = secrets.token_hex(6)
        self._head = 0
        self._given = 0
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    @property
    def retained(self) -> int:
        return self._held.maxlen or 0

    def add(self, event: Event, *, background: bool = False) -> None:
        """Log an event and push it to those subscribed who may see it.

        A background reorganisation adds up with one just before it that nobody has been given yet.
        """
        if background and self._merges(event):
            previous = self._held.pop()
            event = _sum(previous.event, event)
            self._head -= 1
        held = _Held(event, format_ms(self._clock()), background)
        self._held.append(held)
        self._head += 1
        for subscription in list(self._subscriptions):
            shown = held.shown(subscription.scope, subscription.kinds)
            if shown is not None:
                subscription.notify(shown)
                self._given = self._head

    def poll(
        self, cursor: str | None, limit: int | None, kinds: frozenset[Kind] | None, scope: Scope
    ) -> Polled:
        """Events after `cursor`; without one none, only the head.

        A cursor that this log did not issue, or from before what it holds, starts over at the oldest.
        """
        if cursor is None:
            return Polled([], self._issue(self._head))
        oldest = self._head - len(self._held)
        position = self._position(cursor)
        reset = position is None or position < oldest
        start = oldest if position is None or reset else position
        events: list[JsonObject] = []
        after = self._head
        for index, held in enumerate(islice(self._held, start - oldest, None), start):
            shown = held.shown(scope, kinds)
            if shown is None:
                continue
            if limit is not None and len(events) == limit:
                return Polled(events, self._issue(after), more=True, reset=reset)
            events.append(shown)
            if len(events) == limit:
                after = index + 1
        return Polled(events, self._issue(self._head), reset=reset)

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions.add(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def _merges(self, event: Event) -> bool:
        if not self._held or self._given >= self._head:
            return False
        previous = self._held[-1]
        return previous.background and previous.event.kind is event.kind is Kind.CONSOLIDATED

    def _issue(self, position: int) -> str:
        self._given = max(self._given, position)
        return self._cursor(position)

    def _cursor(self, position: int) -> str:
        return f"{self._epoch}.{position:x}"

    def _position(self, cursor: str) -> int | None:
        """The position that a cursor of this log stands for."""
        try:
            position = int(cursor.partition(".")[2], 16)
        except ValueError:
            return None
        return position if position <= self._head and cursor == self._cursor(position) else None


def _sum(old: Event, new: Event) -> Event:
    added = {name: Counter(old.tallies.get(name, {})) + Counter(tally) for name, tally in new.tallies.items()}
    return replace(new, owners=old.owners | new.owners, tallies=added)
