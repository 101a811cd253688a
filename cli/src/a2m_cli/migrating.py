"""`a2m migrate`: one bounded step of the router after another, until the tier is at its new place."""

from __future__ import annotations

import time
from typing import Any, cast

from a2m_cli import rendering
from a2m_cli.connection import CliError, Server, explain, require_extensions
from a2m_cli.tally import Tally
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, JsonObject

_PURPOSE = "move a tier to another service (only a router over HTTP can)"
_ATTEMPTS = 5
"""Steps in a row that may fail in a way that may pass, before that is told."""


def migrate(server: Server, tier: str, url: str, *, pause: float, dry: bool, quiet: bool) -> dict[str, Any]:
    """Bring a tier to the service at `url`, or look whether that could be done; what the router told last.

    After a `CliError`, call it again to go on.
    """
    begun = time.monotonic()
    params: JsonObject = {"tier": tier, "url": url, "pause": pause}

    async def work(client: Client) -> JsonObject:
        described = await client.describe()
        require_extensions(described, ["relocate"], _PURPOSE)
        if dry:
            return await client.call("memory/relocate", {**params, "dry": True})
        with Tally(f"moving {tier}", _count(described, tier), quiet=quiet) as tally:
            failed = 0
            while True:
                try:
                    told = await client.call("memory/relocate", params)
                except A2MError as error:
                    failed += 1
                    if not error.retryable:
                        raise
                    if failed > _ATTEMPTS:
                        raise CliError(f"{explain(error, server.url)}\nRun it again to go on.") from error
                    tally.update(0, waiting=error.message)
                    continue
                failed = 0
                tally.update(int(cast("int", told.get("verified", 0))))
                if told.get("state") == "switched":
                    return told

    return {**server.run(work), "seconds": round(time.monotonic() - begun, 3)}


def show(told: dict[str, Any]) -> None:
    """Say what was done, and what is left to do."""
    out = rendering.console()
    old, new = rendering.safe(told["from"]), rendering.safe(told["to"])
    if told["state"] == "ready":
        records = rendering.counted(told["records"], "record")
        out.print(f"Nothing is in the way of moving {records} from {old} to {new}.", soft_wrap=True)
        return
    if "digest" not in told:
        out.print(f"{rendering.safe(told['tier'])} is at {new} already.", soft_wrap=True)
        return
    rate = told["copied"] / told["took"] if told["took"] else 0.0
    out.print(f"moved           {rendering.safe(told['tier'])} from {old} to {new}", soft_wrap=True)
    out.print(f"records         {told['records']:>8}  of which {told['verified']} compared, all the same")
    out.print(f"tombstones      {told['tombstones']:>8}")
    out.print(f"copied          {told['copied']:>8}  in {told['passes']} passes, {rate:.0f} records a second")
    out.print(f"digest          {told['digest']}, of the old and of the new", soft_wrap=True)
    out.print(f"writes waited for {told['held']:.2f} s; in all {told['took']:.1f} s")
    if told["strays"]:
        out.print(
            f"{rendering.counted(told['strays'], 'record')} of the old service changed after that: somebody "
            "writes to it without this router. Find out who, and bring what they wrote over by hand.",
            soft_wrap=True,
        )
    out.print(
        f"The service at {old} is asked no more and still has everything: stop it, write {new} into the "
        "router's federation.yaml, and remove its database when you no longer want it.",
        soft_wrap=True,
    )


def _count(described: JsonObject, tier: str) -> int:
    tiers = cast("list[JsonObject]", described.get("tiers") or [])
    return next((int(cast("int", one["count"])) for one in tiers if one.get("name") == tier), 0)
