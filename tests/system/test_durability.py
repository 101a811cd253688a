"""What the documentation says of durability is what the engines were started with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from a2m_procedural.journal import Journal
from a2m_procedural.repository import open_repository

PAGE = Path(__file__).parents[2] / "docs" / "durability.md"
ROW = re.compile(r"^\| (\w+) \| `([\w.-]+)` \| `([^`]*)` \| .+ \|$", re.MULTILINE)

Ask = Callable[[str], str]


def documented() -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for engine, name, value in ROW.findall(PAGE.read_text(encoding="utf-8")):
        settings.setdefault(engine, {})[name] = value.strip('"')
    return settings


def valkey(data: Path, _: Path) -> dict[str, str]:
    with Redis(
        unix_socket_path=str(_sockets(data / "valkey") / "valkey.sock"), decode_responses=True
    ) as server:
        return server.config_get("*")


def postgres(data: Path, _: Path) -> dict[str, str]:
    # As the service's own connections have them.
    address = f"host={_sockets(data / 'postgres')} user=a2m dbname=postgres"
    with psycopg.connect(address) as connection:
        return dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())


def sqlite(_: Path, scratch: Path) -> dict[str, str]:
    journal = Journal(scratch / "journal.sqlite3", 1)
    database = journal._db  # pyright: ignore[reportPrivateUsage] the settings are of this connection
    found = {
        name: database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }
    journal.close()
    return {name: str(value) for name, value in found.items()}


def git(_: Path, scratch: Path) -> dict[str, str]:
    told = open_repository(scratch / "skills", None).git.run("config", "--list").decode()
    return {name: value for name, _, value in (line.partition("=") for line in told.splitlines())}


ENGINES = {"valkey": valkey, "postgres": postgres, "sqlite": sqlite, "git": git}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_setting_that_is_documented_is_in_force(engine: str, federation: Any, tmp_path: Path) -> None:
    wanted = documented()[engine]
    assert wanted
    found = ENGINES[engine](federation.data, tmp_path)
    assert {name: found.get(name, found.get(name.lower())) for name in wanted} == wanted


def test_every_engine_of_the_page_is_looked_at() -> None:
    assert documented().keys() == ENGINES.keys()


def _sockets(folder: Path) -> Path:
    """Where an engine listens: a folder of its own, or a short one where its name would be too long."""
    elsewhere = folder / "run.path"
    return Path(elsewhere.read_text()) if elsewhere.exists() else folder / "run"
