"""A TCP proxy whose network can be cut: it stands between a router and a tier."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Literal, Self

from anyio.from_thread import start_blocking_portal

Mode = Literal["pass", "refuse", "reset", "black hole", "delay", "late"]

_CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)


class Cutter:
    """Listens on `port` of the loopback and relays to `target`, in a thread of its own.

    `mode`, changed by `cut` and `heal`, holds for connections that exist already too:
    `pass` relays. `refuse`: nobody listens. `reset`: the tier gets the request and carries it out, and of its
    response half of the first bytes pass before the connection is reset. `black hole`: connections are taken
    and nothing passes; what was swallowed is lost. `delay`: responses take `seconds` longer. `late`: requests
    do, so that the tier carries them out when the router has given up.
    """

    def __init__(self, port: int, target: int, *, host: str = "127.0.0.1") -> None:
        self.port = port
        self.mode: Mode = "pass"
        self._host = host
        self._target = target
        self._seconds = 0.0
        self._held = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._swallowed: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = start_blocking_portal()

    def __enter__(self) -> Self:
        self._portal = self._context.__enter__()
        self._portal.call(self._listen)
        return self

    def __exit__(self, *exception: object) -> None:
        self._portal.call(self._end)
        self._context.__exit__(None, None, None)

    def cut(self, mode: Mode, seconds: float = 5.0) -> None:
        """Cut the network in one way; `seconds` is how long `delay` and `late` take."""
        self._portal.call(self._change, mode, seconds)

    def heal(self) -> None:
        """Relay again; returns when connections are taken."""
        self.cut("pass", 0.0)

    @property
    def idle(self) -> bool:
        """Whether nothing is held back that will pass later."""
        return self._held == 0

    async def _change(self, mode: Mode, seconds: float) -> None:
        self.mode, self._seconds = mode, seconds
        if mode == "refuse":
            await self._close()
        else:
            await self._listen()
        for writer in [*self._swallowed]:
            _reset(writer)
        self._swallowed.clear()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, self._host, self.port)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in [*self._open]:
            _reset(writer)

    async def _end(self) -> None:
        await self._close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # an end of the connection like any other
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            _reset(writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._target)
        self._open.add(far_writer)
        ends = [
            asyncio.create_task(self._relay(reader, far_writer, "request")),
            asyncio.create_task(self._relay(far_reader, writer, "response")),
        ]
        try:
            # A request under way outlives the router's patience: the tier still gets it.
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.mode == "late":
                await asyncio.wait(ends)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            self._open.discard(far_writer)
            far_writer.close()

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Literal["request", "response"]
    ) -> None:
        loop = asyncio.get_running_loop()
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def forward() -> None:
            while True:
                due, data = await held.get()
                try:
                    await asyncio.sleep(max(0.0, due - loop.time()))
                finally:
                    self._held -= 1
                if not data:
                    return
                writer.write(data)
                with suppress(OSError):
                    await writer.drain()

        async def take() -> None:
            while True:
                data = await reader.read(_CHUNK)
                if self.mode == "black hole" and data:
                    self._swallowed |= {writer}
                    await asyncio.Event().wait()
                if self.mode == "reset" and way == "response" and data:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    _reset(writer)
                    return
                slow = (self.mode, way) in (("delay", "response"), ("late", "request"))
                self._held += 1
                held.put_nowait((loop.time() + (self._seconds if slow else 0.0), data))
                if not data:
                    return

        forwarding = asyncio.create_task(forward())
        try:
            await take()
            if self.mode != "reset":
                await forwarding
        finally:
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)
            self._held -= held.qsize()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection as a crash of the network does: what is under way is lost, and the peer is told."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() != -1:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
