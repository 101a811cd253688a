"""HTTP/1.1 by h11 over a pool of connections to one server: a POST is one write and few reads.

A general client such as httpx was measured to cost four times the processor time for the same call.
"""

from __future__ import annotations

import asyncio
import select
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

Headers = list[tuple[bytes, bytes]]

# Idle connections are given up well before a server does, lest a call meets one that is closing.
_IDLE_SECONDS = 30.0
_CHUNK = 262_144
_LARGEST_ANSWER = 256 * 1024 * 1024


class ExchangeError(Exception):
    """An exchange that failed; `sent` says whether any of the request was sent."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response whose body has been read."""

    status: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Where a URL points, and the Host header to send there."""

    host: str
    port: int
    target: bytes
    header: bytes
    secure: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises `ValueError` for what is no http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"{url!r} is no URL of the form http://host:port/path")
        secure = parts.scheme == "https"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(
            parts.hostname,
            parts.port or (443 if secure else 80),
            target.encode("ascii"),
            parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii"),
            secure,
        )


class Connections:
    """At most `most` connections, the one used last taken first; `connect_seconds` bounds each new one."""

    def __init__(self, address: Address, most: int, connect_seconds: float) -> None:
        self._address = address
        self._free = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []
        self._connect_seconds = connect_seconds
        self._tls = ssl.create_default_context() if address.secure else None

    async def post(self, headers: Headers, body: bytes, seconds: float) -> Answer:
        """The answer to one POST within `seconds`; raises `ExchangeError`."""
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(seconds), self._free:
                connection = self._take() or await self._connect(seconds)
                try:
                    answer = await connection.post(self._address, headers, body)
                except BaseException:
                    connection.abort()
                    raise
                if connection.reusable:
                    self._idle.append(connection)
                else:
                    connection.abort()
                return answer
        except TimeoutError as error:
            raise ExchangeError(f"no answer within {seconds:g} s", sent=connection is not None) from error
        except (h11.ProtocolError, ConnectionError, ssl.SSLError) as error:
            raise ExchangeError(_reason(error), sent=True) from error

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.fresh:
                return connection
            connection.abort()
        return None

    async def _connect(self, seconds: float) -> _Connection:
        address = self._address
        patience = min(seconds, self._connect_seconds)
        deadline = asyncio.timeout(patience)
        try:
            async with deadline:
                streams = await asyncio.open_connection(
                    address.host, address.port, ssl=self._tls, limit=_CHUNK
                )
        except (OSError, UnicodeError) as error:
            why = f"no connection within {patience:g} s" if deadline.expired() else _reason(error)
            raise ExchangeError(why, sent=False) from error
        return _Connection(*streams)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._state = h11.Connection(h11.CLIENT)
        self._used = 0.0

    async def post(self, address: Address, headers: Headers, body: bytes) -> Answer:
        length = str(len(body)).encode()
        request = h11.Request(
            method=b"POST",
            target=address.target,
            headers=[(b"host", address.header), *headers, (b"content-length", length)],
        )
        send = self._state.send
        head = send(request) or b""
        # Not drained: a server that answers early may not read on, and the body is in memory anyway.
        self._writer.write(head + (send(h11.Data(body)) or b"") + (send(h11.EndOfMessage()) or b""))
        return await self._answer()

    async def _answer(self) -> Answer:
        response: h11.Response | None = None
        parts: list[bytes] = []
        length = 0
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                self._state.receive_data(await self._reader.read(_CHUNK))
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                length += len(event.data)
                if length > _LARGEST_ANSWER:
                    raise h11.RemoteProtocolError(f"the answer is longer than {_LARGEST_ANSWER} bytes")
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.EndOfMessage) and response is not None:
                return Answer(response.status_code, response.reason.decode("latin-1"), b"".join(parts))
            elif isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("the server closed the connection without an answer")

    @property
    def reusable(self) -> bool:
        """Whether another request may follow, which makes the connection ready for it."""
        done = self._state.our_state is h11.DONE and self._state.their_state is h11.DONE
        if not done or self._writer.is_closing() or self._writer.transport.get_write_buffer_size():
            return False
        self._state.start_next_cycle()
        self._used = time.monotonic()
        return True

    @property
    def fresh(self) -> bool:
        """Whether the server has not closed the connection, nor said anything, since it was used."""
        if (
            time.monotonic() - self._used > _IDLE_SECONDS
            or self._reader.at_eof()
            or self._writer.is_closing()
        ):
            return False
        # What the event loop has not seen yet: the end of the connection is readable.
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self._writer.wait_closed()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
