"""Log lines: one each, of their own making, and without what was said."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import pytest

from a2m_server import requests
from a2m_server.dispatch import Dispatcher
from a2m_server.exchange import Exchange
from a2m_server.identity import LOCAL, Peer
from a2m_server.logs import JsonLines, TextLines
from a2m_server.memory import MemoryTier
from a2m_server.metrics import Metrics
from a2m_server.requests import Request
from a2m_server.values import Found, Page

TEXT, JSON = TextLines("working"), JsonLines("working")
HOSTILE = 'a"b\n2026-01-01 INFO x: forged=1\r\x1b[31m\u2028 code=0'


def record(message: str, *values: object, name: str = "a2m", **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "file", 1, message, values, None)
    if fields:
        made.fields = fields
    return made


def raised(record: logging.LogRecord, error: BaseException, cause: BaseException | None = None) -> Any:
    try:
        raise error from cause
    except type(error):
        record.exc_info = sys.exc_info()
    return record


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_what_a_caller_wrote_stays_within_its_value_and_on_its_line(form: logging.Formatter) -> None:
    line = form.format(record("refused: %s", HOSTILE, principal=HOSTILE, tiers=[HOSTILE, "semantic"]))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert line.startswith("{") or line.count(" principal=") == 1


def test_a_value_that_looks_like_two_is_quoted() -> None:
    line = TEXT.format(record("answered", principal="ann code=0", method="memory/recall", code=-32602))
    assert line.endswith('answered principal="ann code=0" method=memory/recall code=-32602')


def test_an_object_has_its_fields_beside_the_message() -> None:
    told = json.loads(JSON.format(record("answered", method="memory/recall", code=None, tiers=["a", "b"])))
    assert told["message"] == "answered"
    assert told["service"] == "working"
    assert (told["method"], told["code"], told["tiers"]) == ("memory/recall", None, ["a", "b"])
    assert told["time"].endswith("Z")


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_whatever_is_logged_for_a_request_has_its_id(form: logging.Formatter) -> None:
    with requests.under_way(Request("abc-1")):
        assert "abc-1" in form.format(record("a driver complains"))
    assert "request" not in form.format(record("a driver complains"))


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_of_an_exception_there_are_places_and_names_and_no_text(form: logging.Formatter) -> None:
    line = form.format(raised(record("failed"), ValueError("a secret"), KeyError("another secret")))
    assert "secret" not in line.replace("test_logs", "")
    assert "builtins.ValueError" in line
    assert "builtins.KeyError" in line
    assert "test_logs.py" in line


def test_a_system_error_is_told_in_its_own_words() -> None:
    assert "No space left" in JSON.format(raised(record("failed"), OSError(28, "No space left on device")))


def test_what_asyncio_shows_of_an_exception_is_cut() -> None:
    async def crash() -> None:
        raise ValueError("a secret")

    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JSON.format(record))

    kept, logger = Kept(), logging.getLogger("asyncio")
    logger.addHandler(kept)
    try:

        async def leave() -> None:
            task = asyncio.create_task(crash())
            await asyncio.wait([task])
            del task

        asyncio.run(leave())
    finally:
        logger.removeHandler(kept)
    assert len(lines) == 1
    assert "never retrieved" in lines[0]
    assert "secret" not in lines[0]


class Hanging(MemoryTier):
    """Never answers a timeline."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def timeline(self, page: Page) -> Found:
        self.asked.set()
        return await asyncio.Future()


async def test_a_request_that_nobody_waits_for_any_more_has_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "a2m_server.exchange")
    store = Hanging()
    exchange = Exchange(Dispatcher(store), 10.0, Metrics())
    message = b'{"jsonrpc": "2.0", "id": 1, "method": "memory/timeline", "params": {}}'
    answer = asyncio.create_task(exchange.answer(message, Peer(LOCAL)))
    await store.asked.wait()
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    [line] = [record.__dict__["fields"] for record in caplog.records if record.name == "a2m_server.exchange"]
    assert (line["method"], line["code"]) == ("memory/timeline", "cancelled")
