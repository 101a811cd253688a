"""How long is waited for a model behind an endpoint: its silence must not be that of all who ask it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from a2m_protocol.errors import A2MError, unavailable

T = TypeVar("T")

AWAY = 10.0
"""Seconds after a call without an answer until the next one is tried."""


class Patience:
    """Bounds calls to `name`, in `seconds`; nobody waits for what did not answer `AWAY` seconds ago."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._away_until: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the last call had no answer, and the next is not tried yet."""
        return self._away_until is not None and time.monotonic() < self._away_until

    def answered(self) -> None:
        self._away_until = None

    async def wait(self, call: Awaitable[T]) -> T:
        """The answer to a call; raises its error, or a retryable one where time runs out.

        While others wait, one call alone tries whether there are answers again.
        """
        if self._away_until is not None:
            self._away_until = time.monotonic() + self._seconds + AWAY
        deadline = asyncio.timeout(self._seconds)
        try:
            async with deadline:
                answer = await call
        except TimeoutError as error:
            if not deadline.expired():
                raise
            self._away_until = time.monotonic() + AWAY
            raise unavailable(self._name, f"no answer within {self._seconds:g} s") from error
        except A2MError as error:
            if error.retryable:
                self._away_until = time.monotonic() + AWAY
            raise
        self.answered()
        return answer
