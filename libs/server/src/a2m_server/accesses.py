"""Accesses that recalls counted, written to the store in the background."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextvars import Context

from a2m_protocol.errors import A2MError
from a2m_server import tracing
from a2m_server.store import MemoryStore

log = logging.getLogger(__name__)

MAX_PENDING = 20_000
PATIENCE = 0.1
"""Seconds that a read waits for accesses counted before it."""


class Accesses:
    """Counts accesses off the response path, those of several recalls in one call to the store.

    At most `MAX_PENDING` are kept while the store is slow; beyond it the oldest are not counted. What the
    store refuses is logged and not counted.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._pending: deque[str] = deque(maxlen=MAX_PENDING)
        self._at = ""
        self._written: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._hangs = False

    def count(self, ids: Sequence[str], at: str) -> None:
        """One access of each id at a time."""
        if not ids:
            return
        if not self._pending:
            self._written = asyncio.get_running_loop().create_future()
        self._pending.extend(ids)
        self._at = at
        if self._task is None or self._task.done():
            # Not in the context of a request: it has its end before this, and others count here too.
            self._task = asyncio.create_task(self._write(), context=Context())

    async def settle(self) -> None:
        """Wait, for a moment at most, until what was counted before is written.

        Where that took too long, nobody waits until the store has answered again.
        """
        written = self._written
        if written is not None and not written.done() and not self._hangs:
            _, late = await asyncio.wait([written], timeout=PATIENCE)
            self._hangs = bool(late)

    async def flush(self) -> None:
        """Wait until all that was counted is written."""
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        while self._pending:
            ids = [*self._pending]
            written = self._written
            self._pending.clear()
            try:
                with tracing.working("accesses"):
                    await self._store.touch(ids, self._at)
            except A2MError as error:
                log.warning("%d accesses were not counted: %s", len(ids), error.message)
            finally:
                self._hangs = False
                if written is not None:
                    written.set_result(None)
