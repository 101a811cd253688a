"""Ways to reach an A2M server: over HTTP, and a handler in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import httpx

from a2m_protocol import jsonrpc
from a2m_protocol.answers import envelope, http_error
from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import JsonObject, TransportError
from a2m_protocol.types import PROTOCOL

Deliver = Callable[[JsonObject], None]


class Transport(Protocol):
    """Carries messages to one server. `deliver`, when set, is given each notification from the server."""

    deliver: Deliver | None

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        """Send a request and return the response to it, an error response too.

        Raises `TransportError` when there is none within `seconds`.
        """
        ...

    async def notify(self, message: JsonObject, seconds: float) -> None:
        """Send a notification."""
        ...


class HttpTransport:
    """JSON-RPC by POST to `url`, over one pool of connections that are kept alive.

    `token` or the content of `token_file` (read again when it changes) is sent as a bearer token. Proxies
    named in the environment are not used. `connect_timeout` bounds the connection alone, in seconds.
    """

    deliver: Deliver | None = None

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | None = None,
        connect_timeout: float = 5.0,
        max_connections: int = 100,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url
        self._target = httpx.URL(url)
        self._token = token.encode() if token is not None else None
        self._token_file = TokenFile(token_file) if token_file is not None else None
        self._connect_timeout = connect_timeout
        # Idle connections are given up well before a server does, lest a call meets one that is closing.
        self._limits = httpx.Limits(
            max_connections=max_connections, max_keepalive_connections=max_connections, keepalive_expiry=30.0
        )
        self._given = transport
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        self._client = httpx.AsyncClient(limits=self._limits, transport=self._given, trust_env=False)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        response = await self._post(message, seconds)
        if response.status_code == 200:
            return envelope(response.content, message["id"], self.url)
        raise http_error(response, self.url)

    async def notify(self, message: JsonObject, seconds: float) -> None:
        response = await self._post(message, seconds)
        if response.status_code not in (200, 202, 204):
            raise http_error(response, self.url)

    async def _post(self, message: JsonObject, seconds: float) -> httpx.Response:
        if self._client is None:
            raise TransportError(f"{self.url}: the client is not open", maybe_received=False, retryable=False)
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"a2m-protocol-version", PROTOCOL.encode()),
        ]
        token = self._token_file.token if self._token_file is not None else self._token
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token))
        request = self._client.build_request(
            "POST",
            self._target,
            content=jsonrpc.encode(message),
            headers=headers,
            timeout=httpx.Timeout(seconds, connect=min(seconds, self._connect_timeout)),
        )
        try:
            # httpx limits each read and write alone; this limits the call, however slowly bytes drip in.
            async with asyncio.timeout(seconds):
                return await self._client.send(request)
        except TimeoutError as error:
            raise TransportError(
                f"{self.url}: no answer within {seconds:g} s", maybe_received=True
            ) from error
        except _NEVER_SENT as error:
            raise TransportError(f"{self.url}: {_reason(error)}", maybe_received=False) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise TransportError(f"{self.url}: {_reason(error)}", maybe_received=True) from error


_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class LocalTransport:
    """A handler of parsed messages in this process; both directions pass through JSON text all the same.

    Notifications are what the owner of the handler gives to `deliver`.
    """

    deliver: Deliver | None = None

    def __init__(self, handle: Callable[[object], Awaitable[JsonObject | None]]) -> None:
        self._handle = handle

    async def open(self) -> None:
        """Nothing to connect."""

    async def close(self) -> None:
        """Nothing to disconnect."""

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        response = await self._pass(message, seconds)
        return envelope(jsonrpc.encode(response), message["id"], "the server")

    async def notify(self, message: JsonObject, seconds: float) -> None:
        await self._pass(message, seconds)

    async def _pass(self, message: JsonObject, seconds: float) -> JsonObject | None:
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await self._handle(jsonrpc.decode(jsonrpc.encode(message)))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TransportError(f"no answer within {seconds:g} s", maybe_received=True) from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
