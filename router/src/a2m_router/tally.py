"""What owners hold, as several routers count it together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from redis.asyncio import Redis

from a2m_router.link import PREFIX, translated

_DAY = 86_400

# Nothing is added to what nobody has measured: a sum that begins at nothing would be believed.
_ADD = """
local totals = {}
for at, key in ipairs(KEYS) do
  totals[at] = redis.call('EXISTS', key) == 1 and redis.call('INCRBY', key, ARGV[at]) or false
end
return totals
"""


class SharedTally:
    """A `Tally` in the Redis that routers share; an owner that nobody measures for a day is let go of."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def add(self, added: Mapping[str, int]) -> Mapping[str, int]:
        owners = [*added]
        keys = [_key(owner) for owner in owners]
        with translated():
            answer = cast("Any", self._redis.eval(_ADD, len(keys), *keys, *(str(added[o]) for o in owners)))
            totals: list[int | None] = await answer
        return {owner: int(n) for owner, n in zip(owners, totals, strict=True) if n is not None}

    async def put(self, owner: str, total: int) -> None:
        with translated():
            await self._redis.set(_key(owner), total, ex=_DAY)


def _key(owner: str) -> str:
    return f"{PREFIX}held:{owner}"
