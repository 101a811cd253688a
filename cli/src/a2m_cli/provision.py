"""The secrets of a deployment, each in the folder of those who may see it.

| folder | holds | for |
|---|---|---|
| `service` | `token`, `principals.json` | the tiers, and the router that calls them |
| `router` | `principals.json` | the router: who may use the federation |
| `you` | `token` | the operator |
| `metrics` | `token` | what reads `/metrics`; it sees no records |
| `postgres` | `password`, `pgpass` | the database of episodic |
| `valkey` | `password`, `valkey.conf` | that of working |
| `qdrant` | `api-key` | that of semantic |
| `grafana` | `password` | Grafana, for its user `admin` |
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from a2m_cli.connection import CliError
from a2m_cli.files import whole_file
from a2m_cli.tokens import ensure_principal, ensure_you
from a2m_server.identity import Role

FOLDERS = ("service", "router", "you", "metrics", "postgres", "valkey", "qdrant", "grafana")
METRICS = "metrics"
"""The principal that reads `/metrics` of every server."""

_OWNER_ALONE = 0o600
_FOR_OTHERS = 0o644


def provision(folder: Path) -> list[str]:
    """Make what is missing in a folder, and return the names of it; what is there stays as it is.

    Files are of mode 0600, but for those of programs that are not ours and run as other users: who sees their
    folder may read them. Raises `CliError`.
    """
    before = _files(folder)
    try:
        for name in FOLDERS:
            (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"cannot make {error.filename}: {error.strerror or error}") from error
    _once(folder / "service/token", _secret)
    ensure_you(folder / "router/principals.json", folder / "you/token")
    registers = (folder / "router/principals.json", folder / "service/principals.json")
    ensure_principal(registers, METRICS, folder / "metrics/token", roles=[Role.READER], pooled=False)
    (folder / "metrics/token").chmod(_FOR_OTHERS)
    password = _once(folder / "postgres/password", _secret, _FOR_OTHERS)
    # libpq takes a file of passwords only where it is its owner's alone.
    _once(folder / "postgres/pgpass", lambda: f"*:*:*:*:{password}")
    password = _once(folder / "valkey/password", _secret, _FOR_OTHERS)
    configured = f"requirepass {password}"
    if _once(folder / "valkey/valkey.conf", lambda: configured, _FOR_OTHERS) != configured:
        _write(folder / "valkey/valkey.conf", configured, _FOR_OTHERS)
    _once(folder / "qdrant/api-key", _secret, _FOR_OTHERS)
    _once(folder / "grafana/password", _secret, _FOR_OTHERS)
    return sorted(_files(folder) - before)


def _once(path: Path, make: Callable[[], str], mode: int = _OWNER_ALONE) -> str:
    """What a file holds, made where it is missing or empty."""
    try:
        held = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}: {error}") from error
    if held:
        return held
    made = make()
    _write(path, made, mode)
    return made


def _write(path: Path, text: str, mode: int) -> None:
    with whole_file(path) as out:
        out.write(text.encode() + b"\n")
        os.fchmod(out.fileno(), mode)


def _secret() -> str:
    return secrets.token_urlsafe(32)


def _files(folder: Path) -> set[str]:
    found = (folder / name for name in FOLDERS)
    return {
        str(path.relative_to(folder))
        for inside in found
        if inside.is_dir()
        for path in inside.iterdir()
        if not path.name.startswith(".")
    }
