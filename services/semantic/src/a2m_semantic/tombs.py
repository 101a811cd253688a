"""The end of tombstones: a few old ones are removed beside a write, at most once a minute."""

from __future__ import annotations

from a2m_semantic.engine import All, AnyOf, Between, Engine, Points
from a2m_semantic.points import GRAVE

EVERY_MS = 60_000
AT_ONCE = 256


class Sweeper:
    """Removes tombstones that are older than `age_ms`."""

    def __init__(self, engine: Engine, age_ms: int) -> None:
        self._engine = engine
        self._age_ms = age_ms
        self._next_ms = 0

    async def sweep(self, now: int) -> None:
        if now < self._next_ms:
            return
        old = All((AnyOf("state", (GRAVE,)), Between("grave_ms", lt=float(now - self._age_ms))))
        found, following = await self._engine.scroll(old, [], AT_ONCE)
        if found:
            # By age again: another service may have written one of the ids anew meanwhile.
            await self._engine.delete(All((Points(tuple(one.id for one in found)), old)))
        self._next_ms = now if following is not None else now + EVERY_MS
