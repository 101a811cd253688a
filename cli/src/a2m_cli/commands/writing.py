"""Commands that change what is remembered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from a2m_cli import options
from a2m_cli.connection import FAILED, WRONG_USAGE, CliError, Server, require_extensions
from a2m_cli.options import (
    DEFAULT_URL,
    AsJson,
    Ids,
    KeyPrefix,
    Owner,
    Session,
    Tier,
    TokenFile,
    Url,
    Where,
)

if TYPE_CHECKING:
    from a2m_protocol.errors import JsonObject

_LONG = 120.0


def remember(
    text: Annotated[str | None, typer.Argument(help="What to remember; without it, standard input.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="The conversation it is part of.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The address of a fact; rewrites it.")] = None,
    role: Annotated[
        str | None, typer.Option("--role", help="user, assistant, tool, system, memory...")
    ] = None,
    tier: Annotated[str | None, typer.Option("--tier", help="Where to put it; default: working.")] = None,
    record_id: Annotated[str | None, typer.Option("--id", help="An id of your own: safe to repeat.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="What it is to be kept together with.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", "-m", help="key=value or a JSON object; repeatable.", metavar="K=V|JSON"),
    ] = None,
    salience: Annotated[
        float | None, typer.Option("--salience", help="How much it is worth keeping.")
    ] = None,
    uri: Annotated[str | None, typer.Option("--uri", help="What it refers to.")] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Where it comes from, e.g. web; see a2m purge.")
    ] = None,
    derived_from: Annotated[
        list[str] | None, typer.Option("--derived-from", help="An id that it was made of; repeatable.")
    ] = None,
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Write one record, and print its id."""
    record = options.params(
        content=_content(text, uri),
        session=session,
        key=key,
        role=role,
        tier=tier,
        id=record_id,
        group=group,
        metadata=options.metadata_of(metadata or []),
        salience=salience,
        uri=uri,
        provenance=options.params(source=source, derived_from=derived_from) or None,
    )
    result = options.server(url, token_file).call("remember", options.params(records=[record], owner=owner))
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    else:
        ids = result.get("ids")
        for written in ids if isinstance(ids, list) else []:
            rendering.console().print(rendering.safe(written), soft_wrap=True)
        if result.get("pending"):
            note = "pending: no recall finds it before it is approved (a2m approve) or others say the same"
            rendering.console(stderr=True).print(note, soft_wrap=True)


def forget(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of records.", show_default=False)] = None,
    query: Annotated[str | None, typer.Option("--query", help="What holds all of these words.")] = None,
    tier: Tier = None,
    session: Session = None,
    where: Where = None,
    key_prefix: KeyPrefix = None,
    owner: Owner = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Look in every tier and index for what is left; fail if anything is."),
    ] = False,
    erase: Annotated[
        bool, typer.Option("--erase", help="Rewrite history too, where a tier keeps one (git). Asks first.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask. Ids alone are asked about with --erase only.")
    ] = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete records for good; everything given must apply to a record.

    With --verify or --erase, ids may be of what is forgotten already.
    """
    selected = options.params(
        ids=ids, query=query, tier=tier, where=options.where_of(where, session), key_prefix=key_prefix
    )
    if not selected:
        raise CliError(
            "nothing selected: give ids, --query, --tier, --session, --where or --key-prefix", WRONG_USAGE
        )
    selected |= options.params(owner=owner)
    server = options.server(url, token_file, timeout=_LONG if erase or verify else 30.0)
    needed = [name for name, wanted in (("verify", verify), ("erase", erase)) if wanted]
    if needed:
        require_extensions(server.call("describe", {}), needed, "do this")
    if not yes and (erase or not selected.keys() <= {"ids", "owner"}):
        _confirm(server, selected, erase=erase)
    result = server.call("forget", selected | options.params(erase=erase))
    found = _look(server, selected, result) if verify else None
    if as_json:
        _figures(result if found is None else {**result, "verified": found}, as_json)
    else:
        _figures(result, as_json)
        _show_left(result, found, erased=erase)
    from a2m_cli.verifying import is_clean

    if result.get("live") or (found is not None and not is_clean(found, erased=erase)):
        raise typer.Exit(FAILED)


def promote(
    ids: Ids,
    to: Annotated[str, typer.Option("--to", help="The tier to move them to.")],
    salience: Annotated[float | None, typer.Option("--salience", help="Added on arrival.")] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Move records, with their groups, to a tier."""
    result = options.server(url, token_file).call(
        "promote", options.params(ids=ids, tier=to, salience=salience)
    )
    _figures(result, as_json)


def reinforce(
    ids: Ids,
    amount: Annotated[
        float | None, typer.Option("--amount", help="Added to the salience; default 1.")
    ] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Make records more worth keeping."""
    result = options.server(url, token_file).call("reinforce", options.params(ids=ids, amount=amount))
    _figures(result, as_json)


def consolidate(url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Promote what has earned it and spill what is over capacity, now."""
    _figures(options.server(url, token_file, timeout=120.0).call("consolidate", {}), as_json)


def close(
    session: Annotated[str, typer.Argument(help="The session that has ended.")],
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """End a session: its records leave the working tier."""
    result = options.server(url, token_file, timeout=120.0).call(
        "session/close", options.params(session=session, owner=owner)
    )
    _figures(result, as_json)


def summarize(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of records.", show_default=False)] = None,
    query: Annotated[str | None, typer.Option("--query", help="What holds all of these words.")] = None,
    tier: Annotated[str | None, typer.Option("--tier", help="What is in this tier.")] = None,
    session: Session = None,
    where: Where = None,
    key_prefix: KeyPrefix = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, help="The newest so many; default, and most: what a recall may give."
        ),
    ] = None,
    into: Annotated[str | None, typer.Option("--into", help="The tier to write the summary to.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The key to write it at.")] = None,
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Condense records into one that is written; they themselves stay."""
    result = options.server(url, token_file, timeout=120.0).call(
        "summarize",
        options.params(
            ids=ids,
            query=query,
            tier=tier,
            where=options.where_of(where, session),
            key_prefix=key_prefix,
            limit=limit,
            into=into,
            key=key,
            owner=owner,
        ),
    )
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
        return
    out = rendering.console()
    rendering.show_figures(out, {name: result.get(name) for name in ("read", "written")})
    if records := rendering.objects(result.get("records")):
        rendering.show_records(out, records)


def _content(text: str | None, uri: str | None) -> str | None:
    content = text
    if content is None and not sys.stdin.isatty():
        try:
            content = sys.stdin.buffer.read().decode().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise CliError("standard input is not UTF-8 text") from error
    if not content and uri is None:
        raise CliError("nothing to remember: give a text, or pipe one in", WRONG_USAGE)
    return content


def _confirm(server: Server, selected: JsonObject, *, erase: bool) -> None:
    """Ask whether to erase, or to forget what was not named one by one; without anybody to ask, refuse."""
    from a2m_cli.selection import count, words
    from a2m_cli.verifying import COST

    verb = "forget and erase" if erase else "forget"
    if not sys.stdin.isatty():
        raise CliError(
            f"this would {verb} all records {words(selected)}: say so with --yes where nobody can be asked",
            WRONG_USAGE,
        )
    if erase:
        typer.echo(COST, err=True)
    named = selected.keys() <= {"ids", "owner"}
    matching = "all records" if named else server.run(lambda client: count(client, selected))
    typer.confirm(f"{verb.capitalize()} {matching} {words(selected)}?", abort=True)


def _look(server: Server, selected: JsonObject, result: JsonObject) -> JsonObject:
    """What is left of what was forgotten or named."""
    from a2m_cli import verifying

    return verifying.look(server, verifying.ids_of(selected, result))


def _show_left(result: JsonObject, found: JsonObject | None, *, erased: bool) -> None:
    from a2m_cli import rendering, verifying

    out = rendering.console()
    verifying.show_kept(out, result)
    if found is not None:
        verifying.show(out, found, erased=erased)


def _figures(result: JsonObject, as_json: bool) -> None:
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    else:
        rendering.show_figures(rendering.console(), result)
