"""uvicorn as a library: the socket first, signals that end cleanly, a drain and a bounded shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from a2m_server.settings import ServerSettings

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CLOSE = (b"connection", b"close")
_TICK = 0.05


def serve(app: FastAPI, settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in flight within `shutdown_timeout` seconds.

    Before that, for `drain_seconds` after a SIGTERM, all is served as before while `/readyz` says no.

    Raises `SystemExit` with a message when the address cannot be bound or the app does not start.
    """
    with bind(settings) as listener:
        try:
            asyncio.run(Server(app, settings).serve([listener]))
        except SystemExit as stop:
            problem = getattr(app.state, "problem", None)
            raise stop if problem is None else SystemExit(f"cannot start: {problem}") from stop


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, which also gives up a connection that sends no whole request head in time.

    Between two requests a connection may be idle for longer; once the head is there, the limits of the app
    apply. Where as many are connected as may be, the one that has kept silent longest makes room for another,
    so that those who say nothing keep nobody out.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] as uvicorn has it
        super().connection_made(transport)
        self._watch()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def _make_room(self) -> None:
        others = [one for one in _ours(self.connections) if one is not self]
        silent = {one: end for one in others if (end := one.ends) is not None}
        if silent:
            min(silent, key=silent.__getitem__).transport.abort()

    @property
    def ends(self) -> float | None:
        """When the connection is given up, by the loop's clock, unless a request head arrives; else None."""
        return None if self._waiting is None or self.transport.is_closing() else self._waiting.when()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._waiting is None:
            # Not put off by each further byte: a head that drips in has this long in all.
            seconds = cast("_Config", self.config).header_timeout
            self._waiting = self.loop.call_later(seconds, self.transport.close)

    def _unwatch(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def give_up(self) -> None:
        """Let the answer under way be the last of the connection, if it has not begun."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            cycle.default_headers = [*cycle.default_headers, _CLOSE]


def _ours(connections: Iterable[object]) -> list[Protocol]:
    return [one for one in connections if isinstance(one, Protocol)]


class _Config(uvicorn.Config):
    def __init__(self, app: FastAPI, header_timeout: float, **options: Any) -> None:
        super().__init__(app, **options)
        self.header_timeout = header_timeout


class Server(uvicorn.Server):
    """A uvicorn server with our settings, which ends with status 0 when a signal asks it to.

    A SIGTERM comes from who replaces it, and those who balance loads learn of it later: so it drains first.
    A SIGINT comes from a person, who waits; that, or a second signal, ends the drain.
    """

    def __init__(self, app: FastAPI, settings: ServerSettings) -> None:
        self._app = app
        self._drain_seconds = settings.drain_seconds
        self._hurried = False
        super().__init__(
            _Config(
                app,
                settings.header_timeout,
                http=Protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=settings.backlog,
                limit_concurrency=settings.max_connections,
                timeout_keep_alive=settings.keep_alive,
                timeout_graceful_shutdown=settings.shutdown_timeout,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            log.info("serving on %s", url_of(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._drain_seconds > 0:
            await self._drain()
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        """Go on serving, while each answer closes its connection so that its caller finds another server."""
        if not self._hurried:
            log.info("draining for %g s", self._drain_seconds)
        self._app.state.draining = True
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
        for connection in _ours(self.server_state.connections):
            connection.give_up()
        deadline = time.monotonic() + self._drain_seconds
        # Signal handlers set a flag alone, which uvicorn too looks at now and then.
        while not self._hurried and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_TICK)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hurried = self._hurried or self.should_exit or sig == signal.SIGINT
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn's own raises the signal again after the shutdown, which would end the process by it.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(settings: ServerSettings) -> socket.socket:
    """A socket that listens on the settings' host and port (0 takes a free one)."""
    where = f"{settings.host}:{settings.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # With the protocol named: asyncio sets TCP_NODELAY on such sockets alone, and without it a second
        # request on a connection waits 40 ms for a delayed acknowledgement.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SystemExit(f"cannot listen on {where}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # At once: a port that is merely bound can be bound by a second server too.
        listener.listen(settings.backlog)
    except OSError as error:
        listener.close()
        prefix = settings.model_config.get("env_prefix", "")
        raise SystemExit(
            f"cannot listen on {where}: {error.strerror}; choose another with --port or {prefix}PORT"
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a bound socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
