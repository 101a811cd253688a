"""Ways to reach an A2M server: over HTTP, and a handler in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

import httpx

from a2m_protocol import jsonrpc
from a2m_protocol.answers import envelope, http_error
from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import JsonObject, TransportError
from a2m_protocol.types import PROTOCOL

IDLE_SECONDS = 3.0
"""How long a connection that is not used is kept."""

Deliver = Callable[[JsonObject], None]
Headers = Callable[[], Iterable[tuple[bytes, bytes]]]


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

    `token` or the content of `token_file` (read again when it changes) is sent as a bearer token.
    Redirects are not followed, proxies named in the environment not used. `connect_timeout` bounds the
    making of a connection, in seconds. `headers` is asked for more of them at each call.
    Raises `ValueError` for what is no URL and for an unusable token.
    """

    deliver: Deliver | None = None

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        connect_timeout: float = 5.0,
        max_connections: int = 100,
        headers: Headers = tuple,
    ) -> None:
        self._target = _parsed(url)
        # As errors name it: what is in it of a password is for the server alone.
        self.url = str(self._target.copy_with(userinfo=b"")) if self._target.userinfo else url
        self._token = token.encode("ascii") if token is not None else None
        self._token_file = TokenFile(Path(token_file)) if token_file is not None else None
        self._connect_timeout = connect_timeout
        self._headers = headers
        # Idle connections are given up well before a server does, lest a call meets one that is closing:
        # one that drains goes on for longer than this, and closes what is used meanwhile by its answers.
        self._limits = httpx.Limits(
            max_connections=max_connections,
            max_keepalive_connections=max_connections,
            keepalive_expiry=IDLE_SECONDS,
        )
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        self._client = httpx.AsyncClient(limits=self._limits, trust_env=False)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        answer = await self._post(message, seconds)
        if answer.status_code == 200:
            return envelope(answer.content, message["id"], self.url)
        raise http_error(answer, self.url)

    async def notify(self, message: JsonObject, seconds: float) -> None:
        answer = await self._post(message, seconds)
        if answer.status_code not in (200, 202, 204):
            raise http_error(answer, self.url)

    async def _post(self, message: JsonObject, seconds: float) -> httpx.Response:
        if self._client is None:
            raise TransportError(f"{self.url}: the client is not open", maybe_received=False, retryable=False)
        token = self._token_file.token if self._token_file is not None else self._token
        headers = [*_HEADERS, *self._headers()]
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token))
        request = self._client.build_request(
            "POST",
            self._target,
            content=jsonrpc.encode(message),
            headers=headers,
            timeout=httpx.Timeout(seconds, connect=min(seconds, self._connect_timeout)),
        )
        deadline = asyncio.timeout(seconds)
        try:
            # httpx bounds each read and write alone; this bounds the call, however slowly bytes drip in.
            async with deadline:
                return await self._client.send(request)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TransportError(
                f"{self.url}: no answer within {seconds:.3g} s", maybe_received=True
            ) from error
        except _NEVER_SENT as error:
            raise TransportError(f"{self.url}: {_reason(error)}", maybe_received=False) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise TransportError(f"{self.url}: {_reason(error)}", maybe_received=True) from error


_HEADERS = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"a2m-protocol-version", PROTOCOL.encode()),
    (b"user-agent", b"a2m-python"),
]
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def _parsed(url: str) -> httpx.URL:
    try:
        target = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from error
    if target.scheme not in ("http", "https") or not target.host:
        raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8778")
    return target


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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
            raise TransportError(f"no answer within {seconds:.3g} s", maybe_received=True) from error
