"""What several routers over the same tiers have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from a2m_router.eventstream import EventStream
from a2m_router.leases import Leases
from a2m_router.link import connect
from a2m_router.roster import SharedReaders
from a2m_router.tally import SharedTally


class Shared:
    """Locks, readers and events over one Redis or Valkey; use as an async context manager.

    `patience` is how long a read may take, and `lease` how long a router that died keeps what it held, both
    in seconds. Raises `ValueError` for an unusable URL.
    """

    def __init__(self, url: str, patience: float, lease: float) -> None:
        self._redis = connect(url)
        self.locks = Leases(self._redis, lease)
        self.readers = SharedReaders(self._redis, patience, lease / 10)
        self.events = EventStream(self._redis)
        self.tally = SharedTally(self._redis)

    async def __aenter__(self) -> Self:
        try:
            await self.readers.open()
            await self.events.open()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.events.close()
        await self.readers.close()
        await self._redis.aclose()
