"""Options that several commands have, and how their text is read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from a2m_cli.connection import WRONG_USAGE, CliError, Server

if TYPE_CHECKING:
    from a2m_protocol.errors import Json, JsonObject

DEFAULT_URL = "http://127.0.0.1:8778"
DATA = Path(".a2m")
"""Where `a2m up` keeps everything unless it is told otherwise."""
ACCESS = "access.json"
"""In there: which server `a2m up --auth` serves, and the file of its user's token."""

Url = Annotated[str, typer.Option("--url", envvar="A2M_URL", help="The server to talk to.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="A2M_TOKEN_FILE", help="A file with the bearer token to show."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the raw result.")]
Owner = Annotated[str | None, typer.Option("--owner", help="Whose records (where the server believes it).")]
Tier = Annotated[str | None, typer.Option("--tier", help="This tier alone.")]
Where = Annotated[
    str | None, typer.Option("--where", help='A filter as JSON, e.g. \'{"role": "user"}\'.', metavar="JSON")
]
Session = Annotated[str | None, typer.Option("--session", help="This session alone.")]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Written since then: a date, a time, or how long ago (30m, 24h, 7d, 2w)."),
]
Until = Annotated[str | None, typer.Option("--until", help="Written before then: as --since.")]
KeyPrefix = Annotated[str | None, typer.Option("--key-prefix", help="Keys at or beneath this prefix.")]
Ids = Annotated[list[str], typer.Argument(help="Ids of records.", show_default=False)]


def server(url: str, token_file: Path | None, timeout: float = 30.0, retries: int = 0) -> Server:
    """The server of the options; raises `CliError` where the URL is none."""
    if not url.startswith(("http://", "https://")):
        raise CliError(f"--url {url!r}: expected a URL such as {DEFAULT_URL}", WRONG_USAGE)
    return Server(url, token_file or _own_token(url), timeout, retries)


def _own_token(url: str) -> Path | None:
    """The token of who ran `a2m up --auth` here, for the server that it started and no other.

    Of a folder that is this user's: another's could name any file as the token.
    """
    try:
        mine = DATA.stat().st_uid == os.geteuid()
        access: object = json.loads((DATA / ACCESS).read_text(encoding="utf-8")) if mine else None
    except (OSError, ValueError):
        return None
    told = cast("dict[str, object]", access) if isinstance(access, dict) else {}
    token_file = Path(str(told.get("token_file", "")))
    ours = told.get("url") == url.rstrip("/") and token_file.resolve().is_relative_to(DATA.resolve())
    return token_file if ours else None


def params(**given: object) -> JsonObject:
    """Parameters of a call: what was given, and true of the flags."""
    return cast("JsonObject", {name: value for name, value in given.items() if not _is_left_out(value)})


def _is_left_out(value: object) -> bool:
    return value is None or value is False or value == []


def where_of(
    text: str | None, session: str | None = None, since: str | None = None, until: str | None = None
) -> JsonObject | None:
    """`--where`, `--session`, `--since` and `--until` as one filter; raises `CliError`."""
    where: JsonObject = {}
    if text is not None:
        value = _json(text, "--where")
        if not isinstance(value, dict):
            raise CliError('--where: expected a JSON object such as {"role": "user"}', WRONG_USAGE)
        where = value
    if session is not None:
        where = {**where, "session": session}
    span: JsonObject = {}
    if since is not None:
        span["gte"] = moment(since, "--since")
    if until is not None:
        span["lt"] = moment(until, "--until")
    if span and "created_at" in where:
        raise CliError("--since and --until: leave them out where --where has created_at", WRONG_USAGE)
    return {**where, "created_at": span} if span else where or None


def metadata_of(given: Sequence[str]) -> JsonObject | None:
    """`--metadata` options, `key=value` each or a JSON object, laid over each other; raises `CliError`.

    A value that reads as JSON is that value, any other is a string.
    """
    metadata: JsonObject = {}
    for text in given:
        if text.lstrip().startswith("{"):
            value = _json(text, "--metadata")
            if isinstance(value, dict):
                metadata |= value
            continue
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise CliError(f"--metadata {text[:40]!r}: expected key=value or a JSON object", WRONG_USAGE)
        metadata[name] = _loose(value)
    return metadata or None


_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def moment(text: str, option: str) -> str:
    """A date (its beginning in UTC), a time or how long ago, as a timestamp; raises `CliError`."""
    from a2m_protocol.clock import format_ms, parse_ms

    count, unit = text[:-1], text[-1:]
    try:
        if count.isdecimal() and unit in _SECONDS:
            return format_ms(time.time_ns() // 1_000_000 - int(count) * _SECONDS[unit] * 1_000)
        return format_ms(parse_ms(text if "T" in text else f"{text}T00:00:00Z"))
    except (ValueError, OverflowError, OSError):
        raise CliError(
            f"{option} {text[:40]!r}: expected a date such as 2026-07-28, a time such as "
            "2026-07-28T10:15:00Z, or how long ago, such as 7d (m, h, d, w)",
            WRONG_USAGE,
        ) from None


def _loose(text: str) -> Json:
    try:
        return cast("Json", json.loads(text))
    except ValueError:
        return text


def _json(text: str, option: str) -> Json:
    from a2m_protocol import jsonrpc
    from a2m_protocol.errors import A2MError

    try:
        return jsonrpc.decode(text)
    except A2MError as error:
        raise CliError(f"{option}: {error.message}", WRONG_USAGE) from error
