"""The HTTP server: one endpoint for JSON-RPC, and documents for those who watch over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from a2m_protocol import jsonrpc
from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_protocol.types import PROTOCOL
from a2m_server.dispatch import Dispatcher
from a2m_server.exchange import Exchange, Handler
from a2m_server.guard import Guard, refuse
from a2m_server.identity import Gate, Peer, UnauthorizedError
from a2m_server.listen import serve
from a2m_server.methods.reading import silent
from a2m_server.metrics import Metrics
from a2m_server.settings import ServerSettings, is_loopback
from a2m_server.store import MemoryStore

__all__ = ["create_app", "serve", "serve_handler"]

_SPOKEN = frozenset({PROTOCOL, PROTOCOL.removeprefix("a2m/")})


def create_app(store: MemoryStore, settings: ServerSettings) -> FastAPI:
    """The A2M server of a store, which its lifespan opens and closes.

    Raises `ValueError` when the token file of the settings holds no token.
    """
    return serve_handler(Dispatcher(store), settings)


def serve_handler(handler: Handler, settings: ServerSettings, metrics: Metrics | None = None) -> FastAPI:
    """The application around any handler of parsed messages; `metrics` may count more than requests."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        try:
            await handler.open()
        except A2MError as error:
            app.state.problem = error.message
            raise
        try:
            yield
        finally:
            await handler.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    endpoint = Endpoint(handler, settings, metrics or Metrics())
    app.add_route("/", endpoint.call, methods=["POST"])
    app.add_route("/.well-known/a2m-server.json", endpoint.describe, methods=["GET"])
    app.add_route("/healthz", endpoint.health, methods=["GET"])
    app.add_route("/readyz", endpoint.ready, methods=["GET"])
    app.add_route("/metrics", endpoint.count, methods=["GET"])
    app.add_middleware(Guard, origins=settings.origins, hosts=_names(settings))
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "A2M-Protocol-Version"],
        )
    return app


class Endpoint:
    """The routes of one application."""

    def __init__(self, handler: Handler, settings: ServerSettings, metrics: Metrics) -> None:
        tokens = TokenFile(settings.token_file) if settings.token_file is not None else None
        # A token that need not be shown would protect nothing where others can connect.
        exposed = not is_loopback(settings.host) and not settings.allow_unauthenticated_remote
        self._gate = Gate(tokens, required=exposed)
        self._handler = handler
        self._settings = settings
        self._metrics = metrics
        self._exchange = Exchange(handler, settings.request_timeout, self._metrics)

    async def call(self, request: Request) -> Response:
        """POST /: one JSON-RPC message."""
        peer = self._peer(request)
        if isinstance(peer, Response):
            return peer
        problem = _unacceptable(request)
        if problem is not None:
            return problem
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                body = await _read(request, self._settings.max_body)
        except TimeoutError:
            return refuse(408, "the body did not arrive in time", {"Connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return refuse(413, f"the body is longer than {self._settings.max_body} bytes: send fewer records")
        answer = await self._exchange.answer(body, peer)
        if answer is None:
            return Response(status_code=202)
        return Response(answer, media_type="application/json")

    async def describe(self, request: Request) -> Response:
        """GET /.well-known/a2m-server.json: the result of memory/describe."""
        peer = self._peer(request)
        if isinstance(peer, Response):
            return peer
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                return JSONResponse(await self._handler.describe(peer))
        except A2MError as error:
            return JSONResponse(error.wire(), 503)
        except TimeoutError:
            return JSONResponse(unavailable("the store", "it did not answer in time").wire(), 503)

    async def health(self, _: Request) -> Response:
        """GET /healthz: the process runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """GET /readyz: the database answers; of several tiers, those that do not are named."""
        try:
            async with asyncio.timeout(self._settings.ready_timeout):
                degraded = await self._handler.ready() or ()
        except A2MError as error:
            return JSONResponse({"status": "unavailable", "reason": error.message}, 503)
        except TimeoutError:
            reason = f"no answer within {self._settings.ready_timeout:g} s"
            return JSONResponse({"status": "unavailable", "reason": reason}, 503)
        return JSONResponse({"status": "degraded" if degraded else "ok", **silent(degraded)})

    async def count(self, request: Request) -> Response:
        """GET /metrics: counts for Prometheus."""
        peer = self._peer(request)
        if isinstance(peer, Response):
            return peer
        return PlainTextResponse(self._metrics.text(), media_type="text/plain; version=0.0.4")

    def _peer(self, request: Request) -> Peer | Response:
        shown = [value for name, value in request.scope["headers"] if name == b"authorization"]
        try:
            return Peer(self._gate.admit(shown))
        except UnauthorizedError as error:
            return refuse(401, str(error), {"WWW-Authenticate": 'Bearer realm="a2m"'})


def _names(settings: ServerSettings) -> tuple[str, ...]:
    """What the server may be called: the address it listens on, unless it is any, and what is configured."""
    own = () if settings.host in ("0.0.0.0", "::") else (settings.host,)  # noqa: S104 compared, not bound
    return (*own, *settings.hosts)


def _unacceptable(request: Request) -> Response | None:
    headers = request.headers
    version = headers.get("a2m-protocol-version")
    if version is not None and version.strip() not in _SPOKEN:
        error = A2MError(
            Code.PROTOCOL_NOT_SUPPORTED,
            f"this server speaks {PROTOCOL}, not {version[:40]!r}",
            {"supported": [PROTOCOL]},
        )
        body = jsonrpc.encode(jsonrpc.failure(None, error))
        return Response(body, 400, media_type="application/json")
    media, _, parameters = headers.get("content-type", "").partition(";")
    if media.strip().lower() != "application/json":
        return refuse(415, "Content-Type must be application/json")
    charset = parameters.replace('"', "").lower().partition("charset=")[2].partition(";")[0].strip()
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        return refuse(415, "JSON is sent in UTF-8")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        return refuse(415, "the body must not be compressed", {"Accept-Encoding": "identity"})
    return None


async def _read(request: Request, cap: int) -> bytes | bytearray | None:
    """The body, or None as soon as it is known to be longer than `cap` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > cap:
        return None
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > cap:
            return None
        body += chunk
    return body
