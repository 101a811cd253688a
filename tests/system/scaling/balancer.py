"""One address before several servers, as a Kubernetes Service is: it spreads connections, not requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Self, cast

import httpx

HOST = "127.0.0.1"
_PERIOD = 0.25


class Balancer:
    """Passes TCP connections on to `backends` (ports), each in turn; use as an async context manager.

    A backend gets no new connection once its `/readyz` fails (asked four times a second) or it refuses one.
    What is connected stays so. Without a backend that is ready a connection is reset.
    """

    def __init__(self, port: int, backends: Sequence[int]) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self._ready = dict.fromkeys(backends, False)
        self._turns = count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sides: set[_Side] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Front(self), HOST, self.port, backlog=512)
        for backend in self._ready:
            self.keep(asyncio.create_task(self._watch(backend)))
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for side in self._sides:
            side.transport.abort()

    def keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, backend: int) -> None:
        # A connection a look, as a kubelet does: a kept one would see nothing of a listener that is gone.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=5.0, trust_env=False, limits=limits) as client:
            while True:
                try:
                    answer = await client.get(f"http://{HOST}:{backend}/readyz")
                    self._ready[backend] = answer.is_success
                except httpx.HTTPError:
                    self._ready[backend] = False
                await asyncio.sleep(_PERIOD)

    async def join(self, front: _Front) -> None:
        """Connect a client with a backend."""
        loop = asyncio.get_running_loop()
        while ready := [backend for backend, is_ready in self._ready.items() if is_ready]:
            backend = ready[next(self._turns) % len(ready)]
            try:
                await loop.create_connection(lambda: _Side(self, front), HOST, backend)
            except OSError:
                self._ready[backend] = False
            else:
                return
        front.transport.abort()

    def opened(self, side: _Side) -> None:
        self._sides.add(side)

    def closed(self, side: _Side) -> None:
        self._sides.discard(side)


class _Side(asyncio.Protocol):
    """One of two connections: what comes from it goes to the other, and they end together."""

    transport: asyncio.Transport

    def __init__(self, balancer: Balancer, other: _Side | None = None) -> None:
        self._balancer = balancer
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._balancer.opened(self)
        if self.other is None:
            return
        if self.other.transport.is_closing():
            self.transport.abort()  # the client is gone already
            return
        self.other.other = self
        self.other.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._balancer.closed(self)
        if self.other is not None:
            self.other.transport.close()


class _Front(_Side):
    """A client's side: it is read once there is another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._balancer.keep(asyncio.create_task(self._balancer.join(self)))
