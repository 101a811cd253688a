"""Commands that look something up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from a2m_cli import options
from a2m_cli.connection import WRONG_USAGE, CliError
from a2m_cli.options import (
    DEFAULT_URL,
    AsJson,
    KeyPrefix,
    Owner,
    Session,
    Since,
    Tier,
    TokenFile,
    Until,
    Url,
    Where,
)

if TYPE_CHECKING:
    from a2m_protocol.errors import JsonObject

Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=0, help="How many at most; default: all that match.")
]
Embeddings = Annotated[bool, typer.Option("--embeddings", help="Vectors too (with --json).")]
Prompt = Annotated[bool, typer.Option("--prompt", help="As text for a model's prompt.")]


def recall(
    query: Annotated[
        str | None, typer.Argument(help="What to look for; without it, the most recent.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, help="How many at most; default: 8, and 0 is what the server allows."
        ),
    ] = None,
    tier: Tier = None,
    session: Session = None,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    key_prefix: KeyPrefix = None,
    min_score: Annotated[
        float | None, typer.Option("--min-score", help="Leave out what scores lower.")
    ] = None,
    owner: Owner = None,
    embeddings: Embeddings = False,
    prompt: Prompt = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="How each came to its place, and what repeats another.")
    ] = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Find records by relevance, best first."""
    result = options.server(url, token_file).call(
        "recall",
        options.params(
            query=query,
            limit=limit,
            tier=tier,
            where=options.where_of(where, session, since, until),
            key_prefix=key_prefix,
            min_score=min_score,
            owner=owner,
            embeddings=embeddings,
            prompt=prompt,
            explain=explain,
        ),
    )
    _show(result, as_json=as_json, prompt=prompt)


def timeline(
    limit: Limit = None,
    tier: Tier = None,
    session: Session = None,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    key_prefix: KeyPrefix = None,
    owner: Owner = None,
    embeddings: Embeddings = False,
    prompt: Prompt = False,
    order: Annotated[
        str | None, typer.Option("--order", help="seq, that of writing, or key: facts alone, by key.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            help="pending, superseded or archived instead of active; of a session, all are shown without it.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Replay records in the order in which they were written."""
    result = options.server(url, token_file).call(
        "timeline",
        options.params(
            limit=limit,
            tier=tier,
            where=options.where_of(where, session, since, until),
            key_prefix=key_prefix,
            owner=owner,
            embeddings=embeddings,
            prompt=prompt,
            order=order,
            status=status,
        ),
    )
    _show(result, as_json=as_json, prompt=prompt)


def context(
    session: Annotated[str | None, typer.Option("--session", help="The conversation to replay.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Episodes about this.")] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Procedures for this; default: for the query.")
    ] = None,
    owner: Owner = None,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="How many characters at most.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="How many tokens at most, about.")
    ] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Put together what an agent needs before a model call: transcript, facts, episodes, procedures."""
    if budget is not None and tokens is not None:
        raise CliError("--budget and --tokens: give one of them", WRONG_USAGE)
    result = options.server(url, token_file).call(
        "context",
        options.params(
            session=session,
            query=query,
            task=task,
            owner=owner,
            where=options.where_of(where, None, since, until),
            budget=budget if tokens is None else {"tokens": tokens},
        ),
    )
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    else:
        rendering.console().print(rendering.safe(result.get("prompt", "")), soft_wrap=True)
        if isinstance(omitted := result.get("omitted"), dict):
            left_out = ", ".join(f"{rendering.safe(count)} of the {part}" for part, count in omitted.items())
            rendering.console(stderr=True).print(f"left out for the budget: {left_out}", soft_wrap=True)
    rendering.show_degraded(result)


def fetch(
    key: Annotated[str, typer.Argument(help="The key of a fact.")],
    owner: Owner = None,
    embeddings: Embeddings = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the record at a key; exit 1 when there is none."""
    result = options.server(url, token_file).call(
        "fetch", options.params(key=key, owner=owner, embeddings=embeddings)
    )
    from a2m_cli import rendering

    record = result.get("record")
    if as_json:
        rendering.print_json(result)
    elif isinstance(record, dict):
        rendering.show_records(rendering.console(), [record])
    else:
        rendering.console(stderr=True).print(f"nothing at {rendering.safe(key)}")
    if record is None:
        raise typer.Exit(1)


def sessions(
    owner: Owner = None, url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """List sessions, with how many records each has and where."""
    result = options.server(url, token_file).call("session/list", options.params(owner=owner))
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    else:
        rendering.show_sessions(rendering.console(), rendering.objects(result.get("sessions")))


def events(
    cursor: Annotated[str | None, typer.Option("--cursor", help="Events after this position.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="This kind alone; repeatable.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="How many at most; default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    owner: Owner = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened: after a cursor, or from now on with --follow."""
    server = options.server(url, token_file)
    if follow:
        from a2m_cli.watching import follow as follow_events

        follow_events(server, cursor=cursor, kinds=kind, owner=owner, as_json=as_json)
        return
    result = server.call("events", options.params(cursor=cursor, kinds=kind, limit=limit, owner=owner))
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
        return
    out = rendering.console()
    if result.get("reset") is True:
        out.print("some events were lost: the cursor is older than what is kept")
    rendering.show_events(out, rendering.objects(result.get("events")))
    out.print(f"cursor {rendering.safe(result.get('cursor'))}")


def describe(
    owner: Owner = None, url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show what a server is and can do."""
    result = options.server(url, token_file).call("describe", options.params(owner=owner))
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
        return
    out = rendering.console()
    for name, value in result.items():
        if name not in ("tiers", "methods"):
            text = ", ".join(map(rendering.safe, value)) if isinstance(value, list) else rendering.safe(value)
            out.print(f"{name:<14}{text}", soft_wrap=True)
    if tiers := rendering.objects(result.get("tiers")):
        rendering.show_tiers(out, tiers)


def _show(result: JsonObject, *, as_json: bool, prompt: bool) -> None:
    from a2m_cli import rendering

    if as_json:
        rendering.print_json(result)
    elif prompt and isinstance(result.get("prompt"), str):
        rendering.console().print(rendering.safe(result["prompt"]), soft_wrap=True)
    else:
        rendering.show_records(rendering.console(), rendering.objects(result.get("records")))
    if "explained" in result and not as_json:
        rendering.show_explained(rendering.console(), result)
    rendering.show_degraded(result)
