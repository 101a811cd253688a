"""Commands that bring conversations in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from a2m_cli import options
from a2m_cli.options import DEFAULT_URL, AsJson, Session, TokenFile, Url, Where


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="JSONL files: chat transcripts, turn lines or exports.", exists=True, dir_okay=False
        ),
    ],
    start: Annotated[
        str | None,
        typer.Option("--start", help="When conversations without times begin; default 2000-01-01."),
    ] = None,
    ignore_tiers: Annotated[
        bool, typer.Option("--ignore-tiers", help="Put everything where new records go.")
    ] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=500, help="Records a call.")] = 100,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for a server that has gone away.")
    ] = 120.0,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Bring conversations in, a session each. Doing it again changes nothing."""
    from a2m_cli.carrying import Import, import_files

    server = options.server(url, token_file)
    wanted = Import(files, start=start, keep_tiers=not ignore_tiers, batch=batch, patience=patience)
    if import_files(server, wanted, as_json=as_json).failed:
        raise typer.Exit(1)


def export(
    target: Annotated[
        str, typer.Argument(help="The file to write, or - for standard output.", metavar="FILE|-")
    ],
    session: Session = None,
    where: Where = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Write every record with all that belongs to it, for `a2m import`."""
    from a2m_cli.carrying import export_to

    export_to(options.server(url, token_file, timeout=60.0), target, where=options.where_of(where, session))
