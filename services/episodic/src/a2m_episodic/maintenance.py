"""What is done in the background: the index of vectors, statistics of words, tombstones that expired."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from psycopg.rows import DictRow

from a2m_episodic.database import SCHEMA, Connection, Database, rows, single
from a2m_episodic.embedding import WIDTH_LOCK, dimensions
from a2m_episodic.indexes import build_index, is_indexed
from a2m_episodic.queries import query
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.state import State
from a2m_episodic.terms import analyse, text_of
from a2m_episodic.values import lock_number

log = logging.getLogger(__name__)

STEP = 500
COMMON = 500
"""Terms in fewer records than this are counted when they are asked for."""
CHURN = 0.05
MIN_CHURN = 200
DRIFT = 0.1
PASSES = 2
"""Looks for weights to bake again: another process may write a few old ones after the first."""
SWEEP = 600.0

_LOCK = lock_number("maintenance", SCHEMA)


class Maintenance:
    """A task that works in small steps; over several processes one of them works at a time."""

    def __init__(self, database: Database, settings: EpisodicSettings, state: State) -> None:
        self._database = database
        self._settings = settings
        self._state = state
        self._stepping = asyncio.Lock()
        self._passes = PASSES
        self._swept = -SWEEP
        self._ended = False

    async def run(self) -> None:
        """Work at once, then whenever there is a reason, and every `maintenance_interval` seconds.

        Cancel it after `end`: a driver may turn the cancellation into an error of its own.
        """
        self._ended = False
        while not self._ended:
            self._state.work.clear()
            try:
                await self.step()
            except Exception:
                # The outermost loop of a background task: the next round tries again.
                log.exception("the maintenance of %s failed", self._settings.name)
            try:
                async with asyncio.timeout(self._settings.maintenance_interval):
                    await self._state.work.wait()
            except TimeoutError:
                pass

    def end(self) -> None:
        """Begin no other round."""
        self._ended = True
        self._state.work.set()

    async def step(self) -> None:
        """Do all that is due; nothing if another process is doing it."""
        async with self._stepping, single(self._settings) as connection:
            await self._database.configure(connection)
            [locked] = await rows(connection, query("maintain", "try_lock"), {"number": _LOCK})
            if locked["mine"]:
                await self._purge(connection)
                await self._count(connection)
                await self._bake(connection)
                await self._index(connection)
                await rows(connection, query("maintain", "unlock"), {"number": _LOCK})
            [corpus] = await rows(connection, query("maintain", "corpus"))
            self._state.baked = corpus["baked"]
            if self._state.dimensions is not None and not self._state.indexed:
                self._state.indexed = await is_indexed(
                    connection, self._settings.metric, self._state.dimensions
                )

    async def _index(self, connection: Connection) -> None:
        # An index of another width than that of the vectors would keep them from being written.
        await rows(connection, query("embed", "hold"), {"number": WIDTH_LOCK})
        try:
            width = await dimensions(connection)
            if width is not None and await build_index(connection, self._settings.metric, width):
                log.info("%s built its index of vectors", self._settings.name)
        finally:
            await rows(connection, query("embed", "release"), {"number": WIDTH_LOCK})

    async def _purge(self, connection: Connection) -> None:
        seconds = self._settings.tombstone_days * 86_400
        await _drain(
            lambda: rows(
                connection, query("maintain", "purge_tombstones"), {"seconds": seconds, "limit": STEP}
            )
        )
        if time.monotonic() - self._swept > SWEEP:
            self._swept = time.monotonic()
            await _drain(lambda: rows(connection, query("maintain", "purge_buckets"), {"limit": STEP}))

    async def _count(self, connection: Connection) -> None:
        """Count records and common terms again when enough of them changed."""
        [corpus] = await rows(connection, query("maintain", "corpus"))
        changed = corpus["given"] + corpus["deleted"] - corpus["churn"]
        if 0 <= changed < MIN_CHURN + CHURN * corpus["documents"]:
            return
        async with connection.transaction():
            [measured] = await rows(connection, query("maintain", "measure"))
            mean, baked = measured["mean"], corpus["baked"]
            if mean and abs(mean / baked - 1) > DRIFT:
                baked = mean
                self._passes = PASSES
            await connection.execute(query("maintain", "clear_frequencies").encode())
            await connection.execute(query("maintain", "count_frequencies").encode(), {"common": COMMON})
            values = {
                "documents": measured["documents"],
                "mean": mean,
                "baked": baked,
                # Numbers are given before they are committed: only what was seen counts as counted.
                "churn": measured["last"] + corpus["deleted"],
            }
            await connection.execute(query("maintain", "put_corpus").encode(), values)

    async def _bake(self, connection: Connection) -> None:
        """Bring weights that assume another mean length up to date."""
        if not self._passes:
            return
        self._passes -= 1
        [corpus] = await rows(connection, query("maintain", "corpus"))
        after = -1
        while True:
            values = {"after": after, "baked": corpus["baked"], "limit": STEP}
            found = await rows(connection, query("maintain", "unbaked"), values)
            if not found:
                return
            baked = await asyncio.to_thread(_baked, found, corpus["baked"])
            await connection.cursor().executemany(query("maintain", "bake").encode(), baked)
            after = found[-1]["pk"]


def _baked(found: Sequence[DictRow], mean: float) -> list[dict[str, object]]:
    baked: list[dict[str, object]] = []
    for row in found:
        metadata = None if row["metadata"] is None else json.loads(row["metadata"])
        analysis = analyse(text_of(row["content"], metadata), mean)
        baked.append(
            {
                "pk": row["pk"],
                "baked": mean,
                "weights": analysis.weights,
                "marks": analysis.marks,
            }
        )
    return baked


async def _drain(step: Callable[[], Awaitable[list[dict[str, object]]]]) -> None:
    while len(await step()) >= STEP:
        pass
