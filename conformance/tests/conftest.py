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
from a2m_server.http import create_app
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings

URL = "http://127.0.0.1:8780/"

Serve = Callable[[Any], Awaitable[Any]]
Mutation = Callable[[Any, Serve], Awaitable[Any]]
HttpServe = Callable[[httpx.Request], Awaitable[httpx.Response]]
HttpMutation = Callable[[httpx.Request, HttpServe], Awaitable[httpx.Response]]

# In process nothing takes long: what hangs is meant to.
QUICK = Options(slow=False, timeout=8)


class Mutated(httpx.AsyncBaseTransport):
    """A transport that hands each exchange to a mutation."""

    def __init__(self, healthy: httpx.AsyncBaseTransport, mutation: HttpMutation) -> None:
        self._healthy = healthy
        self._mutation = mutation

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._mutation(request, self._healthy.handle_async_request)


def of_messages(mutation: Mutation) -> HttpMutation:
    """A mutation of JSON-RPC requests as one of HTTP; whatever else comes by passes untouched."""

    async def mutate(request: httpx.Request, serve: HttpServe) -> httpx.Response:
        message = _request_in(request, await request.aread())
        if message is None:
            return await serve(request)

        async def serve_message(changed: Any) -> Any:
            headers = {name: value for name, value in request.headers.items() if name != "content-length"}
            again = httpx.Request(request.method, request.url, headers=headers, content=json.dumps(changed))
            return json.loads(await (await serve(again)).aread())

        return httpx.Response(200, json=await mutation(message, serve_message))

    return mutate


def _request_in(request: httpx.Request, body: bytes) -> Any:
    if {"origin", "a2m-protocol-version"} & set(request.headers):
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
