"""One event log for several routers: a stream in Redis, of which each keeps a copy."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, cast

from redis.asyncio import Redis

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import A2MError
from a2m_router.link import PREFIX, translated
from a2m_server.events import RETAINED, Event, Held, Kind, Polled, Shelf, Subscription, Subscriptions, merges
from a2m_server.values import Scope

_STREAM = f"{PREFIX}events"
_EPOCH = f"{PREFIX}events:epoch"
_BATCH = 100
_BLOCK_MS = 2_000
_PAUSE_SECONDS = 1.0

# Entries are numbered by hand, so that a cursor is a position as it is in a log in memory.
_ADD = """
if ARGV[2] ~= '' then redis.call('DEL', KEYS[2]) end
redis.call('SET', KEYS[2], ARGV[3], 'NX')
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local at = last and tonumber(string.match(last[1], '^%d+')) or 0
for n = 4, #ARGV do
  at = at + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[1], string.format('%.0f-0', at), 'event', ARGV[n])
end
return at
"""

log = logging.getLogger(__name__)


class EventStream:
    """The `Events` of a router that shares them: a cursor works on whichever router answers.

    Events are sent in the background, so that no turn waits for them; while Redis does not answer, the newest
    `retained` wait here, and if older ones had to be given up, every cursor starts over. A poll sees all that
    was sent before it.
    """

    def __init__(
        self,
        redis: Redis,
        retained: int = RETAINED,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._redis = redis
        self._retained = retained
        self._clock = clock
        self._script = redis.register_script(_ADD)
        self._unsent: deque[Held] = deque(maxlen=retained)
        self._lost = False
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._epoch = ""
        self._head = 0
        self._copy: deque[Held] = deque(maxlen=retained)
        self._looking = asyncio.Lock()
        self._subscriptions = Subscriptions()
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def retained(self) -> int:
        return self._retained

    async def open(self) -> None:
        """Begin to send and to follow; raises a retryable error when Redis does not answer."""
        await self._send([])
        await self._catch_up(tell=False)
        self._tasks = [asyncio.create_task(self._sending()), asyncio.create_task(self._following())]

    async def close(self) -> None:
        # The driver may answer a cancellation with an error of its own: the loops look at this too.
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._send_waiting()
        except A2MError as error:
            log.warning("%d events were not sent: %s", len(self._unsent), error.message)

    def add(self, event: Event, *, background: bool = False) -> None:
        if background and self._unsent and merges(self._unsent[-1], event):
            event = self._unsent.pop().event.merged(event)
        self._lost = self._lost or len(self._unsent) == self._retained
        self._unsent.append(Held(event, format_ms(self._clock()), background))
        self._wake.set()

    async def poll(
        self, cursor: str | None, limit: int | None, kinds: frozenset[Kind] | None, scope: Scope
    ) -> Polled:
        await self._send_waiting()
        await self._catch_up()
        polled, _ = Shelf(self._epoch, self._head, self._copy).page(cursor, limit, kinds, scope)
        return polled

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions.add(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    async def _sending(self) -> None:
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_waiting()
            except A2MError as error:
                log.warning("events wait to be sent: %s", error.message)
                await asyncio.sleep(_PAUSE_SECONDS)
                self._wake.set()

    async def _send_waiting(self) -> None:
        async with self._turn:
            while self._unsent:
                batch = [self._unsent.popleft() for _ in range(min(_BATCH, len(self._unsent)))]
                with ExitStack() as failed:
                    failed.callback(self._keep, batch, self._lost)
                    await self._send(batch)
                    failed.pop_all()

    def _keep(self, batch: Sequence[Held], lost: bool) -> None:
        """Have a batch sent again, sent or not: an event may come twice, but none is missed."""
        room = self._retained - len(self._unsent)
        self._lost = self._lost or lost or room < len(batch)
        self._unsent.extendleft(reversed(batch[len(batch) - min(room, len(batch)) :]))

    async def _send(self, batch: Sequence[Held]) -> None:
        given = [self._retained, "1" if self._lost else "", secrets.token_hex(16), *map(_dump, batch)]
        # What is lost while this is under way is for the next time to tell.
        self._lost = False
        with translated():
            await cast("Awaitable[int]", self._script([_STREAM, _EPOCH], given))

    async def _following(self) -> None:
        while not self._closed:
            try:
                with translated():
                    read = cast("Any", self._redis.xread({_STREAM: f"{self._head}-0"}, 1, _BLOCK_MS))
                    await read
                # Also where nothing came: a stream that was begun anew has lower numbers.
                await self._catch_up()
            except A2MError as error:
                log.warning("events are not followed: %s", error.message)
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception:
                # An outermost loop: an event of another release that cannot be read is trimmed in time.
                log.exception("events cannot be read")
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _catch_up(self, *, tell: bool = True) -> None:
        """Take what the stream holds beyond the copy; all of it where it was begun anew or ran ahead."""
        async with self._looking:
            epoch, entries = await self._beyond(self._head)
            if epoch != self._epoch or (entries and _position(entries[0][0]) != self._head + 1):
                epoch, entries = await self._beyond(0)
                self._copy.clear()
                self._epoch = epoch
                self._head = _position(entries[0][0]) - 1 if entries else 0
            for number, fields in entries:
                held = _load(fields[b"event"])
                self._copy.append(held)
                self._head = _position(number)
                if tell:
                    self._subscriptions.push(held)

    async def _beyond(self, position: int) -> tuple[str, list[tuple[bytes, dict[bytes, bytes]]]]:
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.get(_EPOCH)
                pipe.xrange(_STREAM, f"({position}-0")
                epoch, entries = await pipe.execute()
        return (epoch or b"").decode(), entries


def _position(number: bytes) -> int:
    return int(number.partition(b"-")[0])


def _dump(held: Held) -> str:
    event = held.event
    return json.dumps(
        {
            "kind": event.kind,
            "fields": dict(event.fields),
            "owners": [*event.owners],
            "ids": None if event.ids is None else [[i, owner] for i, owner in event.ids.items()],
            "tallies": {name: [[o, n] for o, n in tally.items()] for name, tally in event.tallies.items()},
            "at": held.at,
            "background": held.background,
        }
    )


def _load(text: bytes) -> Held:
    told = json.loads(text)
    event = Event(
        Kind(told["kind"]),
        told["fields"],
        frozenset(told["owners"]),
        None if told["ids"] is None else dict(told["ids"]),
        {name: dict(tally) for name, tally in told["tallies"].items()},
    )
    return Held(event, told["at"], told["background"])
