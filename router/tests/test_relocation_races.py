"""A tier is brought to another service while clients write, forget, recall and move: nothing is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from settling import NEW, OLD, PAUSE, World, relocated, values

from a2m_protocol.errors import A2MError, TransportError
from a2m_protocol.types import Record
from a2m_router import mirror, relocation
from a2m_router.federation import Federation
from a2m_server.contract import draft, name, within
from a2m_server.values import EVERYONE, Filter, Page
from conftest import CHAIN


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(mirror, "BATCH", 7)
    made = World(tmp_path)
    for config in CHAIN:
        made.serve(OLD[config.name], config.kind)
    return made


@pytest.mark.parametrize("tier", ["working", "episodic", "semantic"])
@pytest.mark.parametrize("seed", range(8))
async def test_clients_notice_nothing_in_any_order(
    world: World, tier: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients write, forget, rewrite, count and move while a tier moves and its services and routers fail."""
    monkeypatch.setattr(relocation, "STEP", 0.005)
    dice = random.Random(f"{tier} {seed}")
    world.serve(NEW, tier)
    sessions = [name("s") for _ in range(5)]
    live: dict[str, str] = {}
    unsure: set[str] = set()
    gone: set[str] = set()
    stopping = asyncio.Event()
    faults = dice.randrange(4)

    def fail(url: str, method: str) -> None:
        nonlocal faults
        if faults and url in (NEW, OLD[tier]) and dice.random() < 0.01:
            faults -= 1
            raise TransportError("cut", maybe_received=False)

    async def client(number: int, federation: Federation) -> None:
        mine = random.Random(f"{tier} {seed} {number}")
        for turn in range(60):
            act = mine.choice(
                ["write", "write", "write", "forget", "close", "touch", "promote", "rewrite", "read"]
            )
            own = [i for i in live if i.startswith(f"{number}-")]
            one = mine.choice(own) if own else None
            try:
                if act == "write":
                    made = draft(
                        f"{number} {turn}", id=f"{number}-{turn}-{seed}", session=mine.choice(sessions)
                    )
                    unsure.add(made.id)
                    await federation.write([made], EVERYONE)
                    live[made.id] = made.content
                    unsure.discard(made.id)
                elif act == "rewrite":
                    key = f"{number}/{mine.randrange(3)}"
                    made = draft(f"{number} {turn}", id=f"{number}-{turn}-{seed}", key=key, tier="semantic")
                    await federation.write([made], EVERYONE)
                    fetched = await federation.fetch(key, EVERYONE, vectors=False)
                    if not fetched.degraded:
                        assert fetched.record is not None
                        assert fetched.record.content == made.content
                elif act == "forget" and one:
                    unsure.add(one)
                    del live[one]
                    await federation.forget(Filter(ids=(one,)))
                    gone.add(one)
                    unsure.discard(one)
                elif act == "close":
                    await federation.close_session(mine.choice(sessions), EVERYONE)
                elif act == "touch" and one:
                    await federation.touch([one], "2026-01-01T00:00:00.000Z")
                elif act == "promote" and one:
                    await federation.promote([one], "semantic", 0.0, EVERYONE)
                elif act == "read" and one:
                    session = within(mine.choice(sessions))
                    before = {i for i in live if i.startswith(f"{number}-")}
                    found = [record.id for record in (await federation.timeline(Page(session))).records]
                    assert len(found) == len(set(found))
                    assert not gone.intersection(found)
                    assert {r.id for r in await federation.read([*before])} == before
            except A2MError:
                pass
            await asyncio.sleep(0)

    async def moving(federation: Federation) -> None:
        while not stopping.is_set():
            try:
                if (await federation.relocate(tier, NEW, pause=PAUSE)).state == "switched":
                    return
            except A2MError:
                await asyncio.sleep(0)

    world.fail = fail
    async with world.router() as first:
        mover = asyncio.create_task(moving(first))
        clients = [asyncio.create_task(client(n, first)) for n in range(3)]
        for _ in range(dice.randrange(10, 400)):
            await asyncio.sleep(0)
        mover.cancel()
        await asyncio.gather(mover, return_exceptions=True)
        if (work := first._relocator and first._relocator._work) and work.task:
            work.task.cancel()
            await asyncio.gather(work.task, return_exceptions=True)
            work.task = None
        again = asyncio.create_task(moving(first)) if dice.random() < 0.5 else None
        await asyncio.gather(*clients)
        stopping.set()
        if again:
            await again
    faults = 0
    async with world.router() as second:
        await asyncio.gather(*(client(n, second) for n in range(3, 5)), relocated(second, tier))
        await second.consolidate()
        stores = [world.services[NEW if c.name == tier else OLD[c.name]] for c in CHAIN]
        held = [i for store in stores for i in await values(store)]
        assert len(held) == len(set(held))
        records: list[Record] = await second.read([*live, *gone])
        assert {r.id: r.content for r in records if r.id in live} == live
        assert not gone.intersection(held)
        for session in sessions:
            found = (await second.timeline(Page(within(session)))).records
            assert [(r.seq, r.id) for r in found] == sorted((r.seq, r.id) for r in found)
