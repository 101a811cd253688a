"""What `a2m token` does to the file of principals, and the token that `a2m up --auth` gives its own user."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from a2m_cli.blueprint import Blueprint
from a2m_cli.connection import WRONG_USAGE, CliError
from a2m_cli.files import whole_file
from a2m_protocol.errors import JsonObject
from a2m_protocol.types import explain
from a2m_server.identity import Role
from a2m_server.principals import Principal, Principals, Token, make_token, revoked, rotated
from a2m_server.quota import bytes_of
from a2m_server.register import Edit, RegisterError, editing, read

YOU = "you"
"""The principal of who runs `a2m up --auth`."""

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,6})([smhd])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Given:
    """A token that was made, to be shown once, and whose it is."""

    text: str
    principal: Principal
    token: Token


def create(
    path: Path,
    name: str,
    *,
    owner: str | None = None,
    roles: Sequence[str] = (),
    reads: Sequence[str] = (),
    pooled: bool = True,
    quota: int | None = None,
    lifetime_ms: int | None = None,
) -> Given:
    """Add a principal with a token; raises `CliError`, also where there is one of that name."""
    text, token = make_token(_now_ms(), lifetime_ms)
    fields = {
        "name": name,
        "owner": name if owner is None else owner,
        "reads": tuple(reads),
        "pooled": pooled,
        "quota": quota,
        "tokens": (token,),
    }
    try:
        made = Principal.model_validate({**fields, "roles": tuple(roles or [Role.AGENT])})
    except ValidationError as error:
        why = explain(error, "principal").removeprefix("principal").lstrip(".: ")
        raise CliError(f"no such principal can be: {why}", WRONG_USAGE) from error
    with _editing(path) as edit:
        if edit.principals.named(name) is not None:
            raise CliError(f"there is a principal {name!r}: `a2m token rotate` gives it a new token")
        edit.principals = edit.principals.with_(made)
    return Given(text, made, token)


def rotate(path: Path, name: str, *, grace_ms: int = 0, lifetime_ms: int | None = None) -> Given:
    """Give a principal a new token; those that it has end after `grace_ms`. Raises `CliError`.

    Without a `lifetime_ms` it lasts as long as the one before it.
    """
    now = _now_ms()
    with _editing(path) as edit:
        whose = _named(edit.principals, name)
        if lifetime_ms is None and whose.tokens:
            lifetime_ms = whose.tokens[-1].lifetime_ms
        text, token = make_token(now, lifetime_ms)
        changed = rotated(whose, token, now, grace_ms)
        edit.principals = edit.principals.with_(changed)
    return Given(text, changed, token)


def revoke(path: Path, name: str) -> list[str]:
    """End all tokens of a principal, or the one of an id; the ids that were valid. Raises `CliError`."""
    now = _now_ms()
    with _editing(path) as edit:
        whose = edit.principals.named(name)
        ids = [token.id for token in whose.tokens] if whose is not None else [name]
        holders = [p for p in edit.principals.principals if any(token.id in ids for token in p.tokens)]
        if whose is None and not holders:
            raise CliError(f"there is no principal and no token {name!r}")
        ended = [t.id for p in holders for t in p.tokens if t.id in ids and t.state(now) == "valid"]
        for holder in holders:
            edit.principals = edit.principals.with_(revoked(holder, ids, now))
    return ended


def listed(path: Path) -> list[JsonObject]:
    """All principals and their tokens, without anything secret; raises `CliError`."""
    now = _now_ms()
    return [_wire(principal, now) for principal in _read(path).principals]


def duration_ms(text: str, option: str) -> int:
    """The milliseconds of `90d`, `12h`, `30m` or `10s`; raises `CliError`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise CliError(f"{option} {text[:20]!r}: expected a number and s, m, h or d, as in 90d", WRONG_USAGE)
    return int(match[1]) * _UNITS_MS[match[2]]


def size(text: str) -> int:
    """The bytes of `100MB` or `2GiB`; raises `CliError`."""
    try:
        return bytes_of(text)
    except ValueError as error:
        raise CliError(f"--quota {text[:20]!r}: {error}", WRONG_USAGE) from error


def lifetime_ms(text: str) -> int:
    """How long a token is to last; raises `CliError` for no time at all."""
    found = duration_ms(text, "--expires")
    if not found:
        raise CliError("--expires: expected a time such as 90d, not none at all", WRONG_USAGE)
    return found


def ensure_you(path: Path, token_file: Path) -> None:
    """Make the principal of this user, once, and write its token into a file of mode 0600.

    A file that was lost is made anew. What was revoked stays so. Raises `CliError`.
    """
    known = _read(path).named(YOU) if path.exists() else None
    if known is None:
        given = create(path, YOU, roles=[Role.AGENT, Role.OPERATOR])
    elif not token_file.exists():
        given = rotate(path, YOU)
    else:
        return
    _keep(given, token_file)


def ensure_principal(
    paths: Sequence[Path], name: str, token_file: Path, *, roles: Sequence[str], pooled: bool
) -> None:
    """Make a principal once, known by one token to each of several files, and write the token into a file.

    Where the token's file or one of the others lacks it, all of them get a new token. Raises `CliError`.
    """
    if token_file.exists() and all(path.exists() and _read(path).named(name) for path in paths):
        return
    text, token = make_token(_now_ms(), None)
    made = Principal(name=name, owner=name, roles=tuple(map(Role, roles)), pooled=pooled, tokens=(token,))
    for path in paths:
        with _editing(path) as edit:
            edit.principals = edit.principals.with_(made)
    _keep(Given(text, made, token), token_file)


def keep_own(given: Given, data: Path) -> None:
    """Put a new token of the one who runs a federation where its commands look for it."""
    token_file = Blueprint(data).own_token_file
    if given.principal.name == YOU and token_file.exists():
        _keep(given, token_file)


def _keep(given: Given, token_file: Path) -> None:
    with whole_file(token_file) as out:
        out.write(given.text.encode() + b"\n")


def write_access(path: Path, url: str, token_file: Path) -> None:
    """Tell the commands run beside a data folder which token a server's user has."""
    with whole_file(path) as out:
        out.write(json.dumps({"url": url, "token_file": str(token_file)}).encode() + b"\n")


@contextmanager
def _editing(path: Path) -> Generator[Edit]:
    try:
        with editing(path) as edit:
            yield edit
    except RegisterError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror or os.strerror(error.errno or 0)}") from error


def _read(path: Path) -> Principals:
    try:
        return read(path)
    except RegisterError as error:
        raise CliError(str(error)) from error


def _named(principals: Principals, name: str) -> Principal:
    found = principals.named(name)
    if found is None:
        raise CliError(f"there is no principal {name!r}: `a2m token create` makes one")
    return found


def _wire(principal: Principal, now_ms: int) -> JsonObject:
    return {
        "name": principal.name,
        "owner": principal.owner,
        "roles": [role for role in Role if role in principal.roles],
        "reads": [*principal.reads],
        "pooled": principal.pooled,
        "quota": principal.quota,
        "tokens": [
            {"id": t.id, "state": t.state(now_ms), "created": t.created, "expires": t.expires}
            for t in principal.tokens
        ],
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
