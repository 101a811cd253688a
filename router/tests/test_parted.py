"""Groups that part where no late member is written: they are brought together all the same."""

from __future__ import annotations

import asyncio

import pytest

from a2m_router.federation import Federation
from a2m_server.contract import draft, name
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE

Stores = dict[str, MemoryTier]


async def _holds(federation: Federation, tier: str, count: int) -> None:
    async with asyncio.timeout(5):
        while (await federation.counts(EVERYONE))[tier] != count:  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.001)


async def test_a_fact_that_is_rewritten_into_a_group_joins_it(federation: Federation, stores: Stores) -> None:
    group, key = name("g"), name("k")
    await federation.write([draft("call", group=group, tier="semantic")], EVERYONE)
    await federation.write([draft("old", key=key, tier="episodic")], EVERYONE)
    [wrote] = await federation.write([draft("new", key=key, group=group)], EVERYONE)
    assert wrote.outcome == "replaced"
    await _holds(federation, "semantic", 2)


async def test_a_member_that_changed_while_it_joined_its_group_joins_it_later(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = name("g")
    late = draft("result", group=group, tier="episodic")
    transfer = stores["semantic"].transfer
    changed = asyncio.Event()

    async def interrupted(drafts: list[object]) -> object:
        written = await transfer(drafts)  # pyright: ignore[reportArgumentType]
        if not changed.is_set():
            await stores["episodic"].touch([late.id], "2026-01-02T03:04:05.678Z")
            changed.set()
        return written

    await federation.write([draft("call", group=group, tier="semantic")], EVERYONE)
    monkeypatch.setattr(stores["semantic"], "transfer", interrupted)
    await federation.write([late], EVERYONE)
    async with asyncio.timeout(5):
        await changed.wait()
    await federation.consolidate()
    await _holds(federation, "semantic", 2)


async def test_a_late_member_in_another_session_joins_its_group_when_that_is_closed(
    federation: Federation, stores: Stores
) -> None:
    group, session = name("g"), name()
    await federation.write([draft("call", group=group, session=name(), tier="semantic")], EVERYONE)
    await federation.write([draft("result", group=group, session=session)], EVERYONE)
    await federation.close_session(session, EVERYONE)
    await _holds(federation, "semantic", 2)


async def test_a_late_member_joins_its_group_when_the_router_that_wrote_it_died(
    federation: Federation, stores: Stores
) -> None:
    group = name("g")
    await stores["semantic"].write([draft("call", group=group)], EVERYONE)
    await stores["episodic"].write([draft("result", group=group)], EVERYONE)
    await federation.consolidate()
    await _holds(federation, "semantic", 2)
