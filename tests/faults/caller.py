"""A caller of one server over HTTP, for tests that do not await."""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from a2m_protocol import jsonrpc
from a2m_protocol.answers import envelope, error_of, http_error
from a2m_protocol.errors import TransportError


class Caller:
    """Calls a server's `memory/` methods; safe to use from several threads at once.

    With the service token its `owner` is believed. `timeout` bounds the waiting for each answer, in seconds.
    """

    def __init__(self, name: str, url: str, token: str | None = None, *, timeout: float = 20.0) -> None:
        self.name = name
        self.url = url
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(timeout=timeout, trust_env=False, headers=headers)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, *, timeout: float | None = None, **params: Any) -> dict[str, Any]:
        """The result of `memory/METHOD`; raises the server's `A2MError`, `TransportError` where none came."""
        message = jsonrpc.request(next(self._numbers), f"memory/{method}", params)
        chosen = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            answer = self._http.post(self.url, content=jsonrpc.encode(message), timeout=chosen)
        except httpx.HTTPError as error:
            received = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise TransportError(f"{self.name}: {error!r}", maybe_received=received) from error
        if answer.status_code != 200:
            raise http_error(answer, self.name)
        response = envelope(answer.content, message["id"], self.name)
        error = response.get("error")
        if isinstance(error, dict):
            raise error_of(error)
        result = response["result"]
        assert isinstance(result, dict)
        return result

    def entries(self, **selected: Any) -> list[dict[str, Any]]:
        """All that a server lists (`where`, `ids`, `owner`, `arrived`), page by page, oldest first."""
        found: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        while True:
            page = self.call("list", limit=1_000, **selected, **after)
            found += page["entries"]
            if not page["more"]:
                return found
            after = {"after": [found[-1]["seq"], found[-1]["id"]]}

    def is_ready(self) -> bool:
        """Whether `/readyz` says so now."""
        try:
            return self._http.get(f"{self.url}/readyz", timeout=5.0).is_success
        except httpx.HTTPError:
            return False
