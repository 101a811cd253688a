"""The command line `a2m`: which commands there are, and the boundary where failures become messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from a2m_cli.commands import (
    carrying,
    keeping,
    lineage,
    operating,
    reading,
    reviewing,
    tokens,
    writing,
)
from a2m_cli.connection import CliError

_RUNNING = "Run"
_REMEMBERING = "Remember"
_CARRYING = "Import and export"
_KEEPING = "Back up and restore"

_INTERRUPTED = 130


def create() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="a2m",
        help="One memory for agents: run a federation, and talk to any A2M server.\n\n"
        "Exit status: 0 done, 1 refused (status: a tier is away), 2 wrong usage, 3 no server answers.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in (
        operating.up,
        operating.init,
        operating.status,
        operating.reembed,
        operating.migrate,
        operating.demo,
    ):
        app.command(rich_help_panel=_RUNNING)(command)
    for command in (
        writing.remember,
        reading.recall,
        reading.timeline,
        reading.context,
        reading.fetch,
        writing.forget,
        reading.sessions,
        writing.close,
        writing.consolidate,
        writing.promote,
        writing.reinforce,
        writing.summarize,
        reading.events,
        reading.describe,
        lineage.trace,
        lineage.purge,
        reviewing.pending,
        reviewing.approve,
        reviewing.reject,
    ):
        app.command(rich_help_panel=_REMEMBERING)(command)
    app.command("import", rich_help_panel=_CARRYING)(carrying.import_)
    app.command("export", rich_help_panel=_CARRYING)(carrying.export)
    app.command(rich_help_panel=_KEEPING)(keeping.backup)
    app.command(rich_help_panel=_KEEPING)(keeping.restore)
    app.add_typer(_token(), name="token", rich_help_panel=_RUNNING)
    app.add_typer(_audit(), name="audit", rich_help_panel=_RUNNING)
    return app


def _token() -> typer.Typer:
    app = typer.Typer(help="Say who may use a federation: tokens, made, listed, replaced and revoked.")
    app.command()(tokens.create)
    app.command("list")(tokens.list_)
    app.command()(tokens.rotate)
    app.command()(tokens.revoke)
    return app


def _audit() -> typer.Typer:
    app = typer.Typer(help="Check the log of who wrote, forgot, purged or was refused what.")
    app.callback()(lambda: None)  # so that a command alone still has its name
    app.command()(lineage.verify)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default that of this process, and exit with its status."""
    try:
        create()(args=arguments)
    except CliError as error:
        print(f"a2m: {error}", file=sys.stderr)
        sys.exit(error.status)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
