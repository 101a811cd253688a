"""The HTTP server: one endpoint for JSON-RPC, and documents for those who watch over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from a2m_protocol import jsonrpc
from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_protocol.types import PROTOCOL
from a2m_server.audit import AuditLog
from a2m_server.auditing import denied
from a2m_server.exchange import Exchange, Handler
from a2m_server.guard import Guard, refuse
from a2m_server.identity import Gate, Peer, ServiceToken, UnauthorizedError, UndecidedError, Verifier
from a2m_server.jwks import key_set
from a2m_server.listen import serve
from a2m_server.methods.reading import silent
from a2m_server.metrics import Metrics
from a2m_server.oidc import Issuer
from a2m_server.rates import Rates
from a2m_server.register import Register
from a2m_server.service import dispatcher
from a2m_server.settings import ServerSettings, is_loopback
from a2m_server.sizes import Measured, Sizes
from a2m_server.store import MemoryStore
from a2m_server.tracker import Tracker

__all__ = ["create_app", "serve", "serve_handler"]

MAX_CLIENT = 128
_SPOKEN = frozenset({PROTOCOL, PROTOCOL.removeprefix("a2m/")})


def create_app(store: MemoryStore, settings: ServerSettings) -> FastAPI:
    """The A2M server of a store, which its lifespan opens and closes.

    Raises `ValueError` when a file of tokens, principals or keys that the settings name is of no use.
    """
    return serve_handler(dispatcher(store, settings), settings)


def serve_handler(handler: Handler, settings: ServerSettings, metrics: Metrics | None = None) -> FastAPI:
    """The application around any handler of parsed messages; `metrics` may count more than requests."""

    metrics = metrics or Metrics()
    audit = AuditLog(settings.audit_file) if settings.audit_file is not None else None
    if audit is not None:
        metrics.watch_audit(lambda: audit.waiting)
    rates = Rates(settings.rate, settings.shared_url) if settings.rate is not None else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        try:
            async with AsyncExitStack() as opened:
                if audit is not None:
                    await audit.open()
                    opened.push_async_callback(audit.close)
                if rates is not None:
                    opened.push_async_callback(rates.close)
                await handler.open()
                opened.push_async_callback(handler.close)
                closing = opened.pop_all()
        except A2MError as error:
            app.state.problem = error.message
            raise
        async with closing:
            yield

    # FastAPI's own telemetry tells what was raised in its own words, which may be a record's.
    quiet: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, telemetry=quiet)
    app.state.draining = False
    exchange = Exchange(handler, settings.request_timeout, metrics, audit, rates)
    endpoint = Endpoint(handler, exchange, settings, metrics, audit)
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
    app.add_middleware(Tracker, metrics=metrics)
    return app


class Endpoint:
    """The routes of one application."""

    def __init__(
        self,
        handler: Handler,
        exchange: Exchange,
        settings: ServerSettings,
        metrics: Metrics,
        audit: AuditLog | None,
    ) -> None:
        self._gate = _gate(settings)
        self._audit = audit
        self._handler = handler
        self._settings = settings
        self._metrics = metrics
        self._exchange = exchange
        self._sizes = Sizes(metrics.registry, settings.service, settings.ready_timeout)

    async def call(self, request: Request) -> Response:
        """POST /: one JSON-RPC message."""
        peer = await self._peer(request)
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
        peer = await self._peer(request)
        if isinstance(peer, Response):
            return peer
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                await self._exchange.admit(peer)
                return JSONResponse(await self._handler.describe(peer))
        except A2MError as error:
            if error.code == Code.QUOTA_EXCEEDED and error.data is not None:
                return JSONResponse(
                    error.wire(), 429, headers={"Retry-After": str(error.data["retry_after"])}
                )
            return JSONResponse(error.wire(), 503)
        except TimeoutError:
            return JSONResponse(unavailable("the store", "it did not answer in time").wire(), 503)

    async def health(self, _: Request) -> Response:
        """GET /healthz: the process runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """GET /readyz: the database answers; of several tiers, those that do not are named."""
        if request.app.state.draining:
            return JSONResponse({"status": "draining", "reason": "this server was asked to end"}, 503)
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
        peer = await self._peer(request)
        if isinstance(peer, Response):
            return peer
        if isinstance(self._handler, Measured):
            await self._sizes.measure(self._handler)
        return PlainTextResponse(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _peer(self, request: Request) -> Peer | Response:
        shown = [value for name, value in request.scope["headers"] if name == b"authorization"]
        try:
            return Peer(await self._gate.admit(shown), client=_client(request))
        except UnauthorizedError as error:
            if self._audit is not None:
                self._audit.note(denied())
            why = ', error="invalid_token"' if error.shown else ""
            return refuse(401, str(error), {"WWW-Authenticate": f'Bearer realm="a2m"{why}'})
        except UndecidedError as error:
            return refuse(503, str(error), {"Retry-After": "5"})


def _client(request: Request) -> str | None:
    """What a client calls itself, as far as it is worth keeping."""
    told = request.headers.get("user-agent", "")[:MAX_CLIENT].strip()
    return told if told.isprintable() and told else None


def _gate(settings: ServerSettings) -> Gate:
    verifiers: list[Verifier] = []
    if settings.token_file is not None:
        verifiers.append(ServiceToken(TokenFile(settings.token_file)))
    if settings.principals_file is not None:
        verifiers.append(Register(settings.principals_file))
    if settings.oidc.configured and settings.oidc.jwks is not None:
        verifiers.append(Issuer(settings.oidc, key_set(settings.oidc.jwks, settings.oidc.refresh)))
    # A token that need not be shown would protect nothing where others can connect.
    exposed = not is_loopback(settings.host) and not settings.allow_unauthenticated_remote
    required = exposed or settings.require_token or settings.keeps_owners_apart
    return Gate(verifiers, required=required)


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
