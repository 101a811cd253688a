"""Commands that keep a copy of everything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from a2m_cli import options
from a2m_cli.options import DEFAULT_URL, AsJson, TokenFile, Url

_SECONDS = 120.0
_RETRIES = 30


def backup(
    target: Annotated[
        Path, typer.Argument(help="The file to write, or a folder for one named after the time.")
    ],
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Write everything that is remembered, and what was forgotten, into one file, for `a2m restore`."""
    server = options.server(url, token_file, _SECONDS, _RETRIES)
    from a2m_cli import rendering
    from a2m_cli.backup import back_up, show

    made = back_up(server, target, quiet=as_json)
    if as_json:
        rendering.print_json(
            {"path": str(made.path), "left_out": {**made.left_out}, **made.manifest.model_dump(mode="json")}
        )
    else:
        show(made)


def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `a2m backup` wrote.", dir_okay=False)],
    forgotten_from: Annotated[
        str | None,
        typer.Option(
            "--forgotten-from",
            help="The URL of the server that was backed up, if it still answers: what was forgotten there "
            "since does not come back.",
            metavar="URL",
        ),
    ] = None,
    ignore_tiers: Annotated[
        bool, typer.Option("--ignore-tiers", help="Put everything where new records go.")
    ] = False,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for a server that has gone away.")
    ] = 120.0,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Bring a backup in. Doing it again changes nothing, and nothing forgotten here comes back."""
    server = options.server(url, token_file, _SECONDS)
    from a2m_cli import rendering
    from a2m_cli.restore import Wanted, show, wire
    from a2m_cli.restore import restore as bring

    other = None if forgotten_from is None else options.server(forgotten_from, token_file, _SECONDS, _RETRIES)
    wanted = Wanted(archive, keep_tiers=not ignore_tiers, patience=patience, forgotten_from=other)
    done = bring(server, wanted, quiet=as_json)
    if as_json:
        rendering.print_json(wire(done))
    else:
        show(done)
    if done.failed:
        raise typer.Exit(1)
