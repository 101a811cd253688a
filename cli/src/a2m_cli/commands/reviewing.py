"""Commands that show what waits for evidence, and decide on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from a2m_cli import options
from a2m_cli.connection import CliError, require_extensions
from a2m_cli.options import DEFAULT_URL, AsJson, Owner, Tier, TokenFile, Url

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of pending records.")]


def pending(
    conflicts: Annotated[bool, typer.Option("--conflicts", help="What contradicts a fact alone.")] = False,
    tier: Tier = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest records that wait for evidence, with the facts that they contradict."""
    server = options.server(url, token_file)
    require_extensions(server.call("describe", {}), ["pending"], "do this")
    asked = options.params(conflicts=conflicts, tier=tier, limit=limit, owner=owner)
    result = server.call("pending", asked)
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
        return
    rendering.show_pending(rendering.console(), result)
    rendering.show_degraded(result)


def approve(
    ids: Ids,
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Let pending records be believed; one that contradicts a fact takes its place. For curators."""
    _decide("approve", "approved", ids, owner, url, token_file, as_json=as_json)


def reject(
    ids: Ids,
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Forget pending records, and nothing that is not pending. For curators."""
    _decide("reject", "rejected", ids, owner, url, token_file, as_json=as_json)


def _decide(
    method: str,
    done: str,
    ids: list[str],
    owner: str | None,
    url: str,
    token_file: Path | None,
    *,
    as_json: bool,
) -> None:
    server = options.server(url, token_file)
    require_extensions(server.call("describe", {}), [method], "do this")
    result = server.call(method, options.params(ids=ids, owner=owner))
    decided = cast("list[str]", result[done])
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    else:
        rendering.show_figures(rendering.console(), {done: len(decided)})
    missed = [one for one in ids if one not in decided]
    if missed:
        raise CliError(f"not pending, or not yours to decide: {', '.join(map(rendering.safe, missed))}")
