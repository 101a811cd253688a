"""How a command reaches a server, and what a failure means to the person who typed it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from a2m_protocol.client import Client
    from a2m_protocol.errors import Json, JsonObject

T = TypeVar("T")

FAILED = 1
WRONG_USAGE = 2
UNREACHABLE = 3


class CliError(Exception):
    """A failure to be told as it is; `status` is the exit status."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a command talks to. `timeout` bounds each call, in seconds, its `retries` included."""

    url: str
    token_file: Path | None = None
    timeout: float = 30.0
    retries: int = 0

    def client(self) -> Client:
        """A client of it; raises `CliError` where the token file is of no use."""
        import httpx

        from a2m_protocol.client import Client

        try:
            return Client.http(
                self.url, token_file=self.token_file, timeout=self.timeout, retries=self.retries
            )
        except httpx.InvalidURL as error:
            raise CliError(f"{self.url!r} is no URL: {error}", WRONG_USAGE) from error
        except ValueError as error:
            raise CliError(str(error), WRONG_USAGE) from error

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """The result of what `work` does with a client; raises `CliError` that explains what went wrong."""
        import asyncio

        from a2m_protocol.errors import A2MError

        async def connected() -> T:
            async with self.client() as client:
                return await work(client)

        try:
            return asyncio.run(connected())
        except A2MError as error:
            raise explain(error, self.url) from error

    def call(self, method: str, params: JsonObject) -> JsonObject:
        """The result of one call; says so on standard error where an owner makes no difference to it."""

        async def asked(client: Client) -> JsonObject:
            if "owner" in params and "scopes" not in capabilities(await client.describe()):
                print(UNHEEDED, file=sys.stderr)
            return await client.call(f"memory/{method}", params)

        return self.run(asked)


UNHEEDED = (
    "this server keeps no owners apart for you, so the owner makes no difference: give the router a token "
    "(A2M_ROUTER_TOKEN_FILE), or start it with `a2m up --auth`, and name the file of yours by --token-file"
)


def capabilities(described: JsonObject) -> list[str]:
    """What a server declares, whatever it sent."""
    told = described.get("capabilities")
    return [name for name in told if isinstance(name, str)] if isinstance(told, list) else []


_CURATED = frozenset({"purge", "approve", "reject"})


def require_extensions(described: JsonObject, names: Collection[str], purpose: str) -> None:
    """Raise `CliError` unless a server has our extensions `names`, and for us too.

    `described` is its own description: it lists the extensions, but methods to those who may call them.
    """
    extensions, methods = _strings(described.get("extensions")), _strings(described.get("methods"))
    missing = sorted(set(names) - extensions)
    if missing:
        raise CliError(f"this server cannot {purpose}: it does not have the extension {', '.join(missing)}")
    ours = {f"memory/{name}" for name in names} <= methods
    if not ours and "list" in extensions and "memory/list" not in methods:
        who = "curators and operators" if {*names} & _CURATED else "operators"
        raise CliError(f"this server lets {who} alone {purpose}: give it their token with --token-file")


def explain(error: Exception, url: str) -> CliError:
    """What an `A2MError` means to a person."""
    from a2m_protocol.errors import A2MError, TransportError

    if isinstance(error, TransportError) and not error.maybe_received and error.retryable:
        return CliError(
            f"no server answers at {url}\n({error.message})\n"
            "Start one with `a2m up`, or name another with --url or A2M_URL.",
            UNREACHABLE,
        )
    if isinstance(error, TransportError):
        hint = "\nGive it the token with --token-file." if "HTTP 401" in error.message else ""
        return CliError(error.message + hint, UNREACHABLE)
    if isinstance(error, A2MError) and error.retryable:
        hint = "" if "try again" in error.message else "; try again"
        return CliError(f"not done: {error.message}{hint}")
    if isinstance(error, A2MError):
        return CliError(f"the server refused: {error.message} ({error.code})")
    return CliError(str(error))


def _strings(value: Json) -> set[str]:
    return {item for item in value if isinstance(item, str)} if isinstance(value, list) else set()
