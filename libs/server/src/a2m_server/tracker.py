"""The outermost layer of the HTTP server: each request has an id, and a line where nobody else wrote it."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from a2m_server import requests, tracing
from a2m_server.metrics import Metrics

log = logging.getLogger(__name__)

WATCHERS = frozenset({"/healthz", "/readyz", "/metrics"})
"""What is asked all the time by those who watch over a server, and says enough by its answer."""
_CARRIED = frozenset(name.encode() for name in (requests.HEADER, *tracing.CARRIED))


class Tracker:
    """ASGI middleware that knows each request by an `x-request-id`, its own or one made here, and answers so.

    A request that was answered before JSON-RPC began is logged and counted here, by its status.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = requests.told(
            {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _CARRIED}
        )
        identity = (requests.HEADER.encode(), request.id.encode())
        started, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), identity]
            await send(message)

        with requests.under_way(request):
            try:
                await self._app(scope, receive, sending)
            finally:
                if not request.logged:
                    self._note(scope["path"], status, time.perf_counter() - started)

    def _note(self, path: str, status: int, seconds: float) -> None:
        watched = path in WATCHERS
        fields = {"method": "HTTP", "code": status, "ms": round(seconds * 1e3, 2)}
        log.log(logging.DEBUG if watched else logging.INFO, "answered", extra={"fields": fields})
        if status >= 400 and not watched:
            self._metrics.refused(status)
