"""A client of A2M: asynchronous, and a synchronous face of the same."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from a2m_protocol import jsonrpc
from a2m_protocol.answers import error_of
from a2m_protocol.child import StdioTransport
from a2m_protocol.errors import A2MError, Json, JsonObject, TransportError
from a2m_protocol.ids import new_id
from a2m_protocol.methods import UNSET, Methods, Names, Owner
from a2m_protocol.transports import Headers, HttpTransport, LocalTransport, Transport

__all__ = ["UNSET", "Client", "HttpTransport", "LocalTransport", "StdioTransport", "SyncClient"]

_REPEATABLE = frozenset(
    f"memory/{name}"
    for name in (
        *("describe", "recall", "timeline", "fetch", "session/list", "events"),
        *("tombstones", "list", "read", "remnants", "relocate"),
        # Closed again, it moves what is left: a retry may say that fewer left working.
        "session/close",
    )
)
_SELECTORS = frozenset({"query", "tier", "where", "key_prefix"})
_PUSHED = 4_096

RETRIES = 20
"""Pauses of about 23 s in all: a server that has no second one beside it is back by then."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Client(Methods[Coroutine[Any, Any, JsonObject]]):
    """Calls one server over a transport; use as an async context manager.

    `timeout` bounds each call in seconds, its retries included. `retries` is how often a call that failed
    on the way, or that the server calls retryable, is repeated with growing, jittered pauses: calls
    that change nothing or are idempotent (a `remember`, a `session/close`, a `forget` by ids alone),
    others only where the server certainly did not receive them. So that a `remember` is, records without an
    id are given one here. With no `retries`, the default for all but HTTP, everything is sent once, as it is.
    """

    def __init__(self, transport: Transport, *, timeout: float = 30.0, retries: int = 0) -> None:
        self.transport = transport
        self._timeout = timeout
        self._retries = retries
        self._numbers = itertools.count(1)
        self._pushed: asyncio.Queue[JsonObject] = asyncio.Queue(_PUSHED)
        self._dropped = False

    @classmethod
    def http(
        cls,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        timeout: float = 30.0,
        retries: int = RETRIES,
        headers: Headers = tuple,
    ) -> Self:
        """A client of the server at `url`; `headers` gives more of them at each call."""
        transport = HttpTransport(url, token=token, token_file=token_file, headers=headers)
        return cls(transport, timeout=timeout, retries=retries)

    @classmethod
    def stdio(
        cls, command: str | Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> Self:
        """A client of a server that it starts and ends; without retries, since one that ended is gone."""
        return cls(StdioTransport(command, env=env), timeout=timeout)

    async def __aenter__(self) -> Self:
        self.transport.deliver = self._deliver
        await self.transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transport.close()

    async def call(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 for callers in a synchronous world too
    ) -> JsonObject:
        params = {} if params is None else params
        timeout = self._timeout if timeout is None else timeout
        if self._retries == 0:
            return await self._once(method, params, timeout)
        if method == "memory/remember":
            params = _with_ids(params)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        for pause in _pauses(self._retries):
            try:
                return await self._once(method, params, deadline - loop.time())
            except A2MError as error:
                if not _may_repeat(method, params, error) or loop.time() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
        return await self._once(method, params, deadline - loop.time())

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification, to which there is no answer."""
        await self.transport.notify(jsonrpc.notification(method, params or {}), self._timeout)

    async def notifications(self) -> AsyncIterator[JsonObject]:
        """The events that the server pushes after `subscribe`, for ever.

        Of those that nobody takes the newest are kept; `{"kind": "reset"}` stands in the place of others.
        """
        while True:
            message = await self._pushed.get()
            if self._dropped:
                self._dropped = False
                yield {"kind": "reset"}
            params = message.get("params")
            if message.get("method") == "memory/event" and isinstance(params, dict):
                yield params

    async def watch(
        self,
        *,
        cursor: str | None = None,
        kinds: Names = None,
        owner: Owner = UNSET,
        interval: float = 1.0,
    ) -> AsyncIterator[JsonObject]:
        """Events from `cursor` on, else from now, oldest first, for ever.

        Polls, with pauses of `interval` seconds when there is nothing more. Where the server had to skip
        some, `{"kind": "reset"}` stands in their place.
        """
        while True:
            page = await self.events(cursor=cursor, kinds=kinds, owner=owner)
            if page.get("reset") is True:
                yield {"kind": "reset"}
            for event in _objects(page.get("events")):
                yield event
            following = page.get("cursor")
            if not isinstance(following, str):
                raise TransportError("memory/events answered without a cursor", maybe_received=True)
            cursor = following
            if page.get("more") is not True:
                await asyncio.sleep(interval)

    def _deliver(self, message: JsonObject) -> None:
        if self._pushed.full():
            self._pushed.get_nowait()
            self._dropped = True
        self._pushed.put_nowait(message)

    async def _once(self, method: str, params: JsonObject, seconds: float) -> JsonObject:
        message = jsonrpc.request(next(self._numbers), method, params)
        response = await self.transport.exchange(message, seconds)
        error = response.get("error")
        if isinstance(error, dict):
            raise error_of(error)
        return cast("JsonObject", response["result"])


class SyncClient(Methods[JsonObject]):
    """The same client for code that does not await; use as a context manager."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    @classmethod
    def http(
        cls,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        timeout: float = 30.0,
        retries: int = RETRIES,
    ) -> Self:
        """A client of the server at `url`."""
        return cls(Client.http(url, token=token, token_file=token_file, timeout=timeout, retries=retries))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._client))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = None
        self._stack.close()

    def call(
        self, method: str, params: JsonObject | None = None, *, timeout: float | None = None
    ) -> JsonObject:
        if self._portal is None:
            raise TransportError("the client is not open", maybe_received=False, retryable=False)
        return self._portal.call(lambda: self._client.call(method, params, timeout=timeout))


def _pauses(retries: int) -> list[float]:
    """Pauses that double, each shortened at random by up to half, so that many clients spread out."""
    full = [min(_FIRST_PAUSE * 2**number, _LONGEST_PAUSE) for number in range(retries)]
    return [pause * random.uniform(0.5, 1.0) for pause in full]  # noqa: S311 no secret


def _may_repeat(method: str, params: JsonObject, error: A2MError) -> bool:
    if not error.retryable:
        return False
    if isinstance(error, TransportError) and not error.maybe_received:
        return True
    match method:
        case "memory/remember":
            return _all_have_ids(params)
        case "memory/forget":
            # By any other selector, what was written since the first attempt would be forgotten too.
            return bool(params.get("ids")) and all(params.get(name) is None for name in _SELECTORS)
        case _:
            return method in _REPEATABLE


def _all_have_ids(params: JsonObject) -> bool:
    records = params.get("records")
    return isinstance(records, list) and all(
        isinstance(record, dict) and record.get("id") for record in records
    )


def _with_ids(params: JsonObject) -> JsonObject:
    records = params.get("records")
    if not isinstance(records, list):
        return params
    named: list[Json] = [
        {**record, "id": new_id()} if isinstance(record, dict) and record.get("id") is None else record
        for record in records
    ]
    return {**params, "records": named}


def _objects(value: Json) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
