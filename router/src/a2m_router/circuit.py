"""A circuit breaker before a tier: nobody waits for one that is known not to answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import TypeVar

from circuitbreaker import CircuitBreaker

from a2m_protocol.errors import A2MError, Code, TransportError

T = TypeVar("T")

FAILURES = 3

log = logging.getLogger(__name__)


def _is_failure(_: type[BaseException], error: BaseException) -> bool:
    """Whether a tier did not answer, or answered that its database does not; a refusal is an answer."""
    return isinstance(error, A2MError) and error.retryable and error.code == Code.INTERNAL


class OpenCircuitError(TransportError):
    """A tier was not asked, since it is known not to answer."""


class Circuit:
    """Lets calls through while a tier answers; after `FAILURES` in a row it fails them at once.

    While it is open, `probe` looks for the tier every `interval` seconds, whether the look before has ended
    or not, and the first that succeeds closes it: no call of a user's is risked for that.
    """

    def __init__(self, name: str, probe: Callable[[], Awaitable[object]], interval: float) -> None:
        self._name = name
        self._probe = probe
        self._interval = interval
        # What follows an open circuit is ours: the library's own trial would be a caller's call.
        self._breaker = CircuitBreaker(FAILURES, recovery_timeout=interval, expected_exception=_is_failure)
        self._recovery: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether the tier is known not to answer."""
        return not self._breaker.closed

    @property
    def reason(self) -> str:
        """Why a tier is not asked, for those who would."""
        return f"tier {self._name} does not answer; it is looked for every {self._interval:g} s: try again"

    async def call(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask, unless the circuit is open; raises `OpenCircuitError` then."""
        if self.open:
            raise OpenCircuitError(self.reason, maybe_received=False)
        try:
            answer = await question()
        except A2MError as error:
            self._record(error)
            raise
        self._record(None)
        return answer

    async def close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)

    def _record(self, error: A2MError | None) -> None:
        """Tell the breaker how a call ended; one that was given up says nothing of the tier."""
        with suppress(A2MError), self._breaker:
            if error is not None:
                raise error
        if self.open and (self._recovery is None or self._recovery.done()):
            log.warning("%s: %s", self.reason, error and error.message)
            # Not in the context of the request that was last: probes are no part of it.
            self._recovery = asyncio.create_task(self._recover(), context=Context())

    async def _recover(self) -> None:
        looking: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(self._interval)
                if not self.open:
                    return
                look = asyncio.create_task(self._look())
                looking.add(look)
                look.add_done_callback(looking.discard)
        finally:
            for look in looking:
                look.cancel()
            await asyncio.gather(*looking, return_exceptions=True)

    async def _look(self) -> None:
        try:
            await self._probe()
        except A2MError as error:
            if _is_failure(type(error), error):
                return
        if self.open:
            log.info("tier %s answers again", self._name)
        self._breaker.reset()
