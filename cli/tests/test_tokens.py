"""`a2m token`, and how the commands find the token of who runs `a2m up --auth`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

from a2m_cli.blueprint import Blueprint
from a2m_cli.federation import prepare
from a2m_cli.tokens import duration_ms, write_access
from a2m_server.http import create_app
from a2m_server.listen import Server, bind, url_of
from a2m_server.memory import MemoryTier
from a2m_server.register import read
from a2m_server.settings import ServerSettings

TOKEN = re.compile(r"a2m_[0-9a-z]{8}_[A-Za-z0-9_-]{43}\n")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("A2M_TOKEN_FILE", raising=False)
    return tmp_path / "principals.json"


@pytest.fixture
def served(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that takes the principals of the file."""
    file.write_text('{"principals": []}')
    settings = ServerSettings(port=0, principals_file=file)
    with bind(settings) as listener:
        server = Server(create_app(MemoryTier(), settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        monkeypatch.setenv("A2M_URL", url_of(listener))
        yield url_of(listener)
        server.should_exit = True
        thread.join()


def made(cli: Cli, file: Path, name: str, *options: str) -> Path:
    """The file of a new token."""
    path = file.with_name(f"{name.replace('/', '-')}.token")
    path.write_text(cli("token", "create", name, *options, "--file", str(file)))
    return path


def listed(cli: Cli, file: Path) -> Any:
    return cli.json("token", "list", "--file", str(file))


def test_a_token_is_printed_once_and_alone_and_is_kept_nowhere(cli: Cli, file: Path) -> None:
    out = cli("token", "create", "acme/support/agent-7", "--expires", "90d", "--file", str(file))
    assert TOKEN.fullmatch(out)
    assert "shown this once" in cli.err
    assert out.strip() not in cli.err
    secret = out.strip().rpartition("_")[2]
    assert secret not in file.read_text()
    for shown in (cli("token", "list", "--file", str(file)), json.dumps(listed(cli, file))):
        assert secret not in shown
        assert "sha256" not in shown
        assert "acme/support/agent-7" in shown
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_asked_for_is_what_is_listed(cli: Cli, file: Path) -> None:
    assert cli("token", "list", "--data", str(file.parent), status=1) == ""
    options = ("--owner", "acme", "--role", "curator", "--role", "reader", "--read", "b", "--read", "c/d")
    made(cli, file, "desk", *options, "--no-pooled", "--quota", "2GiB")
    [told] = listed(cli, file)
    assert {name: told[name] for name in ("name", "owner", "roles", "reads", "pooled", "quota")} == {
        "name": "desk",
        "owner": "acme",
        "roles": ["reader", "curator"],
        "reads": ["b", "c/d"],
        "pooled": False,
        "quota": 2 * 2**30,
    }
    assert [(t["state"], t["expires"]) for t in told["tokens"]] == [("valid", None)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", "x", "--role", "king"], "--role"),
        (["create", "x", "--read", "*"], "takes the role"),
        (["create", "x", "--expires", "soon"], "--expires"),
        (["create", "x", "--quota", "much"], "--quota 'much': expected a size"),
        (["create", ""], "no such principal"),
        (["rotate", "x", "--grace", "1w"], "--grace"),
    ],
)
def test_what_cannot_be_is_told_and_leaves_no_file(
    cli: Cli, file: Path, arguments: list[str], complaint: str
) -> None:
    assert cli("token", *arguments, "--file", str(file), status=2) == ""
    assert complaint in cli.err
    assert not file.exists()


def test_a_name_stands_once_and_one_that_is_not_there_is_said_so(cli: Cli, file: Path) -> None:
    made(cli, file, "ann")
    cli("token", "create", "ann", "--file", str(file), status=1)
    assert "a2m token rotate" in cli.err
    for command in ("rotate", "revoke"):
        cli("token", command, "nobody", "--file", str(file), status=1)
        assert "'nobody'" in cli.err
    assert len(listed(cli, file)[0]["tokens"]) == 1


def test_durations_are_numbers_with_a_unit() -> None:
    assert [duration_ms(text, "--x") for text in ("10s", "30m", "12h", "90d")] == [
        10_000,
        1_800_000,
        43_200_000,
        7_776_000_000,
    ]


def test_a_command_shows_its_token_and_is_told_when_it_has_none(cli: Cli, file: Path, served: str) -> None:
    ann, bob = made(cli, file, "ann"), made(cli, file, "bob")
    cli("remember", "tea for ann", "--token-file", str(ann))
    assert "tea for ann" in cli("recall", "tea", "--token-file", str(ann))
    assert "tea for ann" not in cli("timeline", "--token-file", str(bob))
    cli("timeline", "--owner", "ann", "--token-file", str(bob), status=1)
    assert "-32005" in cli.err
    cli("recall", "tea", status=3)
    assert "401" in cli.err
    assert "--token-file" in cli.err


def test_rotation_with_a_grace_keeps_the_old_token_for_a_while(cli: Cli, file: Path, served: str) -> None:
    old = made(cli, file, "ann")
    fresh = file.with_name("fresh")
    fresh.write_text(cli("token", "rotate", "ann", "--grace", "1h", "--file", str(file)))
    for token in (old, fresh):
        cli("timeline", "--token-file", str(token))
    newest = file.with_name("newest")
    newest.write_text(cli("token", "rotate", "ann", "--file", str(file)))
    cli("timeline", "--token-file", str(newest))
    for token in (old, fresh):
        cli("timeline", "--token-file", str(token), status=3)
    assert [t["state"] for t in listed(cli, file)[0]["tokens"]] == ["expired", "expired", "valid"]


def test_a_principal_or_one_token_is_revoked(cli: Cli, file: Path, served: str) -> None:
    ann, bob = made(cli, file, "ann"), made(cli, file, "bob")
    cli("token", "revoke", "ann", "--file", str(file))
    assert "1 token revoked" in cli.err
    cli("token", "revoke", "ann", "--file", str(file))
    assert "0 tokens revoked" in cli.err
    cli("timeline", "--token-file", str(ann), status=3)
    cli("timeline", "--token-file", str(bob))
    token_id = bob.read_text()[4:12]
    cli("token", "revoke", token_id, "--file", str(file))
    cli("timeline", "--token-file", str(bob), status=3)
    assert [t["state"] for p in listed(cli, file) for t in p["tokens"]] == ["revoked", "revoked"]


def test_two_command_lines_at_once_lose_nothing(file: Path) -> None:
    def create(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "a2m_cli", "token", "create", name, "--file", str(file)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    running = [create(f"agent-{n}") for n in range(4)]
    tokens = [process.communicate(timeout=60)[0] for process in running]
    assert len({*tokens}) == 4
    assert sorted(p["name"] for p in json.loads(file.read_text())["principals"]) == [
        f"agent-{n}" for n in range(4)
    ]


def test_who_ran_up_with_auth_needs_to_name_no_token_beside_the_data_folder(
    cli: Cli, file: Path, served: str
) -> None:
    token = made(cli, file, "you", "--role", "operator")
    data = file.parent / ".a2m"
    data.mkdir()
    token = token.rename(data / "you.token")
    write_access(data / "access.json", served, token)
    assert stat.S_IMODE((data / "access.json").stat().st_mode) == 0o600
    assert "memory" in cli("describe", "--json")
    assert "memory" in cli("describe", "--json", "--url", served + "/")
    # To another server it is not shown, nor where another one is named.
    write_access(data / "access.json", "http://127.0.0.1:1", token)
    cli("describe", status=3)
    assert "401" in cli.err
    # A folder that somebody else made could name any file of this user's.
    elsewhere = file.parent / "elsewhere.token"
    elsewhere.write_text(token.read_text())
    write_access(data / "access.json", served, elsewhere)
    cli("describe", status=3)
    assert "401" in cli.err
    for broken in ("", "[]", '{"url": 5}', json.dumps({"url": served, "token_file": 5})):
        (data / "access.json").write_text(broken)
        cli("describe", status=3)
        assert "401" in cli.err


def test_a_new_token_of_who_runs_it_is_put_where_commands_look_for_it(tmp_path: Path, cli: Cli) -> None:
    from a2m_cli.demo import free_port_base

    blueprint = Blueprint(tmp_path / "data", free_port_base(), auth=True)
    prepare(blueprint)
    given = cli("token", "rotate", "you", "--data", str(blueprint.data))
    assert blueprint.own_token_file.read_text() == given


def test_preparing_with_auth_makes_a_token_for_its_user_once(tmp_path: Path, cli: Cli) -> None:
    from a2m_cli.demo import free_port_base

    blueprint = Blueprint(tmp_path / "data", free_port_base(), auth=True)
    settings = blueprint.settings("router")
    assert settings["A2M_ROUTER_PRINCIPALS_FILE"] == str(blueprint.principals_file)
    assert "A2M_WORKING_PRINCIPALS_FILE" not in blueprint.settings("working")
    prepare(blueprint)
    token = blueprint.own_token_file.read_text()
    assert TOKEN.fullmatch(token)
    for path in (blueprint.own_token_file, blueprint.principals_file, blueprint.access_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    [you] = listed(cli, blueprint.principals_file)
    assert (you["name"], you["roles"]) == ("you", ["agent", "operator"])
    prepare(blueprint)
    assert blueprint.own_token_file.read_text() == token
    blueprint.own_token_file.unlink()
    prepare(blueprint)
    [you] = listed(cli, blueprint.principals_file)
    assert [t["state"] for t in you["tokens"]] == ["expired", "valid"]
    prepare(Blueprint(blueprint.data, blueprint.port_base))
    assert not blueprint.access_file.exists()
    assert blueprint.own_token_file.exists()


@pytest.mark.parametrize("name", ["two\nlines", "tab\tbed", " ", " ann", "\x1b[31mred", "x" * 600])
def test_a_name_that_could_not_be_shown_in_a_line_is_refused(cli: Cli, file: Path, name: str) -> None:
    cli("token", "create", name, "--file", str(file), status=2)
    assert "name: " in cli.err
    assert not file.exists()


def test_a_new_token_lasts_as_long_as_the_one_before_it_unless_it_is_told(cli: Cli, file: Path) -> None:
    made(cli, file, "ann", "--expires", "90d")
    lasting: list[int | None] = []
    for options in ([], [], ["--expires", "12h"]):
        cli("token", "rotate", "ann", "--file", str(file), *options)
        (ann,) = read(file).principals
        lasting.append(ann.tokens[-1].lifetime_ms)
    assert lasting == [90 * 86_400_000, 90 * 86_400_000, 12 * 3_600_000]
    cli("token", "rotate", "ann", "--file", str(file), "--expires", "0d", status=2)


def test_what_is_no_file_is_not_waited_for(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    cli("token", "list", "--file", str(tmp_path / "pipe"), status=1)
    assert "is no file" in cli.err
