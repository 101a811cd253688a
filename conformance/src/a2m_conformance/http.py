"""The HTTP transport."""

import itertools
import json
from urllib.parse import urljoin

import httpx

from a2m_conformance.outcome import CheckFailure, Unreachable
from a2m_conformance.requirement import Transport
from a2m_conformance.shapes import Json, is_object


class HttpWire:
    """JSON-RPC by POST to one URL.

    `token` is sent as a bearer token, and `other_token` kept for the checks that need a second principal.
    `through` replaces the network, so that an ASGI application can be tested in process.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        other_token: str | None = None,
        through: httpx.AsyncBaseTransport | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.url = url
        self.token = token
        self.other_token = other_token
        self.client = httpx.AsyncClient(transport=through, timeout=timeout)
        self._numbers = itertools.count(1)

    @property
    def transport(self) -> Transport:
        """Always http."""
        return "http"

    @property
    def well_known(self) -> str:
        """Where the describe document is served."""
        return urljoin(self.url, "/.well-known/a2m-server.json")

    def headers(self, **more: str) -> dict[str, str]:
        """The headers of an ordinary request, with `more` by their own names (underscores for dashes)."""
        own = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token is not None:
            own["Authorization"] = f"Bearer {self.token}"
        return own | {name.replace("_", "-"): value for name, value in more.items()}

    async def post(self, message: Json, **headers: str) -> httpx.Response:
        """POST a JSON value with the usual headers and return whatever comes."""
        return await self._send(json.dumps(message, ensure_ascii=False), self.headers(**headers))

    async def request(self, method: str, params: Json) -> Json:
        number = next(self._numbers)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        response = await self.post(message)
        if response.status_code != 200:
            raise CheckFailure(f"{method} was answered with HTTP {response.status_code} instead of 200")
        envelope = _parse(response)
        if not is_object(envelope) or envelope.get("id") != number:
            raise CheckFailure(f"{method}: the response does not carry the id {number} of its request")
        return envelope

    async def exchange(self, text: str, request_id: Json = None) -> Json:  # noqa: ARG002 - HTTP needs no id
        return _parse(await self._send(text, self.headers()))

    async def notify(self, method: str, params: Json) -> None:
        await self.post({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self) -> None:
        await self.client.aclose()

    async def _send(self, text: str, headers: dict[str, str]) -> httpx.Response:
        try:
            return await self.client.post(self.url, content=text.encode(), headers=headers)
        except httpx.TransportError as error:
            raise Unreachable(f"{self.url}: {type(error).__name__} {error}") from error


def _parse(response: httpx.Response) -> Json:
    try:
        return json.loads(response.content)
    except ValueError as error:
        start = response.text[:80]
        raise CheckFailure(
            f"HTTP {response.status_code} whose body is not JSON, it begins with {start!r}"
        ) from error
