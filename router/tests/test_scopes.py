"""A scope reaches every tier of a federation as it is, also one that knows one owner at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Capability
from a2m_router.config import TierConfig
from a2m_router.federation import Federation
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOOPBACK, SERVICE, Caller, Peer, Role, principal
from a2m_server.local import attach
from a2m_server.memory import MemoryTier
from a2m_server.values import Filter, Page, StoreInfo

TIERS = ("working", "semantic", "corpus")
Connect = Callable[[Caller], Client]


class Corpus(MemoryTier):
    """A searching server that is not ours; `owners` says whether it keeps them apart."""

    def __init__(self, owners: bool) -> None:
        super().__init__("corpus")
        self.owners = owners
        self._lacks = frozenset[Capability]() if owners else frozenset({Capability.SCOPES})

    async def info(self) -> StoreInfo:
        info = await super().info()
        return StoreInfo(name=info.name, capabilities=info.capabilities - self._lacks)


class Old(Dispatcher):
    """One that takes no notice of a set of owners."""

    async def handle(self, message: Any, peer: Peer) -> Any:
        message.get("params", {}).pop("owners", None)
        answer: Any = await super().handle(message, peer)
        if answer and "extensions" in answer.get("result", {}):
            del answer["result"]["extensions"]
        return answer


def caller(*roles: Role, reads: tuple[str, ...] = (), pooled: bool = True, owner: str = "ann") -> Caller:
    return principal(owner, owner, frozenset(roles or {Role.AGENT}), reads, pooled=pooled)


async def federation(stack: AsyncExitStack, corpus: Corpus | None) -> Federation:
    """Tiers that the router reaches as it does over HTTP, with the service token."""
    members: list[Member] = []
    for name in TIERS[:2] if corpus is None else TIERS:
        store = corpus if name == "corpus" and corpus is not None else MemoryTier(name)
        dispatcher = Old(store) if name == "corpus" else Dispatcher(store)
        client = await stack.enter_async_context(attach(dispatcher, caller=SERVICE))
        kind = name if name != "corpus" else "semantic"
        config = TierConfig.model_validate({"name": name, "kind": kind, "url": "http://127.0.0.1:1"})
        members.append(Member(config, RemoteTier(client, name)))
    made = Federation("a2m", members, EventLog(), interval=3_600)
    await made.open()
    stack.push_async_callback(made.close)
    return made


async def fill(trusted: Client, tiers: tuple[str, ...], corpus: Corpus | None) -> None:
    for tier in tiers:
        apart = tier != "corpus" or corpus is None or corpus.owners
        for owner in ("ann", "bob", "eve", None) if apart else (None,):
            held = {"id": f"{tier}/{owner}", "content": "secret", "tier": tier, "session": "s"}
            await trusted.remember([held if owner is None else {**held, "owner": owner}])


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def making(corpus: Corpus | None = None, tiers: tuple[str, ...] = TIERS[:2]) -> Connect:
            made = Dispatcher(await federation(stack, corpus))

            def connect(who: Caller) -> Client:
                peer = Peer(who)
                return Client(LocalTransport(lambda message: made.handle(message, peer)))

            await fill(connect(SERVICE), tiers, corpus)
            return connect

        yield making


async def seen(client: Client) -> list[str]:
    """What a caller is shown, which must be the same by every way."""
    timeline: Any = await client.timeline()
    recall: Any = await client.call("memory/recall", {"query": "secret", "limit": 50})
    described: Any = await client.describe()
    found = sorted(record["id"] for record in timeline["records"])
    assert sorted(record["id"] for record in recall["records"]) == found
    assert sum(tier["count"] for tier in described["tiers"]) == len(found)
    return found


def held(*owners: str | None, tiers: tuple[str, ...] = TIERS[:2]) -> list[str]:
    return sorted(f"{tier}/{owner}" for tier in tiers for owner in owners)


async def test_every_tier_shows_a_principal_the_same_owners(make: Any) -> None:
    connect = await make()
    assert await seen(connect(caller())) == held("ann", None)
    assert await seen(connect(caller(pooled=False))) == held("ann")
    assert await seen(connect(caller(reads=("bob",)))) == held("ann", "bob", None)
    assert await seen(connect(caller(reads=("bob",), pooled=False))) == held("ann", "bob")
    assert await seen(connect(caller(Role.READER, reads=("*",)))) == held("ann", "bob", "eve", None)
    sessions: Any = await connect(caller(pooled=False)).call("memory/session/list", {})
    assert [(s["owner"], s["records"]) for s in sessions["sessions"]] == [("ann", 2)]


async def test_over_every_tier_an_agent_changes_its_own_records_alone(make: Any) -> None:
    connect = await make()
    client, trusted = connect(caller(reads=("bob",))), connect(SERVICE)
    everything = held("ann", "bob", "eve", None)
    reinforced: Any = await client.call("memory/reinforce", {"ids": everything})
    assert reinforced["reinforced"] == 2
    promoted: Any = await client.call("memory/promote", {"ids": everything, "tier": "semantic"})
    assert promoted["promoted"] == 1
    forgotten: Any = await client.call("memory/forget", {"query": "secret"})
    assert forgotten["forgotten"] == 2
    assert await seen(trusted) == held("bob", "eve", None)


async def test_a_tier_that_knows_one_owner_at_a_time_is_left_out_rather_than_shown_whole(make: Any) -> None:
    connect = await make(Corpus(owners=True), TIERS)
    # Its own records and pooled ones can be said to any server.
    assert await seen(connect(caller())) == held("ann", None, tiers=TIERS)
    for who, owners in (
        (caller(pooled=False), ("ann",)),
        (caller(reads=("bob",)), ("ann", "bob", None)),
    ):
        timeline: Any = await connect(who).timeline()
        assert sorted(r["id"] for r in timeline["records"]) == held(*owners)
        assert [d["tier"] for d in timeline["degraded"]] == ["corpus"]


async def test_an_agent_forgets_nothing_pooled_of_a_tier_that_is_not_ours(make: Any) -> None:
    connect = await make(Corpus(owners=True), TIERS)
    forgotten: Any = await connect(caller(reads=("bob",))).call("memory/forget", {"query": "secret"})
    assert forgotten["forgotten"] == 3
    assert await seen(connect(SERVICE)) == held("bob", "eve", None, tiers=TIERS)


async def test_a_tier_without_owners_holds_pooled_records_and_is_for_who_sees_those(make: Any) -> None:
    connect = await make(Corpus(owners=False), TIERS)
    pooled = ["corpus/None"]
    trusted: Any = await connect(SERVICE).timeline()
    assert pooled[0] in [r["id"] for r in trusted["records"]]
    for who, owners in ((caller(), ("ann", None)), (caller(reads=("bob",)), ("ann", "bob", None))):
        assert await seen(connect(who)) == sorted([*held(*owners), *pooled])
    assert await seen(connect(caller(pooled=False))) == held("ann")
    forgotten: Any = await connect(caller()).call("memory/forget", {"query": "secret"})
    assert forgotten["forgotten"] == 2
    assert await seen(connect(caller())) == sorted([*held(None), *pooled])


async def test_a_pooled_record_of_a_curator_is_pooled_in_its_tier(make: Any) -> None:
    connect = await make()
    client = connect(caller(Role.CURATOR))
    await client.remember(
        [{"id": "new", "content": "a secret for all", "owner": None}, {"id": "own", "content": "x"}]
    )
    assert {"new"} == {*await seen(connect(caller(owner="eve")))} - {*held("eve", None)}
    timeline: Any = await connect(SERVICE).timeline()
    assert {r["id"]: r.get("owner") for r in timeline["records"]}["own"] == "ann"


async def test_an_operator_has_its_own_fact_before_another_s(make: Any) -> None:
    connect = await make()
    trusted = connect(SERVICE)
    for tier, owner in (("semantic", "bob"), ("semantic", "ann"), ("working", "eve")):
        await trusted.remember([{"content": f"of {owner}", "key": "seat", "owner": owner, "tier": tier}])
    mine: Any = await connect(caller(Role.OPERATOR)).call("memory/fetch", {"key": "seat"})
    assert mine["record"]["content"] == "of ann"
    none: Any = await connect(caller(Role.OPERATOR, owner="root")).call("memory/fetch", {"key": "seat"})
    assert none["record"]["content"].startswith("of ")


@pytest.mark.parametrize(("who", "outcome"), [(caller(Role.OPERATOR), "refused"), (SERVICE, "refused")])
async def test_what_an_operator_forgot_is_not_imported_afterwards(
    make: Any, who: Caller, outcome: str
) -> None:
    client = (await make())(who)
    await client.call("memory/forget", {"ids": ["ghost"]})
    late = {"id": "ghost", "content": "x", "created_at": "2020-01-01T00:00:00Z"}
    answer: Any = await client.call("memory/remember", {"records": [late], "transfer": True})
    assert answer["written"][0]["outcome"] == outcome


async def test_an_agent_s_record_is_refused_rather_than_pooled_by_a_tier_without_owners() -> None:
    async with AsyncExitStack() as stack:
        store = MemoryTier("working")
        client = await stack.enter_async_context(attach(Dispatcher(store), caller=LOOPBACK))
        config = TierConfig.model_validate(
            {"name": "working", "kind": "working", "url": "http://127.0.0.1:1"}
        )
        made = Federation("a2m", [Member(config, RemoteTier(client, "working"))], EventLog(), interval=3_600)
        await made.open()
        stack.push_async_callback(made.close)
        dispatcher = Dispatcher(made)
        ann = Client(LocalTransport(lambda message: dispatcher.handle(message, Peer(caller()))))
        with pytest.raises(A2MError, match="does not declare scopes"):
            await ann.remember([{"content": "secret"}])
        assert (await store.timeline(Page(Filter()))).records == []
