from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import Echo
from a2m_server.settings import ServerSettings
from a2m_server.stdio import serve
handler = Echo()
serve(handler, ServerSettings(max_body=4096, request_timeout=1))
print("closed", handler.closed, file=sys.stderr)
"""


class Talk:
    """A conversation with a server on its standard streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, line: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, number: int = 1, **params: Any) -> Any:
        self.send({"jsonrpc": "2.0", "id": number, "method": f"memory/{method}", "params": params})
        return self.read()

    def end(self, line: bytes = b"") -> tuple[bytes, str]:
        """Close its input; what is left of its output, and its log."""
        out, err = self.process.communicate(line, timeout=60)
        return out, err.decode()


@pytest.fixture
def talk() -> Iterator[Talk]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield Talk(process)
        finally:
            process.kill()


def test_requests_are_answered_a_line_each_in_the_order_they_came(talk: Talk) -> None:
    for number in range(20):
        talk.send({"jsonrpc": "2.0", "id": number, "method": "memory/echo", "params": {"text": "é\n"}})
    answers = [talk.read() for _ in range(20)]
    assert [answer["id"] for answer in answers] == list(range(20))
    assert answers[0]["result"]["params"] == {"text": "é\n"}


def test_the_caller_is_trusted_with_every_role(talk: Talk) -> None:
    result = talk.ask("echo")["result"]
    assert result["trusted"] is True
    assert result["roles"] == ["agent", "curator", "operator", "reader", "router"]


def test_a_notification_is_not_answered(talk: Talk) -> None:
    talk.send({"jsonrpc": "2.0", "method": "memory/echo"})
    talk.send({"jsonrpc": "2.0", "method": "memory/crash"})
    assert talk.ask("echo", 7)["id"] == 7


@pytest.mark.parametrize(
    ("line", "code"),
    [(b"{", -32700), (b"\xff", -32700), (b"[" * 4_000, -32700), (b"[]", -32600), (b'{"id": NaN}', -32700)],
)
def test_what_is_no_message_is_refused_and_the_server_goes_on(talk: Talk, line: bytes, code: int) -> None:
    talk.send(line)
    answer = talk.read()
    assert (answer["error"]["code"], answer["id"]) == (code, None)
    assert talk.ask("echo")["result"]


def test_a_line_over_the_cap_is_refused_once_and_the_server_goes_on(talk: Talk) -> None:
    for length in (4_097, 65_536, 1_000_000):
        talk.send(b" " * length)
        answer = talk.read()
        assert (answer["error"]["code"], answer["id"]) == (-32600, None)
        assert talk.ask("echo")["result"]


def test_a_line_of_just_the_cap_is_taken(talk: Talk) -> None:
    talk.send(b'{"jsonrpc":"2.0","id":1,"method":"memory/echo"}'.ljust(4_096))
    assert talk.read()["result"]


def test_blank_lines_are_ignored(talk: Talk) -> None:
    talk.send(b"\n  \n\t")
    assert talk.ask("echo", 3)["id"] == 3


def test_stray_prints_go_to_standard_error(talk: Talk) -> None:
    assert talk.ask("print", 5)["id"] == 5
    out, log = talk.end()
    assert out == b""
    assert "a stray print" in log
    assert "a stray child" in log


def test_pushed_notifications_come_before_the_answer_of_the_next_request(talk: Talk) -> None:
    messages = [talk.ask("push", 1, count=3)]
    talk.send({"jsonrpc": "2.0", "id": 2, "method": "memory/echo"})
    while messages[-1].get("id") != 2:
        messages.append(talk.read())
    pushed = [message["params"]["number"] for message in messages if "params" in message]
    assert pushed == [0, 1, 2]
    assert len(messages) == 5


def test_a_notification_is_pushed_while_no_request_is_due(talk: Talk) -> None:
    assert talk.ask("later")["id"] == 1
    assert talk.read()["params"] == {"number": -1}


def test_a_crash_of_one_request_is_an_internal_error_and_is_logged(talk: Talk) -> None:
    error = talk.ask("crash")["error"]
    assert error["code"] == -32603
    assert "secret" not in json.dumps(error)
    assert talk.ask("echo")["result"]
    _, log = talk.end()
    assert error["data"]["request"] in log
    assert "a secret of the inside" in log


def test_a_call_that_takes_too_long_is_a_retryable_error(talk: Talk) -> None:
    assert talk.ask("slow")["params"] == {"started": True}
    error = talk.read()["error"]
    assert (error["code"], error["data"]["retryable"]) == (-32603, True)


def test_the_end_of_the_input_ends_the_server_cleanly(talk: Talk) -> None:
    assert talk.ask("echo")["result"]
    out, log = talk.end(b'{"jsonrpc":"2.0","id":9,"method":"memory/echo"}')
    assert json.loads(out)["id"] == 9
    assert talk.process.returncode == 0
    assert "closed 1" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(talk: Talk, number: signal.Signals) -> None:
    assert talk.ask("echo")["result"]
    talk.process.send_signal(number)
    assert talk.process.wait(60) == 0
    assert "closed 1" in talk.end()[1]


def test_a_signal_lets_the_request_in_flight_be_answered(talk: Talk) -> None:
    talk.ask("echo")
    talk.send({"jsonrpc": "2.0", "id": 4, "method": "memory/slow", "params": {"seconds": 0.3}})
    assert talk.read()["params"] == {"started": True}
    talk.process.send_signal(signal.SIGTERM)
    assert talk.read()["id"] == 4
    assert talk.process.wait(60) == 0


def test_a_client_that_stops_reading_ends_the_server_cleanly(talk: Talk) -> None:
    assert talk.process.stdout is not None
    talk.ask("echo")
    talk.process.stdout.close()
    talk.send({"jsonrpc": "2.0", "id": 2, "method": "memory/echo"})
    assert talk.process.wait(60) == 0


def test_the_input_may_be_a_file(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b'{"jsonrpc":"2.0","id":1,"method":"memory/describe"}\n' * 3)
    with lines.open("rb") as source:
        done = subprocess.run(
            [sys.executable, "-m", "a2m_server", "--stdio"],
            stdin=source,
            capture_output=True,
            timeout=60,
            check=True,
            env={**os.environ, "A2M_SERVER_LOG_LEVEL": "debug"},
        )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["result"]["protocol"] for answer in answers] == ["a2m/0.1"] * 3
