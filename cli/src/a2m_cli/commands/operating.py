"""Commands that run a federation and look after it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from a2m_cli import options
from a2m_cli.connection import WRONG_USAGE, CliError
from a2m_cli.options import DATA, DEFAULT_URL, AsJson, Tier, TokenFile, Url


def up(
    data: Annotated[Path, typer.Option("--data", help="Where everything is kept.")] = DATA,
    port_base: Annotated[
        int, typer.Option("--port-base", help="Router at N, tiers at N+3 to N+6.", metavar="N")
    ] = 8778,
    tiers: Annotated[
        str | None, typer.Option("--tiers", help="These tiers alone, separated by commas.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A federation.yaml of your own; its tiers without a url are run here."),
    ] = None,
    auth: Annotated[
        bool, typer.Option("--auth", help="Take nobody without a token; `a2m token` makes them.")
    ] = False,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Take credentials out of what is written; needs a2m-server[redact]."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option("--ready-file", help="Written (JSON) once all is ready, removed at the end."),
    ] = None,
) -> None:
    """Run a federation on databases of its own until Ctrl-C."""
    _need_engines()
    from a2m_cli.blueprint import TIERS, Blueprint, BlueprintError, parse_tiers
    from a2m_cli.configuration import ConfigurationError, read
    from a2m_cli.display import display
    from a2m_cli.federation import run

    if config is not None and tiers is not None:
        raise CliError("--tiers: the tiers are those of --config; leave one of the two out", WRONG_USAGE)
    if redact and find_spec("credsweeper") is None:
        raise CliError("--redact needs CredSweeper: install a2m-server[redact]", WRONG_USAGE)
    folder = data.expanduser().absolute()
    try:
        if config is not None:
            given = read(config.expanduser().absolute(), TIERS)
            blueprint = Blueprint.of(folder, port_base, given, auth=auth, redact=redact)
        else:
            wanted = TIERS if tiers is None else parse_tiers(tiers)
            blueprint = Blueprint(folder, port_base, wanted, auth=auth, redact=redact)
    except (BlueprintError, ConfigurationError) as error:
        raise CliError(str(error), WRONG_USAGE) from error
    if blueprint.principals_file.exists() and not auth and not quiet:
        print("There are tokens in this folder, but without --auth nobody is asked for one.", file=sys.stderr)
    run(blueprint, display(quiet=quiet), ready_file=ready_file)


def _need_engines() -> None:
    """Raise `CliError` where the command line was installed without what runs a federation."""
    if find_spec("a2m_engines") is None:
        raise CliError("the engines are not installed here: this command needs the package a2m-cli[up]")


def init(
    folder: Annotated[Path, typer.Argument(help="Where they are kept, each in a folder of its own.")],
) -> None:
    """Make the secrets of a deployment, once: what is there stays as it is."""
    from a2m_cli import rendering
    from a2m_cli.provision import provision

    made = provision(folder.expanduser().absolute())
    out = rendering.console()
    for name in made:
        out.print(f"made {name}", soft_wrap=True)
    if not made:
        out.print("nothing was missing")


def status(url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show tiers, what they hold and whether they answer; exit 1 when one does not."""
    server = options.server(url, token_file)
    from a2m_cli import rendering
    from a2m_cli.status import look

    health = server.run(look)
    if as_json:
        rendering.print_json({"url": url, **health.wire()})
    else:
        out = rendering.console()
        sessions = "" if health.sessions is None else f", {rendering.counted(health.sessions, 'session')}"
        state = "degraded" if health.degraded else "all tiers answer"
        out.print(f"{rendering.safe(health.name)} at {url}: {state}{sessions}\n", soft_wrap=True)
        rendering.show_tiers(out, health.tiers)
        if health.moving:
            out.print("\nRecords are moving: until they have arrived, some count in two tiers.")
        rendering.show_due(out, health.reembed)
    if health.degraded:
        raise typer.Exit(1)


def reembed(
    tier: Tier = None, url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Give every record a vector of the present model; stopped by Ctrl-C, it goes on when called again."""
    from a2m_cli.reembedding import reembed

    done = reembed(options.server(url, token_file, timeout=300.0, retries=8), tier)
    from a2m_cli import rendering

    if as_json:
        rendering.print_json({"model": done.model, "embedded": done.embedded, "refused": done.refused})
    else:
        records = rendering.counted(done.embedded, "record")
        rest = f"{done.refused} refused by" if done.refused else "nothing is without a vector of"
        rendering.console().print(f"{records} embedded: {rest} {done.model}.")


def migrate(
    tier: Annotated[str, typer.Argument(help="The tier to move.")],
    to: Annotated[
        str,
        typer.Option("--to", help="Where its new service is, of the same kind and over an empty database."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only look whether it can be done, and change nothing.")
    ] = False,
    pause: Annotated[
        float,
        typer.Option(
            "--pause", min=0.1, max=300, help="Seconds that writes to the tier wait at most, at the end."
        ),
    ] = 10.0,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Move a tier to another engine or host while it serves; stopped, it goes on when called again."""
    server = options.server(url, token_file, timeout=60.0, retries=30)
    from a2m_cli import migrating, rendering

    told = migrating.migrate(server, tier, to, pause=pause, dry=dry_run, quiet=as_json)
    if as_json:
        rendering.print_json(told)
    else:
        migrating.show(told)
    if told["strays"]:
        raise typer.Exit(1)


def demo(
    keep: Annotated[
        Path | None, typer.Option("--data", help="Keep the data here; default: nothing is kept.")
    ] = None,
) -> None:
    """Show a federation at work: import a conversation, ask about it, and see which tier answers."""
    _need_engines()
    from a2m_cli.demo import run

    run(keep)
