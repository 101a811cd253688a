"""Commands that say who may use a federation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a2m_cli.connection import WRONG_USAGE, CliError
from a2m_cli.options import DATA, AsJson

if TYPE_CHECKING:
    from a2m_cli.tokens import Given

File = Annotated[
    Path | None,
    typer.Option(
        "--file", envvar="A2M_PRINCIPALS_FILE", help="The file of principals; else the one in --data."
    ),
]
Data = Annotated[Path, typer.Option("--data", help="The data folder of `a2m up`.")]
Name = Annotated[
    str, typer.Argument(help="The principal's name, e.g. acme/support/agent-7.", show_default=False)
]
Expires = Annotated[
    str | None, typer.Option("--expires", help="When the token ends: 90d, 12h, 30m.", metavar="TIME")
]
ROLES = ("agent", "reader", "curator", "operator", "router")


def create(
    name: Name,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Whose records it has; default: its name.")
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", help=f"{', '.join(ROLES)}; may be repeated. Default: agent.")
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", help="Another owner whose records it may read, or *; may be repeated."),
    ] = None,
    no_pooled: Annotated[bool, typer.Option("--no-pooled", help="It does not see pooled records.")] = False,
    quota: Annotated[
        str | None,
        typer.Option(
            "--quota", help="How much its owner may hold for it to write: 100MB, 2GiB.", metavar="SIZE"
        ),
    ] = None,
    expires: Expires = None,
    file: File = None,
    data: Data = DATA,
) -> None:
    """Make a principal and print its token, which is shown this once."""
    for name_of_role in role or []:
        if name_of_role not in ROLES:
            raise CliError(f"--role {name_of_role[:20]!r}: expected one of {', '.join(ROLES)}", WRONG_USAGE)
    from a2m_cli import tokens

    given = tokens.create(
        _path(file, data),
        name,
        owner=owner,
        roles=role or [],
        reads=read or [],
        pooled=not no_pooled,
        quota=None if quota is None else tokens.size(quota),
        lifetime_ms=_lifetime(expires),
    )
    _show(given)


def list_(file: File = None, data: Data = DATA, as_json: AsJson = False) -> None:
    """List principals and the state of their tokens; no secret is kept that could be shown."""
    from a2m_cli import rendering, tokens

    principals = tokens.listed(_path(file, data))
    if as_json:
        rendering.print_json([*principals])
    else:
        rendering.show_principals(rendering.console(), principals)


def rotate(
    name: Name,
    grace: Annotated[
        str, typer.Option("--grace", help="For how long the old tokens still work.", metavar="TIME")
    ] = "0s",
    expires: Expires = None,
    file: File = None,
    data: Data = DATA,
) -> None:
    """Give a principal a new token, printed this once, and end those that it has."""
    from a2m_cli import tokens

    grace_ms = tokens.duration_ms(grace, "--grace")
    given = tokens.rotate(_path(file, data), name, grace_ms=grace_ms, lifetime_ms=_lifetime(expires))
    if file is None:
        tokens.keep_own(given, data)
    _show(given)


def revoke(
    name: Annotated[
        str, typer.Argument(help="A principal's name, or the id of a token.", show_default=False)
    ],
    file: File = None,
    data: Data = DATA,
) -> None:
    """End all tokens of a principal, or one by its id, at once."""
    from a2m_cli import rendering, tokens

    ended = tokens.revoke(_path(file, data), name)
    rendering.console(stderr=True).print(f"{rendering.counted(len(ended), 'token')} revoked")


def _path(file: Path | None, data: Path) -> Path:
    from a2m_cli.blueprint import Blueprint

    return (file or Blueprint(data).principals_file).expanduser().absolute()


def _lifetime(expires: str | None) -> int | None:
    from a2m_cli import tokens

    return None if expires is None else tokens.lifetime_ms(expires)


def _show(given: Given) -> None:
    """The token alone on standard output, so that it can be piped; what is said of it elsewhere."""
    from a2m_cli import rendering

    until = f"until {given.token.expires}" if given.token.expires else "without an end"
    out = rendering.console(stderr=True)
    whose = rendering.safe(given.principal.name)
    out.print(f"token {given.token.id} of {whose}, {until}; it is shown this once:", soft_wrap=True)
    sys.stdout.write(given.text + "\n")
    sys.stdout.flush()
