"""How often a caller may call: counted in this process, or where several servers share a Redis, in that."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, cast

from limits import RateLimitItem, parse_many
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError

from a2m_protocol.errors import A2MError, Code
from a2m_server.identity import Caller

NOBODY = "-"
"""Stands for all callers that are not told apart."""
AWAY = 5.0
"""Seconds without a look for a Redis that did not answer."""

log = logging.getLogger(__name__)


def rates_of(text: str) -> tuple[RateLimitItem, ...]:
    """Rates such as `20/second; 10000/hour`; raises `ValueError`."""
    rates = tuple(parse_many(text))
    if not all(rate.amount for rate in rates):
        raise ValueError("a rate of none at all")
    return rates


class Rates:
    """Refuses calls beyond any of the rates; each principal has its own, and a trusted caller none.

    With a `url` (`redis://...`) all servers that name it count together, which costs a call one exchange with
    it for each rate. While that does not answer, each server counts for itself, and looks again after `AWAY`.
    """

    def __init__(self, rates: str, url: str | None = None) -> None:
        self._rates = rates_of(rates)
        self._own = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._storage: RedisStorage | None = None
        self._shared: SlidingWindowCounterRateLimiter | None = None
        self._away_until = 0.0
        if url is not None:
            self._storage = RedisStorage(
                f"async+{url}",
                wrap_exceptions=True,
                implementation="redispy",
                key_prefix="{a2m-rates}",
                socket_timeout=1.0,
                socket_connect_timeout=1.0,
            )
            self._shared = SlidingWindowCounterRateLimiter(self._storage)

    async def close(self) -> None:
        if self._storage is not None:
            # It closes nothing by itself, and its client is of either of two libraries.
            await cast("Any", self._storage.bridge).get_connection().aclose()

    async def admit(self, caller: Caller) -> None:
        """Count a call; raises -32006, which says how many seconds to wait, for one too many."""
        if caller.trusted:
            return
        name = NOBODY if caller.name is None else f"={caller.name}"
        for rate in self._rates:
            until = await self._beyond(rate, name)
            if until is not None:
                seconds = max(1, math.ceil(until - time.time()))
                raise A2MError(
                    Code.QUOTA_EXCEEDED,
                    f"more calls than {rate}: wait {seconds} s, and repeat it with the same ids",
                    {"retryable": True, "retry_after": seconds},
                )

    async def _beyond(self, rate: RateLimitItem, name: str) -> float | None:
        """When the next call is admitted, if this one is not."""
        if self._shared is not None and time.monotonic() >= self._away_until:
            try:
                return await _counted(self._shared, rate, name)
            except StorageError as error:
                self._away_until = time.monotonic() + AWAY
                log.warning("rates are counted by this server alone: %s", error.storage_error)
        return await _counted(self._own, rate, name)


async def _counted(limiter: SlidingWindowCounterRateLimiter, rate: RateLimitItem, name: str) -> float | None:
    if await limiter.hit(rate, name):
        return None
    return (await limiter.get_window_stats(rate, name)).reset_time
