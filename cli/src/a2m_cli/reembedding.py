"""`a2m reembed`: one bounded step of the router after another, until nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from a2m_cli import rendering
from a2m_cli.connection import CliError, Server, require_extensions
from a2m_cli.options import params
from a2m_protocol.client import Client

PAUSE = 1.0
PATIENCE = 60
"""Steps that may do nothing, each after a pause in seconds: what is on the move is embedded afterwards."""


@dataclass(frozen=True, slots=True)
class Reembedded:
    """How many records were embedded, by which model, and of how many it refuses the text."""

    model: str
    embedded: int
    refused: int


def reembed(server: Server, tier: str | None) -> Reembedded:
    """Embed what lacks a vector of the present model; after a `CliError`, call it again to go on."""
    out = rendering.console(stderr=True)
    with out.status("Looking for records to embed") as shown:

        def told(embedded: int, left: int) -> None:
            shown.update(f"{embedded} embedded, {left} left (Ctrl-C to stop; run it again to go on)")

        return server.run(lambda client: _all(client, tier, told))


async def _all(client: Client, tier: str | None, told: Callable[[int, int], None]) -> Reembedded:
    described = await client.call("memory/describe", {})
    require_extensions(described, ["reembed"], "embed records anew (a federation without a model cannot)")
    model = str(cast("dict[str, Any]", described.get("embeddings") or {}).get("model"))
    embedded = idle = 0
    while True:
        step = await client.call("memory/reembed", params(tier=tier))
        done, left = int(cast("int", step["embedded"])), int(cast("int", step["left"]))
        embedded += done
        told(embedded, left)
        if left <= 0:
            return Reembedded(model, embedded, int(cast("int", step.get("refused", 0))))
        idle = 0 if done else idle + 1
        if idle > PATIENCE:
            raise CliError(f"{left} records keep changing and were not embedded: run it again later")
        if not done:
            await asyncio.sleep(PAUSE)
