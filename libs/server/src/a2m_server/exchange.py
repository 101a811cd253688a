"""One message in, one answer out: what the HTTP and the stdio server have in common."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol, cast

from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, Code, Json, JsonObject
from a2m_server import requests, tracing
from a2m_server.audit import AuditLog
from a2m_server.auditing import entry_of
from a2m_server.identity import Peer
from a2m_server.metrics import Metrics, known
from a2m_server.rates import Rates
from a2m_server.requests import Request
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

    Each request is a line in the log, without anything that it holds. An exception that is no `A2MError` is
    logged with the request's id, and answered as -32603 with that id. What writes, removes or is denied is
    noted in the `audit` log, where there is one. A call beyond the `rates` of its caller is refused.
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
        request = requests.current()
        if request is None:
            with requests.under_way(Request()) as request:
                return await self._answer(data, peer, request)
        return await self._answer(data, peer, request)

    async def _answer(self, data: bytes | bytearray, peer: Peer, request: Request) -> bytes | None:
        with (
            tracing.joined(request.parent),
            tracing.answering(request.id) as span,
            self._metrics.under_way(),
        ):
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
                response = _refusal(message, _logged(request))
                encoded = None if response is None else jsonrpc.encode(response)
            except asyncio.CancelledError:
                self._note(message, None, peer)
                _tell(request, known(_method(message)), "cancelled", time.perf_counter() - started)
                raise
            self._note(message, response, peer)
            method, code = known(_method(message)), _code(response)
            seconds = time.perf_counter() - started
            self._metrics.count(method if response is not None else "notification", code, seconds)
            if response is not None and "result" in response:
                self._metrics.read(method, found=_found(response))
            if span is not None:
                span.answered(method, code)
            _tell(request, method, None if response is None else code, seconds)
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


def _logged(request: Request) -> A2MError:
    log.exception("request %s failed", request.id)
    return A2MError(
        Code.INTERNAL,
        f"internal error: the server's log says more about request {request.id}",
        {"request": request.id},
    )


def _tell(request: Request, method: str, code: Json, seconds: float) -> None:
    """The line of a request, whoever asks; the code is null of a notification, whose end nobody awaits."""
    if not log.isEnabledFor(logging.INFO):
        request.logged = True
        return
    fields: JsonObject = {"method": method, "code": code, "ms": round(seconds * 1e3, 2)}
    if request.tiers:
        fields["tiers"] = [*request.tiers]
    log.info("answered", extra={"fields": fields})
    request.logged = True


def _refusal(message: object, error: A2MError) -> JsonObject | None:
    if isinstance(message, dict) and "method" in message and "id" not in message:
        return None
    return jsonrpc.failure(jsonrpc.id_of(message), error)  # pyright: ignore[reportUnknownArgumentType] JSON


def _method(message: object) -> str:
    name = cast("JsonObject", message).get("method") if isinstance(message, dict) else None
    return name if isinstance(name, str) else ""


def _code(response: JsonObject | None) -> int:
    error = response.get("error") if response is not None else None
    code = error.get("code") if isinstance(error, dict) else 0
    return code if isinstance(code, int) else 0


def _found(response: JsonObject) -> bool:
    """Whether a read found a record."""
    result = response["result"]
    return isinstance(result, dict) and bool(result.get("records") or result.get("record"))
