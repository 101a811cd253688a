"""How much a store holds, for Prometheus: measured now and then, however often it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Gauge

from a2m_protocol.errors import A2MError

log = logging.getLogger(__name__)

INTERVAL = 15.0
"""Seconds for which a measure is good enough."""
REST = 100.0
"""One that took long is good for so many times as long: measuring is a hundredth of the work."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a store holds, as far as its engine can say without looking at every record.

    `bytes` are those it takes in its engine (of Redis, in memory), `limit` those that it could take at most.
    `waiting` is how many calls wait for a connection.
    """

    records: int
    bytes: int | None = None
    limit: int | None = None
    waiting: int | None = None


@runtime_checkable
class Measured(Protocol):
    """A store, or what serves one, that knows its size; None where it does not."""

    async def size(self) -> Size | None: ...


class Sizes:
    """Gauges of one tier: what is not known has no value, what was known stays while it does not answer."""

    def __init__(self, registry: CollectorRegistry, tier: str, seconds: float) -> None:
        """`seconds` bounds how long a scrape waits."""
        self._tier = tier
        self._seconds = seconds
        self._due = 0.0
        self._measuring = asyncio.Lock()
        self._records = _gauge(registry, "a2m_records", "Records that a tier holds.")
        self._bytes = _gauge(registry, "a2m_bytes", "Bytes that a tier takes in its engine.")
        self._limit = _gauge(registry, "a2m_bytes_limit", "Bytes that a tier can take at most.")
        self._waiting = _gauge(
            registry, "a2m_database_waiting", "Calls that wait for a connection to the database."
        )
        self._up = _gauge(registry, "a2m_database_up", "1 while a tier's database answers, else 0.")

    async def measure(self, of: Measured) -> None:
        """Bring the gauges up to date, where the last measure is too old."""
        async with self._measuring:
            began = time.monotonic()
            if began < self._due:
                return
            try:
                async with asyncio.timeout(self._seconds):
                    size = await of.size()
            except (A2MError, TimeoutError) as error:
                log.debug("the size is not known: %s", type(error).__name__)
                self._up.labels(self._tier).set(0)
            else:
                if size is not None:
                    self._set(size)
            ended = time.monotonic()
            self._due = ended + max(INTERVAL, REST * (ended - began))

    def _set(self, size: Size) -> None:
        self._up.labels(self._tier).set(1)
        self._records.labels(self._tier).set(size.records)
        for gauge, value in (
            (self._bytes, size.bytes),
            (self._limit, size.limit),
            (self._waiting, size.waiting),
        ):
            if value is not None:
                gauge.labels(self._tier).set(value)


def space(folder: Path) -> tuple[int, int]:
    """Bytes that a folder takes on its disk, and those that it could with all that is free there."""
    taken = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # What is gone was replaced meanwhile.
            with contextlib.suppress(FileNotFoundError):
                taken += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118 many of them
    disk = os.statvfs(folder)
    return taken, taken + disk.f_bavail * disk.f_frsize


def _gauge(registry: CollectorRegistry, name: str, told: str) -> Gauge:
    return Gauge(name, told, ["tier"], registry=registry)
