"""Locks that several routers share: leases in Redis, renewed while they are held."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

from redis.asyncio import Redis

from a2m_protocol.errors import A2MError
from a2m_router.coordination import Locks
from a2m_router.link import PREFIX, translated

_PAUSES = (0.01, 0.05)

# Leases are taken in the order given, up to the first that is another's: as with any ordered locks, no two
# holders can wait for each other. Taking one again that is one's own renews it.
_TAKE = """
for at, key in ipairs(KEYS) do
  if not redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2]) then
    if redis.call('GET', key) ~= ARGV[1] then return at - 1 end
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return #KEYS
"""
_DROP = """
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
"""

log = logging.getLogger(__name__)


class Leases(Locks):
    """Locks over several routers.

    A router that dies keeps others waiting for `seconds` at most. One that is merely slow may lose a lease
    while it goes on: the guards of each step of a move are made for that. Raises a retryable error where
    Redis does not answer.
    """

    def __init__(self, redis: Redis, seconds: float) -> None:
        super().__init__()
        self._redis = redis
        self._seconds = seconds
        self._take = redis.register_script(_TAKE)
        self._drop = redis.register_script(_DROP)

    @asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncGenerator[None]:
        wanted = sorted(set(names))
        async with super().hold(wanted):
            keys = [_key(name) for name in wanted]
            token = secrets.token_hex(16)
            try:
                while await self._taken(keys, token) < len(keys):  # noqa: ASYNC110 polls another machine
                    await asyncio.sleep(random.uniform(*_PAUSES))  # noqa: S311 no secret
                async with self._renewing(keys, token):
                    yield
            finally:
                await self._give_back(keys, token)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncGenerator[bool]:
        async with super().alone(name) as here:
            keys = [_key(name)] if here else []
            token = secrets.token_hex(16)
            try:
                got = here and await self._taken(keys, token) == 1
                async with self._renewing(keys if got else [], token):
                    yield got
            finally:
                await self._give_back(keys, token)

    async def _taken(self, keys: Sequence[str], token: str) -> int:
        """Take leases in order, or renew them; how many are held."""
        if not keys:
            return 0
        with translated():
            return int(await cast("Awaitable[int]", self._take(keys, [token, int(self._seconds * 1_000)])))

    @asynccontextmanager
    async def _renewing(self, keys: Sequence[str], token: str) -> AsyncGenerator[None]:
        if not keys:
            yield
            return
        over = asyncio.Event()
        renewing = asyncio.create_task(self._renew(keys, token, over))
        try:
            yield
        finally:
            over.set()
            await renewing

    async def _renew(self, keys: Sequence[str], token: str, over: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds / 3):
                    await over.wait()
                    return
            try:
                if await self._taken(keys, token) < len(keys):
                    log.warning("a lease was lost to another router; the guards of each step take over")
            except A2MError as error:
                log.warning("leases could not be renewed: %s", error.message)

    async def _give_back(self, keys: Sequence[str], token: str) -> None:
        if not keys:
            return
        try:
            with translated():
                await cast("Awaitable[object]", self._drop(keys, [token]))
        except A2MError as error:
            log.warning("leases could not be given back and end by themselves: %s", error.message)


def _key(name: str) -> str:
    """A name as a key: names hold owners and keys of any length."""
    return f"{PREFIX}lease:{hashlib.sha256(name.encode()).hexdigest()}"
