"""What is left after a forget, and what histories keep: asked of every tier through the router."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_router.config import TierConfig
from a2m_router.federation import Federation
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.contract import draft
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import ANONYMOUS, LOCAL, Caller, Peer
from a2m_server.memory import MemoryTier
from a2m_server.store import TierStore
from a2m_server.values import (
    EVERYONE,
    Buried,
    Deleted,
    Erased,
    Erasure,
    Filter,
    Forgotten,
    Inspected,
    Named,
    Reason,
    StoreInfo,
    Tombstone,
)

KINDS = ("working", "episodic", "semantic", "procedural")


class Keeping(MemoryTier):
    """A tier in memory that remembers what it once held, until that is erased."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "procedural")
        self.past: set[str] = set()
        self.fails: A2MError | None = None

    async def info(self) -> StoreInfo:
        info = await super().info()
        return replace(info, extensions=info.extensions | {"erase"})

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        self._keep(grave.id for grave in tombstones)
        return await super().bury(tombstones)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        self._keep(name.id for name in named)
        return await super().delete_if(named, reason, target)

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        if self.fails is not None:
            raise self.fails
        named: Erasure = "held" if dry else "erased"
        outcomes: dict[str, Erasure] = {i: named if i in self.past else "absent" for i in ids}
        if dry:
            return Erased(outcomes)
        erased = self.past.intersection(ids)
        self.past -= erased
        return Erased(outcomes, {self._name: len(erased)}, {self._name: ("origin",)} if erased else {})

    def _keep(self, ids: Iterable[str]) -> None:
        self.past.update(i for i in ids if i in self._ledger.records)


class Dead(MemoryTier):
    """A tier that learned to be asked, and then died."""

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        raise unavailable("the tier's database", "it is away")


class Foreign(MemoryTier):
    """A server that is not ours."""

    async def info(self) -> StoreInfo:
        return replace(await super().info(), extensions=frozenset())


class Scene:
    """A federation over tiers in memory, and callers of it."""

    def __init__(self, *, wire: bool, **tiers: MemoryTier) -> None:
        self.keeping = Keeping("own-name")
        self.stores: dict[str, MemoryTier] = {
            **{kind: MemoryTier(kind, kind) for kind in KINDS[:3]},
            "procedural": self.keeping,
            **tiers,
        }
        members = [
            Member(_config(name), _over_the_wire(store) if wire else store)
            for name, store in self.stores.items()
        ]
        events = EventLog()
        self.federation = Federation("a2m", members, events, interval=3_600)
        self._dispatcher = Dispatcher(self.federation, events=events)

    async def call(self, method: str, caller: Caller = LOCAL, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        answer = await self._dispatcher.handle(message, Peer(caller))
        assert answer is not None
        return answer.get("result", answer.get("error"))


def _config(name: str) -> TierConfig:
    kind = name if name in KINDS else "semantic"
    return TierConfig.model_validate({"name": name, "kind": kind, "url": "http://127.0.0.1:1"})


def _over_the_wire(store: MemoryTier) -> TierStore:
    peer = Peer(LOCAL)
    dispatcher = Dispatcher(store)
    return RemoteTier(Client(LocalTransport(lambda message: dispatcher.handle(message, peer))), "tier")


@pytest.fixture(params=[False, True], ids=["direct", "wire"])
async def scene(request: pytest.FixtureRequest) -> AsyncGenerator[Scene]:
    made = Scene(wire=request.param)
    await made.federation.open()
    yield made
    await made.federation.close()


@pytest.fixture
async def troubled() -> AsyncGenerator[Scene]:
    """One with a tier that does not answer and one that is not ours."""
    made = Scene(wire=True, semantic=Dead("semantic", "semantic"), corpus=Foreign("corpus"))
    await made.federation.open()
    yield made
    await made.federation.close()


async def test_every_tier_says_what_it_still_has(scene: Scene) -> None:
    one, other = draft(session="s"), draft(session="s")
    await scene.federation.write([one, other], EVERYONE)
    await scene.federation.promote([one.id], "semantic", 0.0, EVERYONE)
    held = await scene.call("remnants", ids=[one.id])
    assert held["checked"] == list(KINDS)
    assert {(r["tier"], r["place"]) for r in held["remnants"]} == {
        ("semantic", "records"),
        ("semantic", "order"),
    }
    await scene.call("forget", ids=[one.id])
    assert await scene.call("remnants", ids=[one.id]) == {"remnants": [], "checked": list(KINDS)}
    await scene.stores["episodic"].write([one], EVERYONE)
    planted = await scene.call("remnants", ids=[one.id, "x"])
    assert {(r["id"], r["tier"]) for r in planted["remnants"]} == {(one.id, "episodic")}


async def test_a_tier_that_cannot_be_looked_through_is_named(troubled: Scene) -> None:
    one = draft()
    await troubled.stores["corpus"].write([one], EVERYONE)
    found = await troubled.call("remnants", ids=[one.id, "x"])
    assert found["checked"] == ["working", "episodic", "procedural"]
    reasons = {silent["tier"]: silent["reason"] for silent in found["unverified"]}
    assert reasons.keys() == {"semantic", "corpus"}
    assert "it is away" in reasons["semantic"]
    assert "lacks the extension `verify`" in reasons["corpus"]
    assert found["remnants"] == [{"id": one.id, "place": "timeline", "tier": "corpus"}]


async def test_a_receipt_says_what_history_still_holds(scene: Scene) -> None:
    ours, passing, never = draft(tier="procedural"), draft(tier="procedural"), draft()
    for one in (ours, passing, never):
        await scene.federation.write([one], EVERYONE)
    await scene.federation.promote([passing.id], "semantic", 0.0, EVERYONE)
    told = await scene.call("forget", ids=[never.id])
    assert told == {"forgotten": 1, "tiers": {"working": 1}, "ids": [never.id]}
    told = await scene.call("forget", ids=[ours.id, passing.id])
    assert told["tiers"] == {"procedural": 1, "semantic": 1}
    assert told["history"] == {"procedural": 2}


async def test_what_moved_on_or_was_forgotten_before_is_erased_by_its_id(scene: Scene) -> None:
    ours, passing = draft(tier="procedural"), draft(tier="procedural")
    for one in (ours, passing):
        await scene.federation.write([one], EVERYONE)
    await scene.federation.promote([passing.id], "semantic", 0.0, EVERYONE)
    await scene.call("forget", ids=[ours.id])
    told = await scene.call("forget", ids=[ours.id, passing.id], erase=True)
    assert told["forgotten"] == 1
    assert told["erased"] == {"procedural": 2}
    assert told["remotes"] == {"procedural": ["origin"]}
    assert "history" not in told
    assert not {ours.id, passing.id} & scene.keeping.past
    assert (await scene.call("forget", ids=[ours.id], erase=True))["erased"] == {"procedural": 0}


async def test_a_forget_that_could_not_erase_says_of_which_ids(scene: Scene) -> None:
    one = draft("a heron", tier="procedural")
    await scene.federation.write([one], EVERYONE)
    scene.keeping.fails = A2MError(Code.INTERNAL, "a merge is under way")
    refused = await scene.call("forget", query="heron", erase=True)
    assert refused["code"] == Code.INTERNAL
    assert "forgotten, but not erased from history: a merge is under way" in refused["message"]
    assert refused["data"] == {"forgotten": 1, "ids": [one.id], "retryable": False}
    assert await scene.federation.read([one.id]) == []
    scene.keeping.fails = None
    assert (await scene.call("forget", ids=[one.id], erase=True))["erased"] == {"procedural": 1}


async def test_who_may_not_use_the_extensions_is_refused_before_anything_is_forgotten(scene: Scene) -> None:
    one = draft(tier="procedural")
    await scene.federation.write([one], EVERYONE)
    for method in ("forget", "erase", "remnants"):
        refused = await scene.call(method, ANONYMOUS, ids=[one.id], erase=True)
        assert refused["code"] == Code.SCOPE_DENIED
    assert len(await scene.federation.read([one.id])) == 1
    assert "erase" in (await scene.call("describe"))["extensions"]


async def test_a_federation_without_histories_does_not_erase() -> None:
    scene = Scene(wire=False, procedural=MemoryTier("procedural", "procedural"))
    await scene.federation.open()
    assert "verify" in (await scene.call("describe"))["extensions"]
    for method in ("forget", "erase"):
        assert (await scene.call(method, ids=["x"], erase=True))["code"] == Code.NOT_SUPPORTED
    await scene.federation.close()


async def test_what_a_silent_history_took_in_counts_as_held(scene: Scene) -> None:
    one = draft(tier="procedural")
    await scene.federation.write([one], EVERYONE)
    scene.keeping.fails = unavailable("git", "it is busy")
    receipt = await scene.federation.forget(Filter(ids=(one.id,)))
    assert receipt == Forgotten([one.id], {"procedural": 1}, {one.id: None}, {"procedural": 1})
