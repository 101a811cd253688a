"""One message in, one answer out: what the HTTP and the stdio server have in common."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Protocol, cast

from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, Code, JsonObject
from a2m_server.audit import AuditLog
from a2m_server.auditing import entry_of
from a2m_server.identity import Peer
from a2m_server.metrics import Metrics
from a2m_server.rates import Rates
from a2m_server.values import Degraded

log = logging.getLogger(__name__)


class Handler(Protocol):
    """What a server serves; the dispatcher is one."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def handle(self, message: object, peer: Peer) -> JsonObject | None:
        """The response to a parsed message, None to a notification."""
        ...

    async def describe(self, peer: Peer) -> JsonObject: ...

    async def ready(self) -> Sequence[Degraded] | None:
        """As of `MemoryStore`."""
        ...


class Exchange:
    """Answers raw messages: parses, handles within `timeout` seconds, and never raises.

    An exception that is no `A2MError` is logged with a request id, and answered as -32603 with that id. What
    writes, removes or is denied is noted in the `audit` log, where there is one. A call beyond the `rates` of
    its caller is refused.
    """

    def __init__(
        self,
        handler: Handler,
        timeout: float,
        metrics: Metrics,
        audit: AuditLog | None = None,
        rates: Rates | None = None,
    ) -> None:
        self._handler = handler
        self._timeout = timeout
        self._metrics = metrics
        self._audit = audit
        self._rates = rates

    async def answer(self, data: bytes | bytearray, peer: Peer) -> bytes | None:
        """The response to one message as JSON, or None to a notification."""
        started = time.perf_counter()
        message: object = None
        try:
            message = jsonrpc.decode(data)
            response = await self._handle(message, peer)
            encoded = None if response is None else jsonrpc.encode(response)
        except A2MError as error:
            response = _refusal(message, error)
            encoded = None if response is None else jsonrpc.encode(response)
        except Exception:  # noqa: BLE001 the outermost loop: a bug in one request must not end the server
            response = _refusal(message, _logged())
            encoded = None if response is None else jsonrpc.encode(response)
        except asyncio.CancelledError:
            self._note(message, None, peer)
            raise
        self._note(message, response, peer)
        self._metrics.count(_method(message, response), _code(response), time.perf_counter() - started)
        return encoded

    def _note(self, message: object, response: JsonObject | None, peer: Peer) -> None:
        if self._audit is not None and (entry := entry_of(message, response, peer)) is not None:
            self._audit.note(entry)
        peer.removed.clear()

    async def admit(self, peer: Peer) -> None:
        """Raise -32006 for a call too many."""
        if self._rates is not None:
            await self._rates.admit(peer.caller)

    async def _handle(self, message: object, peer: Peer) -> JsonObject | None:
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                await self.admit(peer)
                return await self._handler.handle(message, peer)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise A2MError(
                Code.INTERNAL,
                f"no result within {self._timeout:g} s: the call may still have taken effect, so repeat it "
                "with the same ids",
                {"retryable": True},
            ) from error


def _logged() -> A2MError:
    request = secrets.token_hex(6)
    log.exception("request %s failed", request)
    return A2MError(
        Code.INTERNAL,
        f"internal error: the server's log says more about request {request}",
        {"request": request},
    )


def _refusal(message: object, error: A2MError) -> JsonObject | None:
    if isinstance(message, dict) and "method" in message and "id" not in message:
        return None
    return jsonrpc.failure(jsonrpc.id_of(message), error)  # pyright: ignore[reportUnknownArgumentType] JSON


def _method(message: object, response: JsonObject | None) -> str:
    if response is None:
        return "notification"
    name = cast("JsonObject", message).get("method") if isinstance(message, dict) else None
    return name if isinstance(name, str) else ""


def _code(response: JsonObject | None) -> int:
    error = response.get("error") if response is not None else None
    code = error.get("code") if isinstance(error, dict) else 0
    return code if isinstance(code, int) else 0
