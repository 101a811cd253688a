"""Log lines for people and for programs: one line each, and nothing in them that a record holds."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, cast

from a2m_protocol.errors import Json
from a2m_server import requests, tracing

Format = Literal["text", "json"]

_CHATTY = ("uvicorn", "httpx", "httpcore", "urllib3", "opentelemetry")


def configure(service: str, level: str, form: Format) -> None:
    """Log to standard error, from now on and in the whole process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(service) if form == "json" else TextLines(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


class Lines(logging.Formatter):
    """What the two forms have in common.

    Beside its message, a line has the `fields` that it was logged with, and the request and the trace that it
    belongs to. Of an exception the places are told and the names, never its text, which may quote a record;
    of a system error, its own words too.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def fields(self, record: logging.LogRecord) -> dict[str, Json]:
        told: dict[str, Json] = {}
        request = requests.current()
        if request is not None:
            told["request"] = request.id
        trace = tracing.trace_id()
        if trace is not None:
            told["trace"] = trace
        return told | dict(cast("Mapping[str, Json]", getattr(record, "fields", {})))


class TextLines(Lines):
    """`2026-07-28T10:15:30.123Z INFO working a2m_server.exchange: message name=value`, for people."""

    def format(self, record: logging.LogRecord) -> str:
        told = "".join(f" {name}={_word(value)}" for name, value in self.fields(record).items())
        head = f"{_at(record)} {record.levelname} {self._service} {record.name}:"
        line = f"{head} {_escaped(message(record))}{told}"
        # Places of code are of our own making: they alone go on over several lines.
        return line if not _raised(record) else f"{line}\n{without_texts(_raised(record))}"


class JsonLines(Lines):
    """An object a line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Json] = {
            "time": _at(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": message(record),
            **self.fields(record),
        }
        error = _raised(record)
        if error is not None:
            told["exception"] = without_texts(error)
        return json.dumps(told, separators=(",", ":"))


def message(record: logging.LogRecord) -> str:
    """What a line says; asyncio's go on to show what was raised, as it is, and are cut before that."""
    text = record.getMessage()
    return text.partition("\n")[0] if record.name == "asyncio" else text


def without_texts(error: BaseException | None) -> str:
    """An exception and what it came of, the cause last: where it was, and of what kind."""
    told: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        told += [*_places(error.__traceback__), f"{type(error).__module__}.{type(error).__qualname__}"]
        if isinstance(error, OSError) and error.strerror:
            told[-1] += f": {_escaped(error.strerror)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(told)


def _places(found: TracebackType | None) -> list[str]:
    return [f"  {f.filename}:{f.lineno} in {f.name}" for f in traceback.extract_tb(found)]


def _raised(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _at(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"


def _word(value: Json) -> str:
    """A value that cannot be taken for two, nor for another's name."""
    if isinstance(value, list):
        return ",".join(map(_word, value))
    if isinstance(value, str):
        plain = value.isascii() and value.isprintable() and value and not set(' "=,\\') & set(value)
        return value if plain else json.dumps(value)
    return json.dumps(value)


def _escaped(text: str) -> str:
    """Text on one line, without what a terminal takes for a command."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
