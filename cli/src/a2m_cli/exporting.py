"""Reads everything that a server holds, as lines that `importing` gives back to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import cast

from a2m_cli.connection import require_extensions
from a2m_cli.formats import TRANSIENT, header
from a2m_protocol import jsonrpc
from a2m_protocol.client import Client
from a2m_protocol.errors import Json, JsonObject

_PAGE = 500
_READ = 100
_GRAVES = 1_000
_AT_ONCE = 4


async def lines(client: Client, *, where: JsonObject | None = None) -> AsyncGenerator[bytes]:
    """The lines of an export, each with its line break: a header, then the records, oldest first.

    What is written while it runs may be in it or not; what is forgotten meanwhile is not. Raises `CliError`
    when the server cannot be exported.
    """
    described = await client.describe()
    require_extensions(described, ["list", "transfer"], "export")
    yield jsonrpc.encode(header(described.get("name"), now())) + b"\n"
    async for record in records(client, where=where):
        yield jsonrpc.encode(record) + b"\n"


async def records(client: Client, *, where: JsonObject | None = None) -> AsyncGenerator[JsonObject]:
    """Every record with all that belongs to it, oldest first.

    A move changes no record's place, and a federation asks all its tiers for each page at once: what was
    there when this began, and is not forgotten, is in it.
    """
    after: list[Json] | None = None
    while True:
        params: JsonObject = {"limit": _PAGE}
        if where:
            params["where"] = where
        if after is not None:
            params["after"] = after
        page = await client.call("memory/list", params)
        entries = cast("list[JsonObject]", page.get("entries") or [])
        # A record that is being moved may be listed for both of its tiers.
        for record in await _read(client, [*dict.fromkeys(str(entry["id"]) for entry in entries)]):
            yield {name: value for name, value in record.items() if name not in TRANSIENT}
        if not entries or page.get("more") is not True:
            return
        after = [entries[-1]["seq"], entries[-1]["id"]]


async def tombstones(client: Client) -> AsyncGenerator[JsonObject]:
    """What a server knows to be forgotten, in the order of forgetting: what is forgotten meanwhile too."""
    after: Json = None
    while True:
        params: JsonObject = {"limit": _GRAVES}
        if after is not None:
            params["after"] = after
        page = await client.call("memory/tombstones", params)
        for grave in cast("list[JsonObject]", page.get("tombstones") or []):
            yield grave
        after = page.get("after")
        if after is None:
            return


def now() -> str:
    """The time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _read(client: Client, ids: Sequence[str]) -> list[JsonObject]:
    """The records of `ids` in that order, but for those that have gone."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def some(chunk: Sequence[str]) -> list[JsonObject]:
        async with turn:
            answer = await client.call("memory/read", {"ids": list(chunk)})
        return cast("list[JsonObject]", answer.get("records") or [])

    chunks = [ids[at : at + _READ] for at in range(0, len(ids), _READ)]
    found = {str(r["id"]): r for records in await asyncio.gather(*map(some, chunks)) for r in records}
    return [found[i] for i in ids if i in found]
