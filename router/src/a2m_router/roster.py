"""Which routers there are, so that a move waits for the reads of all of them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import cast

from redis.asyncio import Redis

from a2m_protocol.errors import A2MError
from a2m_router.coordination import Readers
from a2m_router.link import PREFIX, translated

SILENT_BEATS = 5
"""After so many beats without Redis a router says in its answers that it is cut off."""
GONE_BEATS = 10
"""After so many a router counts as dead: moves wait for it no longer."""

_ROUTERS = f"{PREFIX}routers"
_REQUESTS = f"{PREFIX}drain:"
_ANSWERS = f"{PREFIX}drained:"
_KEPT_SECONDS = 60

log = logging.getLogger(__name__)


class SharedReaders(Readers):
    """Readers over several routers: a mover asks each of the others to say when its reads have ended.

    One that does not say so (it died a moment ago) is waited for as long as a read may take. `beat` is how
    often a router makes itself known, in seconds.
    """

    def __init__(self, redis: Redis, patience: float, beat: float) -> None:
        super().__init__(patience)
        self._redis = redis
        self._beat = beat
        self._me = secrets.token_hex(8)
        self._heard = time.monotonic()
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Make this router known; raises a retryable error when Redis does not answer."""
        await self._say_so()
        self._tasks = [asyncio.create_task(self._beating()), asyncio.create_task(self._answering())]

    async def close(self) -> None:
        # The driver may answer a cancellation with an error of its own: the loops look at this too.
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(A2MError), translated():
            await self._redis.hdel(_ROUTERS, self._me)

    @property
    def cut_off(self) -> str | None:
        """Why a read may miss what is being moved, or None: other routers may wait for this one no longer."""
        silent = time.monotonic() - self._heard
        if silent <= SILENT_BEATS * self._beat:
            return None
        return f"the database that the routers share has not answered for {silent:.0f} s"

    async def others(self) -> int:
        with translated():
            return len({*await self._routers()} - {self._me})

    async def drained(self) -> bool:
        """Wait until every read of this moment has ended on every router; False when the patience ran out."""
        mine, theirs = await asyncio.gather(super().drained(), self._others_drained())
        return mine and theirs

    async def _others_drained(self) -> bool:
        request = secrets.token_hex(8)
        with translated():
            others = [name for name in await self._routers() if name != self._me]
            if not others:
                return True
            async with self._redis.pipeline(transaction=False) as pipe:
                for name in others:
                    pipe.rpush(_REQUESTS + name, request)
                    pipe.expire(_REQUESTS + name, _KEPT_SECONDS)
                await pipe.execute()
        deadline = time.monotonic() + self._patience
        waiting = set(others)
        while waiting:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with translated():
                answer = await cast(
                    "Awaitable[list[bytes] | None]", self._redis.blpop([_ANSWERS + request], min(left, 1.0))
                )
                if answer is not None:
                    waiting.discard(answer[1].decode())
                else:
                    waiting &= {*await self._routers()}
        return True

    async def _routers(self) -> list[str]:
        """The routers that were heard of lately; those of long ago are struck off."""
        now, heard = (
            await self._now(),
            await cast("Awaitable[dict[bytes, bytes]]", self._redis.hgetall(_ROUTERS)),
        )
        old = {name for name, at in heard.items() if now - float(at) > GONE_BEATS * self._beat}
        if old:
            await self._redis.hdel(_ROUTERS, *(name.decode() for name in old))
        return [name.decode() for name in heard if name not in old]

    async def _now(self) -> float:
        seconds, micros = await self._redis.time()  # pyright: ignore[reportUnknownMemberType] its stubs leave the options open
        return seconds + micros / 1e6

    async def _say_so(self) -> None:
        with translated():
            await self._redis.hset(_ROUTERS, self._me, str(await self._now()))
        self._heard = time.monotonic()

    async def _beating(self) -> None:
        while not self._closed:
            await asyncio.sleep(self._beat)
            try:
                await self._say_so()
            except A2MError as error:
                log.warning("this router cannot make itself known: %s", error.message)

    async def _answering(self) -> None:
        """Take the requests of other routers and answer each once the reads of now have ended."""
        answering: set[asyncio.Task[None]] = set()
        try:
            while not self._closed:
                try:
                    with translated():
                        asked = await cast(
                            "Awaitable[list[bytes] | None]", self._redis.blpop([_REQUESTS + self._me], 1.0)
                        )
                except A2MError:
                    # The beat tells of it.
                    await asyncio.sleep(self._beat)
                    continue
                if asked is not None:
                    task = asyncio.create_task(self._answer(asked[1].decode()))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
        finally:
            for task in answering:
                task.cancel()

    async def _answer(self, request: str) -> None:
        if not await super().drained():
            return
        try:
            with translated():
                async with self._redis.pipeline(transaction=False) as pipe:
                    pipe.rpush(_ANSWERS + request, self._me)
                    pipe.expire(_ANSWERS + request, _KEPT_SECONDS)
                    await pipe.execute()
        except A2MError as error:
            log.warning("another router waits for its patience to end: %s", error.message)
