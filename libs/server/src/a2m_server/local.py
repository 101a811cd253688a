"""A store in this process, behind the same client as any other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from a2m_protocol.client import Client
from a2m_protocol.transports import LocalTransport
from a2m_server.dispatch import Dispatcher
from a2m_server.exchange import Handler
from a2m_server.identity import LOCAL, Caller, Peer
from a2m_server.store import MemoryStore


@asynccontextmanager
async def connect(
    store: MemoryStore,
    *,
    caller: Caller = LOCAL,
    timeout: float = 30.0,  # noqa: ASYNC109 of the client's calls
) -> AsyncGenerator[Client]:
    """A client of `store`, which is opened before and closed after."""
    handler = Dispatcher(store)
    await handler.open()
    try:
        async with attach(handler, caller=caller, timeout=timeout) as client:
            yield client
    finally:
        await handler.close()


@asynccontextmanager
async def attach(
    handler: Handler,
    *,
    caller: Caller = LOCAL,
    timeout: float = 30.0,  # noqa: ASYNC109 of the client's calls
) -> AsyncGenerator[Client]:
    """A further client of a handler that is open: a connection of its own."""
    peer = Peer(caller, push=True)
    transport = LocalTransport(lambda message: handler.handle(message, peer))

    def deliver() -> None:
        while peer.outbox:
            message = peer.outbox.popleft()
            if transport.deliver is not None:
                transport.deliver(message)

    peer.woken = deliver
    async with Client(transport, timeout=timeout) as client:
        yield client
