"""Services by URL and routers over them, for tests of a tier that is brought to another service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import JsonObject
from a2m_router.config import FederationConfig
from a2m_router.coordination import Readers
from a2m_router.federation import Federation
from a2m_router.places import Places
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.values import Filter, Relocated
from conftest import CHAIN

NEW = "http://new"
OLD = {config.name: f"http://{config.name}" for config in CHAIN}
PAUSE = 5.0


@dataclass
class World:
    """Services by URL, and routers that come and go over them; `fail` may raise before a call is answered."""

    folder: Path
    services: dict[str, MemoryTier] = field(default_factory=dict[str, MemoryTier])
    fail: Callable[[str, str], None] = lambda url, method: None
    slow: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict[tuple[str, str], asyncio.Event])
    others: int = 0

    def serve(self, url: str, kind: str) -> MemoryTier:
        return self.services.setdefault(url, MemoryTier(kind, kind))

    def mount(self, tier: str, url: str) -> RemoteTier:
        dispatcher, peer = Dispatcher(self.services[url]), Peer(LOCAL)

        async def answer(message: object) -> JsonObject | None:
            # As on a wire, others have their turn meanwhile.
            await asyncio.sleep(0)
            self.fail(url, str(message["method"]))  # type: ignore[index]
            if (url, message["method"]) in self.slow:  # type: ignore[index]
                await self.slow[url, str(message["method"])].wait()  # type: ignore[index]
            answered = await dispatcher.handle(message, peer)
            await asyncio.sleep(0)
            return answered

        return RemoteTier(Client(LocalTransport(answer), retries=0), tier)

    @asynccontextmanager
    async def router(self) -> AsyncIterator[Federation]:
        places = Places(self.folder / "places.json")
        tiers = tuple(config.model_copy(update={"url": OLD[config.name]}) for config in CHAIN)
        config = places.over(FederationConfig(tiers=tiers))
        federation = Federation(
            "a2m",
            [Member(tier, self.mount(tier.name, tier.url)) for tier in config.tiers],
            EventLog(),
            readers=_Readers(self),
            interval=3_600,
            mount=self.mount,
            places=places,
        )
        await federation.open()
        try:
            yield federation
        finally:
            await federation.close()


class _Readers(Readers):
    def __init__(self, world: World) -> None:
        super().__init__(2.0)
        self._world = world

    async def others(self) -> int:
        return self._world.others


async def relocated(federation: Federation, tier: str, url: str = NEW) -> Relocated:
    while (told := await federation.relocate(tier, url, pause=PAUSE)).state != "switched":
        pass
    return told


async def values(store: MemoryTier) -> dict[str, object]:
    found = await store.read([entry.id for entry in await store.entries(Filter(), 10_000, None)])
    return {record.id: record.model_dump(exclude={"etag"}) for record in found}
