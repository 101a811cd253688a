"""Where records came from, over all tiers: it moves with them, and a purge finds them there."""

from __future__ import annotations

from typing import Any

import pytest

from a2m_protocol.errors import A2MError, unavailable
from a2m_router.federation import Federation
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Buried, Filter, Tombstone

Stores = dict[str, MemoryTier]


class Caller:
    def __init__(self, federation: Federation, events: EventLog) -> None:
        self.peer = Peer(LOCAL)
        self._dispatcher = Dispatcher(federation, events=events)

    async def __call__(self, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        response: Any = await self._dispatcher.handle(message, self.peer)
        assert "result" in response, response
        return response["result"]


@pytest.fixture
def call(federation: Federation, events: EventLog) -> Caller:
    return Caller(federation, events)


async def test_origins_are_kept_by_summaries_and_by_moves(
    federation: Federation, stores: Stores, call: Caller
) -> None:
    turns = [
        {"id": f"t{n}", "content": f"The pump {n} stops.", "session": "s", "provenance": {"source": "mail"}}
        for n in range(3)
    ]
    await call("remember", records=turns)
    (summary,) = (await call("summarize", where={"session": "s"}, into="episodic"))["records"]
    derived = {"derived_from": [summary["id"]]}
    await call("remember", records=[{"id": "fact", "content": "Pumps stop.", "provenance": derived}])
    told = (await federation.read(["fact"]))[0].provenance
    assert told is not None
    assert (told.origins, told.ancestors) == (["mail"], ["t0", "t1", "t2"])
    await call("promote", ids=["fact"], tier="semantic")
    await call("promote", ids=[summary["id"]], tier="semantic")
    await call("session/close", session="s")
    (moved,) = await stores["semantic"].read(["fact"])
    assert moved.provenance == told
    (kept,) = await stores["semantic"].read([summary["id"]])
    assert kept.provenance is not None
    assert kept.provenance.derived_from == ["t0", "t1", "t2"]
    (turn,) = await stores["episodic"].read(["t0"])
    assert turn.provenance is not None
    assert turn.provenance.source == "mail"


async def test_a_purge_finds_in_every_tier_what_came_of_records_that_are_gone(
    stores: Stores, call: Caller
) -> None:
    await call("remember", records=[{"id": "a", "content": "x", "provenance": {"source": "mail"}}])
    for record_id, source, tier in (("b", "a", "episodic"), ("c", "b", "semantic")):
        record = {"id": record_id, "content": "y", "tier": tier, "provenance": {"derived_from": [source]}}
        await call("remember", records=[record])
    await call("forget", ids=["a", "b"])
    done = await call("purge", source="mail")
    assert (done["derived"], done["forgotten"], done["tiers"]) == (1, 1, {"semantic": 1})
    for store in stores.values():
        assert await store.read(["a", "b", "c"]) == []


async def test_a_forget_that_fails_midway_names_what_it_removed(
    federation: Federation, stores: Stores, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2m_router.forgets.PAGE", 2)
    ids = [f"r{n}" for n in range(5)]
    await call("remember", records=[{"id": i, "content": "x", "session": i} for i in ids])
    bury = stores["semantic"].bury
    calls = 0

    async def failing(tombstones: list[Tombstone]) -> dict[str, Buried]:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise unavailable("semantic", "it was switched off")
        return await bury(tombstones)

    monkeypatch.setattr(stores["semantic"], "bury", failing)
    with pytest.raises(A2MError) as failed:
        await federation.forget(Filter(EVERYONE, ids=tuple(ids)))
    assert failed.value.retryable
    assert failed.value.data is not None
    assert failed.value.data["forgotten"] == ids[:4]
    assert failed.value.data["uncertain"] == ids[4:]
