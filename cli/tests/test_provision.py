"""`a2m init`: the secrets of a deployment."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from command_line import Cli

from a2m_cli.provision import FOLDERS
from a2m_server.identity import Role
from a2m_server.register import Register, read

FILES = {
    "service/token",
    "service/principals.json",
    "router/principals.json",
    "you/token",
    "metrics/token",
    "postgres/password",
    "postgres/pgpass",
    "valkey/password",
    "valkey/valkey.conf",
    "qdrant/api-key",
    "grafana/password",
}


def held(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in FILES}


def test_all_secrets_are_made_and_named(cli: Cli, tmp_path: Path) -> None:
    said = cli("init", str(tmp_path / "secrets"))
    assert {line.removeprefix("made ") for line in said.splitlines()} == FILES
    assert {name.partition("/")[0] for name in FILES} == set(FOLDERS)


def test_a_second_time_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    cli("init", str(tmp_path))
    before = held(tmp_path)
    assert cli("init", str(tmp_path)) == "nothing was missing\n"
    assert held(tmp_path) == before


def test_no_secret_is_printed(cli: Cli, tmp_path: Path) -> None:
    said = cli("init", str(tmp_path)) + cli.err
    for name in ("service/token", "you/token", "metrics/token", "postgres/password", "qdrant/api-key"):
        assert (tmp_path / name).read_text().strip() not in said


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_is_lost_is_made_again_and_the_rest_still_fits(cli: Cli, tmp_path: Path, name: str) -> None:
    cli("init", str(tmp_path))
    (tmp_path / name).unlink()
    assert f"made {name}" in cli("init", str(tmp_path))
    password = (tmp_path / "valkey/password").read_text()
    assert (tmp_path / "valkey/valkey.conf").read_text() == f"requirepass {password}"
    # The database of Postgres was made with the password that is in `pgpass`.
    password = (tmp_path / "postgres/password").read_text()
    assert ((tmp_path / "postgres/pgpass").read_text() == f"*:*:*:*:{password}") != (
        name == "postgres/password"
    )
    for register in ("router", "service"):
        known = {p.name for p in read(tmp_path / register / "principals.json").principals}
        assert "metrics" in known


@pytest.mark.parametrize("name", sorted(FILES))
def test_only_programs_which_run_as_others_may_read_what_is_theirs(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    cli("init", str(tmp_path))
    shared = name.startswith(("postgres/password", "valkey/", "qdrant/", "metrics/", "grafana/"))
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == (0o644 if shared else 0o600)


async def test_the_token_for_metrics_sees_no_records(cli: Cli, tmp_path: Path) -> None:
    cli("init", str(tmp_path))
    token = (tmp_path / "metrics/token").read_bytes().strip()
    for register in ("router", "service"):
        caller = await Register(tmp_path / register / "principals.json").verify(token)
        assert caller is not None
        assert caller.roles == {Role.READER}
        assert caller.readable == {"metrics"}


def test_a_folder_that_cannot_be_written_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    cli("init", str(tmp_path / "taken"), status=1)
    assert "cannot make" in cli.err


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_command_line_without_engines_says_what_it_lacks(
    cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2m_cli.commands.operating.find_spec", lambda _: None)
    cli(command, status=1)
    assert "a2m-cli[up]" in cli.err
