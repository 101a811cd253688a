"""The request that is being answered: its id, the trace that it is part of, and which tiers it asked."""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from opentelemetry.context import Context

from a2m_server import tracing

HEADER = "x-request-id"
_WELL_FORMED = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)


@dataclass(slots=True)
class Request:
    """`parent` is the caller's trace. `tiers` are those that were asked, in their order. `logged`: its line
    has been written."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    parent: Context | None = None
    tiers: dict[str, None] = field(default_factory=dict[str, None])
    logged: bool = False


_CURRENT: ContextVar[Request | None] = ContextVar("a2m_request", default=None)


def current() -> Request | None:
    """The request that this code runs for, None in the background."""
    return _CURRENT.get()


@contextmanager
def under_way(request: Request) -> Generator[Request]:
    """Make a request the current one."""
    token = _CURRENT.set(request)
    try:
        yield request
    finally:
        _CURRENT.reset(token)


def told(headers: Mapping[str, str]) -> Request:
    """A request by its headers; an id that is not well-formed is not taken, and another is made."""
    request = Request()
    given = headers.get(HEADER)
    if given is not None and _WELL_FORMED.fullmatch(given):
        request.id = given
    if "traceparent" in headers:
        request.parent = tracing.told(headers)
    return request


def carried() -> list[tuple[bytes, bytes]]:
    """The headers that go with what a request asks of other servers."""
    request = _CURRENT.get()
    headers = tracing.carried()
    if request is not None:
        headers[HEADER] = request.id
    return [(name.encode(), value.encode()) for name, value in headers.items()]
