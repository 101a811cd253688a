"""How a check talks to the server: one interface over both transports."""

from dataclasses import dataclass
from typing import Protocol

from a2m_conformance.requirement import Transport
from a2m_conformance.shapes import Json


@dataclass(frozen=True, slots=True)
class Refusal:
    """A JSON-RPC error as it came."""

    code: int
    message: str
    data: Json = None


class Wire(Protocol):
    """A connection to the server under test."""

    @property
    def transport(self) -> Transport:
        """Which of the two transports this is."""
        ...

    async def request(self, method: str, params: Json) -> Json:
        """Send one well-formed request and return the whole response envelope."""
        ...

    async def exchange(self, text: str, request_id: Json = None) -> Json:
        """Send `text` as it is and return the response that carries `request_id` or a null id."""
        ...

    async def notify(self, method: str, params: Json) -> None:
        """Send one notification, to which nothing may answer."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...
