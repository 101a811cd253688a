from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from a2m_server.settings import ServerSettings, is_loopback


def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "a2m_server", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def url_in(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"serving on (http://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("it does not serve")


@pytest.fixture
def url() -> Iterator[str]:
    with start("--port", "0") as process:
        try:
            yield url_in(process)
        finally:
            process.kill()


def refusal(*arguments: str, **env: str) -> str:
    """The message of a server that must not start."""
    with start(*arguments, **env) as process:
        out, err = process.communicate(timeout=60)
        assert process.returncode not in (0, None)
        assert out == ""
        assert "Traceback" not in err
        return err


def test_the_in_memory_store_is_served_over_http(url: str) -> None:
    record = {"content": "hello", "id": "a"}
    with httpx.Client(base_url=url, trust_env=False) as client:
        for method, params in (("remember", {"records": [record]}), ("timeline", {})):
            message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
            result = client.post("/", json=message).json()["result"]
        assert [found["content"] for found in result["records"]] == ["hello"]
        assert client.get("/.well-known/a2m-server.json").json()["protocol"] == "a2m/0.1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0_and_frees_the_port(number: signal.Signals) -> None:
    with start("--port", "0") as process:
        port = int(url_in(process).rpartition(":")[2])
        # An idle connection must not hold it up.
        with socket.create_connection(("127.0.0.1", port)):
            process.send_signal(number)
            assert process.wait(60) == 0
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))


def test_a_taken_port_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refusal("--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in message
    assert "A2M_SERVER_PORT" in message


def test_it_refuses_to_listen_to_the_network_without_a_token() -> None:
    message = refusal("--host", "0.0.0.0")
    assert "0.0.0.0" in message
    assert "A2M_SERVER_TOKEN_FILE" in message
    assert "A2M_SERVER_ALLOW_UNAUTHENTICATED_REMOTE" in message


def test_it_listens_to_the_network_when_told_so_in_as_many_words() -> None:
    with start("--host", "0.0.0.0", "--port", "0", A2M_SERVER_ALLOW_UNAUTHENTICATED_REMOTE="true") as process:
        try:
            assert url_in(process).startswith("http://0.0.0.0:")
        finally:
            process.kill()


def test_a_token_file_without_a_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert "cannot read the token file" in refusal("--token-file", str(path))
    path.write_text("two words\n")
    assert "holds no bearer token" in refusal("--token-file", str(path))


def test_wrong_settings_are_named_without_a_traceback() -> None:
    assert "port" in refusal("--port", "99999")
    assert "log_level" in refusal("--log-level", "loud")
    assert "request_timeout" in refusal(A2M_SERVER_REQUEST_TIMEOUT="never")


def test_lists_are_separated_by_commas() -> None:
    settings = ServerSettings(hosts="Episodic, memory.internal,")  # pyright: ignore[reportArgumentType]
    assert settings.hosts == ("episodic", "memory.internal")


def test_the_secrets_of_settings_are_not_in_their_errors() -> None:
    with pytest.raises(ValidationError) as caught:
        ServerSettings(port="hunter2")  # pyright: ignore[reportArgumentType]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
    ],
)
def test_loopback_is_told_from_the_network(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_stdio_says_the_same_of_wrong_settings() -> None:
    assert "log_level" in refusal("--stdio", "--log-level", "loud")


BROKEN = """
from a2m_protocol.errors import unavailable
from a2m_server.command import main
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings
class Broken(MemoryTier):
    async def open(self):
        raise unavailable("the database", "it was switched off")
main(lambda settings: Broken(), ServerSettings)
"""


@pytest.mark.parametrize("options", [["--port", "0"], ["--stdio"]])
def test_a_store_that_does_not_open_is_said_so(options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, *options], capture_output=True, text=True, timeout=60, input=""
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("cannot start: the database is not available")


def test_help_names_the_options() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "a2m_server", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "--stdio" in done.stdout
    assert json.dumps(done.stderr) == '""'
