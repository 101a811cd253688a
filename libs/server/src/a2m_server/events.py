"""The event log: bounded, in memory, read by cursor or pushed to those who subscribed.

Servers that share one log put another behind the same `Events`.
"""

from __future__ import annotations

import hashlib
import secrets
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Protocol, TypeAlias

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import Json, JsonObject
from a2m_server.values import Consolidated, Scope

RETAINED = 1_024
MAX_IDS = 1_000
_BLOCK = 16
"""Bytes of a position as it is enciphered."""

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

    def merged(self, later: Event) -> Event:
        """Two reorganisations as one: their figures add up."""
        added = {n: Counter(self.tallies.get(n, {})) + Counter(tally) for n, tally in later.tallies.items()}
        return replace(later, owners=self.owners | later.owners, tallies=added)


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


class Events(Protocol):
    """What a dispatcher logs to; `retained` is how many events are kept."""

    @property
    def retained(self) -> int: ...

    def add(self, event: Event, *, background: bool = False) -> None:
        """Log an event, and push it to those subscribed who may see it.

        A background reorganisation adds up with one just before it that nobody has been given yet.
        """
        ...

    async def poll(
        self, cursor: str | None, limit: int | None, kinds: frozenset[Kind] | None, scope: Scope
    ) -> Polled:
        """Events after `cursor`; without one none, only the head.

        A cursor that this log did not issue, or from before what it holds, starts over at the oldest.
        """
        ...

    def subscribe(self, subscription: Subscription) -> None: ...

    def unsubscribe(self, subscription: Subscription) -> None: ...


@dataclass(frozen=True, slots=True)
class Held:
    """An event as a log holds it, with its time; `background` tells what the server did unasked."""

    event: Event
    at: str
    background: bool = False

    def shown(self, scope: Scope, kinds: frozenset[Kind] | None) -> JsonObject | None:
        if kinds is not None and self.event.kind not in kinds:
            return None
        fields = self.event.shown(scope)
        return None if fields is None else {"kind": str(self.event.kind), "at": self.at, **fields}


@dataclass(frozen=True, slots=True)
class Shelf:
    """What a log holds at a moment: its newest events, of which the last is at position `head`.

    `epoch` is a secret of the log. A cursor is a position enciphered by it: how many events of other owners
    there were between two polls is nobody's to see.
    """

    epoch: str
    head: int
    held: Sequence[Held]

    def cursor(self, position: int) -> str:
        encryptor = self._cipher().encryptor()
        return encryptor.update(position.to_bytes(_BLOCK)).hex()

    def page(
        self, cursor: str | None, limit: int | None, kinds: frozenset[Kind] | None, scope: Scope
    ) -> tuple[Polled, int]:
        """What `Events.poll` answers, and the position that it gives a cursor to."""
        if cursor is None:
            return Polled([], self.cursor(self.head)), self.head
        oldest = self.head - len(self.held)
        position = self._position(cursor)
        reset = position is None or position < oldest
        start = oldest if position is None or reset else position
        events: list[JsonObject] = []
        after = self.head
        for index, held in enumerate(islice(self.held, start - oldest, None), start):
            shown = held.shown(scope, kinds)
            if shown is None:
                continue
            if limit is not None and len(events) == limit:
                return Polled(events, self.cursor(after), more=True, reset=reset), after
            events.append(shown)
            if len(events) == limit:
                after = index + 1
        return Polled(events, self.cursor(self.head), reset=reset), self.head

    def _position(self, cursor: str) -> int | None:
        """The position that a cursor of this log stands for."""
        try:
            block = bytes.fromhex(cursor)
        except ValueError:
            return None
        position = int.from_bytes(self._cipher().decryptor().update(block)) if len(block) == _BLOCK else -1
        return position if 0 <= position <= self.head else None

    def _cipher(self) -> Cipher[modes.ECB]:
        # One block that is never the same twice needs no mode.
        return Cipher(algorithms.AES(hashlib.sha256(self.epoch.encode()).digest()), modes.ECB())  # noqa: S305


class EventLog:
    """The last `retained` events of a process; `clock` gives milliseconds since 1970."""

    def __init__(
        self, retained: int = RETAINED, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._held: deque[Held] = deque(maxlen=retained)
        self._clock = clock
        self._epoch = secrets.token_hex(16)
        self._head = 0
        self._given = 0
        self._subscriptions = Subscriptions()

    @property
    def retained(self) -> int:
        return self._held.maxlen or 0

    def add(self, event: Event, *, background: bool = False) -> None:
        if background and self._merges(event):
            event = self._held.pop().event.merged(event)
            self._head -= 1
        held = Held(event, format_ms(self._clock()), background)
        self._held.append(held)
        self._head += 1
        if self._subscriptions.push(held):
            self._given = self._head

    async def poll(
        self, cursor: str | None, limit: int | None, kinds: frozenset[Kind] | None, scope: Scope
    ) -> Polled:
        polled, given = Shelf(self._epoch, self._head, self._held).page(cursor, limit, kinds, scope)
        self._given = max(self._given, given)
        return polled

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions.add(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def _merges(self, event: Event) -> bool:
        return bool(self._held) and self._given < self._head and merges(self._held[-1], event)


def merges(previous: Held, event: Event) -> bool:
    """Whether a background event adds up with the one before it, which nobody has been given."""
    return previous.background and previous.event.kind is event.kind is Kind.CONSOLIDATED


class Subscriptions:
    """Who is told of events as they happen; each is kept as long as its peer keeps it."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Subscription] = weakref.WeakSet()

    def add(self, subscription: Subscription) -> None:
        self._all.add(subscription)

    def discard(self, subscription: Subscription) -> None:
        self._all.discard(subscription)

    def push(self, held: Held) -> bool:
        """Tell those who may see an event; whether anybody was told."""
        told = False
        for subscription in list(self._all):
            shown = held.shown(subscription.scope, subscription.kinds)
            if shown is not None:
                subscription.notify(shown)
                told = True
        return told
