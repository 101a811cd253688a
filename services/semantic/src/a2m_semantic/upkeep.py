"""Points that an earlier version put in, brought to what filters look at now, some at a time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from a2m_protocol.errors import A2MError, unavailable
from a2m_protocol.types import PROVENANCE
from a2m_protocol.where import Where
from a2m_semantic.engine import All, AnyOf, Engine, Not
from a2m_semantic.points import FORM, LIVE, WHOLE, decode
from a2m_semantic.writing import Writer

CHUNK = 128
PAUSE = 1.0
"""Seconds until it is tried again when the engine did not take it."""

_OLD = All((AnyOf("state", LIVE), Not(AnyOf("tokens", (FORM,)))))

log = logging.getLogger(__name__)


class Upkeep:
    """A task that others write beside; a start after a crash goes on where it ended."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer
        self._done = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        left = await self._engine.count(_OLD)
        self._done = not left
        if left:
            log.info("%d records are brought up to date for filters on their provenance", left)
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def check(self, where: Where) -> None:
        """Raise a retryable error for a filter that would not find every record yet."""
        if not self._done and any(c.metadata and c.field in PROVENANCE for c in where.conditions):
            raise unavailable("the semantic tier", "its records are brought up to date for this filter")

    async def _run(self) -> None:
        while not self._done:
            try:
                await self._writer.alone(self._step)
            except A2MError as error:
                log.warning("records are not brought up to date: %s", error.message)
                await asyncio.sleep(PAUSE)

    async def _step(self) -> None:
        found, _ = await self._engine.scroll(_OLD, WHOLE, CHUNK)
        batch = self._writer.batch(map(decode, found))
        batch.renew()
        await self._writer.store(batch)
        self._done = not found
