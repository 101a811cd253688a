"""Healthy servers in process, and servers that are broken in one place."""

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
from a2m_server.http import create_app, serve_handler
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings

URL = "http://127.0.0.1:8780/"

Mutation = Callable[["Call"], Awaitable[Any]]
HttpServe = Callable[[httpx.Request], Awaitable[httpx.Response]]
HttpMutation = Callable[[httpx.Request, HttpServe], Awaitable[httpx.Response]]

_LONGEST_OF_A_MUTANT = 16 * 1024 * 1024

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


def of_messages(mutation: Mutation) -> HttpMutation:
    """A mutation of JSON-RPC requests as one of HTTP; whatever else comes by passes untouched."""

    async def mutate(request: httpx.Request, serve: HttpServe) -> httpx.Response:
        message = _request_in(request, request.content)
        if message is None:
            return await serve(request)

        async def serve_message(changed: Any) -> Any:
            headers = {name: value for name, value in request.headers.items() if name != "content-length"}
            again = httpx.Request(request.method, request.url, headers=headers, content=json.dumps(changed))
            return json.loads(await (await serve(again)).aread())

        return httpx.Response(200, json=await mutation(Call(message, serve_message)))

    return mutate


def _request_in(request: httpx.Request, body: bytes) -> Any:
    if len(body) > _LONGEST_OF_A_MUTANT or {"origin", "a2m-protocol-version"} & set(request.headers):
        return None
    try:
        message = json.loads(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or "id" not in message or message.get("jsonrpc") != "2.0":
        return None
    if not isinstance(message.get("method"), str) or not isinstance(message.setdefault("params", {}), dict):
        return None
    return message


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
        change = of_messages(mutation) if mutation else http
        async with serving() as transport:
            return await run_on(Mutated(transport, change) if change else transport, options)

    return attempt


@asynccontextmanager
async def federating() -> AsyncGenerator[httpx.AsyncBaseTransport]:
    config, events = load(None), EventLog()
    members = [Member(tier, MemoryTier(tier.name, tier.kind)) for tier in config.tiers]
    federation = Federation(config.name, members, events)
    app = serve_handler(Dispatcher(federation, events=events), ServerSettings())
    async with app.router.lifespan_context(app):
        yield httpx.ASGITransport(app)


@pytest.fixture
def try_federation(run_on: Callable[..., Awaitable[Run]]) -> Callable[..., Awaitable[Run]]:
    """Run what looks at tiers on the router over four tiers in memory, with a mutation or as it is."""
    subjects = ("TIERS", "SESSIONS", "EVENTS", "KEYS", "SUMMARIZE", "DESCRIBE", "CAPABILITY")

    async def attempt(mutation: Mutation | None = None) -> Run:
        async with federating() as transport:
            broken = Mutated(transport, of_messages(mutation)) if mutation else transport
            return await run_on(broken, Options(only=subjects, slow=False, timeout=60))

    return attempt


@pytest.fixture
def try_read_only(
    run_on: Callable[..., Awaitable[Run]], ask: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Run]]:
    """Run the suite on a server that holds some records and refuses writes, with a mutation or as it is."""

    async def refuse_writes(call: Call) -> Any:
        return call.refuse(-32004) if call.of("remember", "forget", "summarize") else await call.serve()

    async def attempt(mutation: Mutation | None = None) -> Run:
        async with serving() as transport:
            for word in ("harbour", "lighthouse", "ferry"):
                await ask(transport, "remember", records=[{"content": f"the {word} is old", "role": "user"}])
            frozen = Mutated(transport, of_messages(refuse_writes))
            return await run_on(Mutated(frozen, of_messages(mutation)) if mutation else frozen)

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
