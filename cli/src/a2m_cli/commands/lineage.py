"""Commands that follow records to their sources, undo a source, and check who did what."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from a2m_cli import options
from a2m_cli.connection import FAILED, WRONG_USAGE, CliError, require_extensions
from a2m_cli.options import DATA, DEFAULT_URL, AsJson, Owner, TokenFile, Url

if TYPE_CHECKING:
    from a2m_protocol.errors import JsonObject

_LONG = 120.0


def trace(
    record_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a record, also of one forgotten.")
    ],
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show where a record came from, and all that was derived from it, over all tiers."""
    server = options.server(url, token_file, timeout=_LONG)
    require_extensions(server.call("describe", {}), ["trace"], "do this")
    result = server.call("trace", options.params(id=record_id, owner=owner))
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
        return
    rendering.show_trace(rendering.console(), record_id, result)
    rendering.show_degraded(result)


def purge(
    source: Annotated[
        str, typer.Option("--source", help="The source whose records go, with what came of them.")
    ],
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only what was written since: a date, a time, or how long ago (7d)."),
    ] = None,
    owner: Owner = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Forget all records of a source and everything derived from them; says first what that is."""
    server = options.server(url, token_file, timeout=_LONG)
    require_extensions(server.call("describe", {}), ["purge"], "do this")
    moment = None if since is None else options.moment(since, "--since")
    asked = options.params(source=source, since=moment, owner=owner)
    planned = server.call("purge", asked | {"dry": True})
    if dry:
        _report(planned, as_json)
        return
    if not yes and (planned["source"] or planned["derived"]):
        if not sys.stdin.isatty():
            raise CliError(
                f"this would forget {_counts(planned)}: say so with --yes where nobody can be asked",
                WRONG_USAGE,
            )
        typer.confirm(f"Forget {_counts(planned)}?", abort=True)
    result = server.call("purge", asked)
    while result["more"]:
        step = server.call("purge", asked)
        if step["more"] and not step["forgotten"]:
            raise CliError("records come as fast as they are forgotten: stop that source, and purge again")
        result = _added(result, step)
    del result["more"]
    _report(result, as_json)
    late = server.call("purge", asked | {"dry": True})
    if late["source"] or late["derived"]:
        raise CliError(f"{_counts(late)} came while this worked: stop that source, and purge again")


def verify(
    file: Annotated[Path | None, typer.Argument(help="The audit log; else the one in --data.")] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", help="The digest that an earlier look gave: fail unless the log still has it."
        ),
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="The data folder of `a2m up`.")] = DATA,
    as_json: AsJson = False,
) -> None:
    """Check that no line of an audit log was changed, taken out or put in.

    Note the digest that it prints: with --head it also shows whether lines are missing at the end.
    """
    from a2m_cli import rendering
    from a2m_cli.blueprint import Blueprint
    from a2m_server import audit

    path = (file or Blueprint(data).audit_file).expanduser().absolute()
    try:
        verified = audit.verify(path, head)
    except OSError as error:
        raise CliError(f"cannot read the audit log {path}: {error.strerror or error}") from error
    if as_json:
        told: JsonObject = {"lines": verified.lines, "head": verified.head, "problem": verified.problem}
        rendering.print_json(told)
    else:
        out = rendering.console()
        out.print(f"{rendering.counted(verified.lines, 'line')} right, the last with digest {verified.head}")
        if verified.problem is not None:
            rendering.console(stderr=True).print(f"not right: {verified.problem}", soft_wrap=True)
    if verified.problem is not None:
        raise typer.Exit(FAILED)


def _added(result: JsonObject, more: JsonObject) -> JsonObject:
    """Two steps of a purge as one: figures add up, those by tier too."""
    total: JsonObject = {**more}
    for name, value in result.items():
        theirs = more.get(name)
        if isinstance(value, dict):
            counts = Counter(cast("dict[str, int]", value))
            counts.update(cast("dict[str, int]", theirs or {}))
            total[name] = dict(counts)
        elif isinstance(value, int) and not isinstance(value, bool):
            total[name] = value + cast("int", theirs or 0)
    return total


def _counts(planned: JsonObject) -> str:
    return f"{planned['source']} records of the source and {planned['derived']} derived from them"


def _report(result: JsonObject, as_json: bool) -> None:
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    else:
        rendering.show_figures(rendering.console(), {k: v for k, v in result.items() if k != "ids"})
