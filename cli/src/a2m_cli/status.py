"""`a2m status`: what a server holds and whether all of it answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from a2m_cli.rendering import objects
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, Json, JsonObject


@dataclass(frozen=True, slots=True)
class Health:
    """A server's tiers, each with `health`: `ok`, or why it does not answer.

    `moving`: records are on their way between two tiers, which may both count them. `reembed` has the tiers
    in which only `a2m reembed` brings vectors of the present model: `tier`, `reason` and, as far as that can
    be told, `records`, how many have none (of more than 1,000, with `more`).
    """

    name: str
    tiers: list[JsonObject]
    sessions: int | None
    degraded: bool
    moving: bool = False
    reembed: tuple[JsonObject, ...] = ()

    def wire(self) -> JsonObject:
        return {
            "name": self.name,
            "tiers": [*self.tiers],
            "sessions": self.sessions,
            "degraded": self.degraded,
            "moving": self.moving,
            "reembed": [*self.reembed],
        }


async def look(client: Client, *, deadline: float = 25.0) -> Health:
    """Ask a server what it is and make each tier of it answer a read; `deadline` is in seconds.

    A federation waits for a tier that hangs before it answers for the others.
    """
    described = await client.describe(timeout=deadline)
    # What is for operators is not asked in vain: it would stand in their audit log as denied.
    methods = described.get("methods")
    lists = isinstance(methods, list) and "memory/list" in methods
    read, sessions, moving = await asyncio.gather(
        client.timeline(limit=1, timeout=deadline),  # the cheapest read that no tier is left out of
        _sessions(client, deadline),
        _moving(client, deadline) if lists else _nothing(),
    )
    silent = {str(entry.get("tier")): str(entry.get("reason")) for entry in objects(read.get("degraded"))}
    vectors = described.get("embeddings")
    due = objects(vectors.get("reembed")) if isinstance(vectors, dict) else []
    model = vectors.get("model") if isinstance(vectors, dict) else None
    if lists:
        due = await asyncio.gather(*(_counted(client, one, model, deadline) for one in due))
    return replace(assess(described, silent, sessions), moving=moving, reembed=(*due,))


async def _counted(client: Client, due: JsonObject, model: Json, deadline: float) -> JsonObject:
    """A tier that is due, with how many of its records have no vector of the model."""
    asked: JsonObject = {"tier": due.get("tier"), "without": model}
    try:
        page = await client.call("memory/list", asked, timeout=deadline)
    except A2MError:  # a tier that does not answer
        return due
    counted: JsonObject = {**due, "records": len(objects(page.get("entries")))}
    return {**counted, "more": True} if page.get("more") is True else counted


async def _sessions(client: Client, deadline: float) -> int | None:
    try:
        return len(objects((await client.sessions(timeout=deadline)).get("sessions")))
    except A2MError:  # a server may have no sessions
        return None


async def _moving(client: Client, deadline: float) -> bool:
    try:
        page = await client.call("memory/list", {"arrived": True, "limit": 1}, timeout=deadline)
    except A2MError:  # not every tier answers
        return False
    return bool(objects(page.get("entries")))


async def _nothing() -> bool:
    return False


def assess(described: JsonObject, silent: dict[str, str], sessions: int | None) -> Health:
    """Put together what a server says of itself and which of its tiers stayed silent, by name."""
    name = str(described.get("name"))
    tiers = objects(described.get("tiers"))
    if not tiers:
        alone: JsonObject = {"name": name, "kind": described.get("kind"), "count": described.get("count")}
        tiers = [alone]
    assessed: list[JsonObject] = []
    for tier in tiers:
        reason = silent.get(str(tier.get("name")))
        # The count that a server tells of a tier that does not answer is not one.
        assessed.append(
            {**tier, "health": "ok"} if reason is None else {**tier, "count": None, "health": reason}
        )
    return Health(name, assessed, sessions, degraded=bool(silent))
