"""Healthy servers in process, and servers that are broken in one place."""

import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import Status
from a2m_conformance.runner import Options, Run, run
from a2m_router.config import load
from a2m_router.federation import Federation
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.exchange import Exchange, Handler
from a2m_server.http import create_app
from a2m_server.identity import LOOPBACK, Peer
from a2m_server.memory import MemoryTier
from a2m_server.metrics import Metrics
from a2m_server.settings import ServerSettings

URL = "http://127.0.0.1:8780/"

Mutation = Callable[["Call"], Awaitable[Any]]
HttpServe = Callable[[httpx.Request], Awaitable[httpx.Response]]
HttpMutation = Callable[[httpx.Request, HttpServe], Awaitable[httpx.Response]]

QUICK = Options(slow=False, timeout=60)


class Mutated(httpx.AsyncBaseTransport):
    """A transport that hands each exchange to a mutation."""

    def __init__(self, healthy: httpx.AsyncBaseTransport, mutation: HttpMutation) -> None:
        self._healthy = healthy
        self._mutation = mutation

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return await self._mutation(request, self._healthy.handle_async_request)


class Call:
    """One JSON-RPC request on its way to the healthy server, as a mutation sees it."""

    def __init__(self, message: Any, serve: Callable[[Any], Awaitable[Any]]) -> None:
        self.message = message
        self.params: dict[str, Any] = message["params"]
        self._serve = serve

    def of(self, *methods: str) -> bool:
        """Whether it calls one of these methods."""
        return self.message["method"] in [f"memory/{method}" for method in methods]

    @property
    def written(self) -> list[dict[str, Any]]:
        """The records that a remember carries, as far as they are records."""
        records = self.params.get("records") if self.of("remember") else None
        return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []

    @property
    def where(self) -> dict[str, Any]:
        """The filter of a read or a forget, empty without one; a change of it changes the request."""
        where = self.params.get("where") if self.of("recall", "timeline", "forget") else None
        return where if isinstance(where, dict) else {}

    async def pass_on(self, message: Any) -> Any:
        """What the healthy server answers to another message."""
        return await self._serve(message)

    async def serve(self, **params: Any) -> Any:
        """What the healthy server answers, with some parameters changed."""
        return await self._serve({**self.message, "params": {**self.params, **params}})

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of another call."""
        answer = await self._serve(
            {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        )
        return answer.get("result", {})

    def answer(self, **result: Any) -> Any:
        """A response made up."""
        return {"jsonrpc": "2.0", "id": self.message["id"], "result": result}

    def refuse(self, code: int) -> Any:
        """A refusal made up."""
        error = {"code": code, "message": "refused by a broken server"}
        return {"jsonrpc": "2.0", "id": self.message["id"], "error": error}


async def as_it_is(call: Call) -> Any:
    """The mutation that changes nothing."""
    return await call.serve()


class Direct:
    """A wire without a network: raw messages to a handler, and a mutation of those that are requests."""

    transport = "http"

    def __init__(self, handler: Handler, mutation: Mutation) -> None:
        self._exchange = Exchange(handler, 60, Metrics())
        self._peer = Peer(LOOPBACK)
        self._mutation = mutation
        self._numbers = itertools.count(1)

    async def request(self, method: str, params: Any) -> Any:
        number = next(self._numbers)
        return await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    async def exchange(self, text: str, request_id: Any = None) -> Any:
        try:
            return await self._send(json.loads(text))
        except ValueError:
            return json.loads(await self._exchange.answer(text.encode(), self._peer) or b"null")

    async def notify(self, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        await self._exchange.answer(json.dumps(message).encode(), self._peer)

    async def close(self) -> None:
        pass

    async def _send(self, message: Any) -> Any:
        if not _is_request(message):
            return await self._serve(message)
        # A copy, for what a mutation changes must not change what the check compares with.
        call = Call(json.loads(json.dumps({"params": {}, **message})), self._serve)
        answer = await self._mutation(call)
        return json.loads(json.dumps(answer))

    async def _serve(self, message: Any) -> Any:
        return json.loads(await self._exchange.answer(json.dumps(message).encode(), self._peer) or b"null")


def _is_request(message: Any) -> bool:
    if not isinstance(message, dict) or "id" not in message or message.get("jsonrpc") != "2.0":
        return False
    return isinstance(message.get("method"), str) and isinstance(message.get("params", {}), dict)


@asynccontextmanager
async def serving() -> AsyncGenerator[httpx.AsyncBaseTransport]:
    app = create_app(MemoryTier(), ServerSettings())
    async with app.router.lifespan_context(app):
        yield httpx.ASGITransport(app)


@pytest.fixture
async def healthy() -> AsyncGenerator[httpx.AsyncBaseTransport]:
    async with serving() as transport:
        yield transport


@pytest.fixture
def run_on() -> Callable[..., Awaitable[Run]]:
    """Run the suite over a transport."""

    async def attempt(transport: httpx.AsyncBaseTransport, options: Options = QUICK) -> Run:
        wire = HttpWire(URL, through=transport)
        try:
            return await run(wire, options)
        finally:
            await wire.close()

    return attempt


@pytest.fixture
def try_server(run_on: Callable[..., Awaitable[Run]]) -> Callable[..., Awaitable[Run]]:
    """Run the suite on a fresh in-memory server, with a mutation of its messages or its HTTP, or as it is."""

    async def attempt(
        mutation: Mutation | None = None, http: HttpMutation | None = None, options: Options = QUICK
    ) -> Run:
        if mutation is not None:
            return await run(Direct(Dispatcher(MemoryTier()), mutation), options)
        async with serving() as transport:
            return await run_on(Mutated(transport, http) if http else transport, options)

    return attempt


@pytest.fixture
def try_federation() -> Callable[..., Awaitable[Run]]:
    """Run what looks at tiers on the router over four tiers in memory, with a mutation or as it is."""
    subjects = ("TIERS", "SESSIONS", "EVENTS", "KEYS", "SUMMARIZE", "DESCRIBE", "CAPABILITY")

    async def attempt(mutation: Mutation = as_it_is) -> Run:
        config, events = load(None), EventLog()
        members = [Member(tier, MemoryTier(tier.name, tier.kind)) for tier in config.tiers]
        handler = Dispatcher(Federation(config.name, members, events), events=events)
        await handler.open()
        try:
            return await run(Direct(handler, mutation), Options(only=subjects, slow=False, timeout=60))
        finally:
            await handler.close()

    return attempt


@pytest.fixture
def try_read_only() -> Callable[..., Awaitable[Run]]:
    """Run the suite on a server that holds some records and refuses writes, with a mutation or as it is."""

    async def refuse_writes(call: Call) -> Any:
        return call.refuse(-32004) if call.of("remember", "forget", "summarize") else await call.serve()

    async def attempt(mutation: Mutation = as_it_is) -> Run:
        handler = Dispatcher(MemoryTier())
        healthy = Direct(handler, as_it_is)
        for word in ("harbour", "lighthouse", "ferry"):
            record = {"content": f"the {word} is old", "role": "user"}
            await healthy.request("memory/remember", {"records": [record]})

        async def frozen(call: Call) -> Any:
            return await mutation(
                Call(call.message, lambda message: refuse_writes(Call(message, call.pass_on)))
            )

        return await run(Direct(handler, frozen), QUICK)

    return attempt


@pytest.fixture
def failed() -> Callable[[Run], dict[str, str]]:
    """What failed in a run, and why."""

    def of(finished: Run) -> dict[str, str]:
        outcomes = (outcome for outcome in finished.outcomes if outcome.status == Status.failed)
        return {outcome.requirement.id: outcome.detail for outcome in outcomes}

    return of


@pytest.fixture
def ask() -> Callable[..., Awaitable[Any]]:
    """One call of a method over a transport."""

    async def call(transport: httpx.AsyncBaseTransport, method: str, **params: Any) -> Any:
        wire = HttpWire(URL, through=transport)
        return (await wire.request(f"memory/{method}", params))["result"]

    return call
