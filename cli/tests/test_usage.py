"""Wrong usage, no server, and what a start of the command loads."""

import subprocess
import sys

import pytest
from command_line import Cli

from a2m_cli.options import metadata_of, where_of

LIGHT = "import sys; import a2m_cli.application as a; a.create(); print(*sys.modules)"
HEAVY = {"pydantic", "httpx", "asyncio", "a2m_protocol", "a2m_engines", "psutil"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["recall", "x"],
        ["timeline"],
        ["remember", "x"],
        ["fetch", "x"],
        ["forget", "x"],
        ["sessions"],
        ["close", "x"],
        ["consolidate"],
        ["promote", "x", "--to", "y"],
        ["reinforce", "x"],
        ["summarize", "x"],
        ["events"],
        ["context"],
        ["describe"],
        ["status"],
        ["export", "-"],
    ],
)
def test_without_a_server_every_command_says_how_to_start_one(
    cli: Cli, arguments: list[str], unused_tcp_port: int
) -> None:
    cli(*arguments, "--url", f"http://127.0.0.1:{unused_tcp_port}", status=3)
    assert "a2m up" in cli.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["recall", "x", "--where", "{"], "--where"),
        (["recall", "x", "--where", "[]"], "--where: expected a JSON object"),
        (["remember", "x", "-m", "novalue"], "--metadata"),
        (["forget"], "nothing selected"),
        (["recall", "x", "--url", "localhost"], "--url"),
        (["recall", "x", "--token-file", "/nonexistent"], "token file"),
        (["up", "--tiers", "cold"], "--tiers"),
        (["up", "--tiers", "working", "--config", "x.yaml"], "--config"),
        (["up", "--config", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read"),
        (["up", "--port-base", "70000"], "--port-base"),
    ],
)
def test_wrong_usage_is_told_apart(cli: Cli, arguments: list[str], complaint: str) -> None:
    cli(*arguments, status=2)
    assert complaint in cli.err


def test_metadata_values_that_read_as_json_are_json() -> None:
    assert metadata_of(["a=1", "b=x=y", 'c={"d": null}', '{"e": true}']) == {
        "a": 1,
        "b": "x=y",
        "c": {"d": None},
        "e": True,
    }
    assert where_of('{"role": "user"}', "s") == {"role": "user", "session": "s"}


def test_starting_loads_nothing_that_help_does_not_need() -> None:
    command = [sys.executable, "-c", LIGHT]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY.isdisjoint(loaded)


def test_a_reader_that_has_enough_is_told_nothing() -> None:
    command = f"{sys.executable} -m a2m_cli --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
