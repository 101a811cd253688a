"""Federations over tiers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from prometheus_client import CollectorRegistry
from widths import Make, Widths

from a2m_protocol.client import Client, LocalTransport
from a2m_router import moves
from a2m_router.config import TierConfig
from a2m_router.coordination import Readers
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.store import TierStore

CAPACITY = 4
CHAIN = (
    TierConfig(
        name="working",
        kind="working",
        url="http://127.0.0.1:1",
        capacity=CAPACITY,
        per_session=True,
        spill_to="episodic",
    ),
    TierConfig(
        name="episodic", kind="episodic", url="http://127.0.0.1:1", promote_to="semantic", promote_after=3
    ),
    TierConfig(name="semantic", kind="semantic", url="http://127.0.0.1:1"),
    TierConfig(name="procedural", kind="procedural", url="http://127.0.0.1:1"),
)


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for is one move here, so that what a move does by itself can be looked at."""
    monkeypatch.setattr(moves, "ATTEMPTS", 1)


@pytest.fixture
def stores() -> dict[str, MemoryTier]:
    return {config.name: MemoryTier(config.name, config.kind) for config in CHAIN}


@pytest.fixture
def events() -> EventLog:
    return EventLog()


def _over_the_wire(store: MemoryTier) -> TierStore:
    peer = Peer(LOCAL)
    dispatcher = Dispatcher(store)
    return RemoteTier(Client(LocalTransport(lambda message: dispatcher.handle(message, peer))), "tier")


@pytest.fixture(params=["direct", "wire"])
async def federation(
    request: pytest.FixtureRequest, stores: dict[str, MemoryTier], events: EventLog
) -> AsyncGenerator[Federation]:
    """The default chain in memory, with four records a session in working; sweeps only when asked."""
    place = _over_the_wire if request.param == "wire" else lambda store: store
    made = Federation(
        "a2m",
        [Member(config, place(stores[config.name])) for config in CHAIN],
        events,
        readers=Readers(2.0),
        interval=3_600,
    )
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def make(stores: dict[str, MemoryTier], registry: CollectorRegistry) -> AsyncIterator[Make]:
    """Opens a federation over the same stores with an embedder, in place of the one before."""
    opened: list[Federation] = []

    async def start(embedder: Widths | None) -> Federation:
        while opened:
            await opened.pop().close()
        first = registry.get_sample_value("a2m_spills_waiting") is None
        counts = Counts(registry if first else CollectorRegistry())
        members = [Member(config, stores[config.name]) for config in CHAIN]
        federation = Federation("a2m", members, EventLog(), interval=3_600, embedder=embedder, counts=counts)
        await federation.open()
        opened.append(federation)
        return federation

    yield lambda embedder: asyncio.ensure_future(start(embedder))
    while opened:
        await opened.pop().close()
