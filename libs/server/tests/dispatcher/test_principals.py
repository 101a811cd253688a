"""What principals may do by their roles, and whose records they see: over one tier and over two."""

from __future__ import annotations

from typing import Any

import pytest

from a2m_server.identity import ANONYMOUS, LOCAL, LOOPBACK, Caller, Role, principal
from a2m_server.methods import EXTENSIONS, METHODS

ANN, BOB, EVE = "acme/ann", "acme/bob", "eve"


def who(
    owner: str, *roles: Role, reads: tuple[str, ...] = (), pooled: bool = True, name: str | None = None
) -> Caller:
    return principal(name or owner, owner, frozenset(roles or {Role.AGENT}), reads, pooled=pooled)


AGENT, READER = who(ANN), who(ANN, Role.READER)
CURATOR = who(ANN, Role.CURATOR, reads=(BOB,))
OPERATOR = who("root", Role.OPERATOR)


@pytest.fixture
async def shared(memory: Any) -> Any:
    await memory.remember(
        {"id": "a", "content": "secret of ann", "owner": ANN, "session": "s", "key": "k"},
        {"id": "b", "content": "secret of bob", "owner": BOB, "session": "s", "key": "k"},
        {"id": "e", "content": "secret of eve", "owner": EVE, "session": "s", "key": "k"},
        {"id": "p", "content": "pooled secret", "session": "s", "key": "k"},
    )
    return memory


def ids(answer: Any) -> list[str]:
    return sorted(record["id"] for record in answer["records"])


@pytest.mark.parametrize(
    ("caller", "seen"),
    [
        (AGENT, "ap"),
        (READER, "ap"),
        (who(ANN, pooled=False), "a"),
        (who(ANN, reads=(BOB,)), "abp"),
        (who(ANN, reads=(BOB,), pooled=False), "ab"),
        (CURATOR, "abp"),
        (who("desk", Role.READER, reads=("*",)), "abep"),
        (who(ANN, reads=("*",)), "ap"),
        (OPERATOR, "abep"),
        (who("nobody"), "p"),
    ],
)
async def test_a_principal_sees_its_own_records_those_listed_and_pooled_ones(
    connect: Any, shared: Any, caller: Caller, seen: str
) -> None:
    client = connect(to=shared, caller=caller)
    wanted = [*seen]
    assert ids(await client.ok("timeline")) == wanted
    assert ids(await client.ok("recall", query="secret")) == wanted
    assert (await client.ok("describe"))["count"] == len(wanted)
    assert len((await client.ok("session/list"))["sessions"]) == len(wanted)
    events = (await client.ok("events", cursor=""))["events"]
    assert sorted(event["id"] for event in events) == wanted
    assert "scopes" in (await client.ok("describe"))["capabilities"]
    first = {ANN: "a", "nobody": "p", "root": "p", "desk": "p"}[caller.owner or ""]
    assert (await client.ok("fetch", key="k"))["record"]["id"] == first


async def test_an_owner_within_what_is_seen_narrows_it_and_any_other_is_refused(
    connect: Any, shared: Any
) -> None:
    client = connect(to=shared, caller=who(ANN, reads=(BOB,)))
    assert ids(await client.ok("timeline", owner=ANN)) == ["a", "p"]
    assert ids(await client.ok("timeline", owner=BOB)) == ["b", "p"]
    assert ids(await client.ok("timeline", owner=None)) == ["p"]
    narrow = connect(to=shared, caller=who(ANN, pooled=False))
    for asking, owner in ((client, EVE), (client, "acme"), (narrow, None), (narrow, BOB), (narrow, "nobody")):
        for method, params in READS.items():
            code, message = await asking.error(method, owner=owner, **params)
            assert code == -32005, method
            assert "eve" not in message


READS: dict[str, dict[str, Any]] = {
    "recall": {"query": "secret"},
    "timeline": {},
    "fetch": {"key": "k"},
    "session/list": {},
    "events": {},
    "describe": {},
}
WRITES: dict[str, dict[str, Any]] = {
    "remember": {"records": [{"content": "new"}]},
    "forget": {"ids": ["a", "b", "e", "p"]},
    "reinforce": {"ids": ["a", "b", "e", "p"]},
    "session/close": {"session": "s"},
    "summarize": {"ids": ["a"]},
    "promote": {"ids": ["a"], "tier": "episodic"},
}


async def test_an_agent_is_refused_another_owner_in_parameters_and_in_records(
    connect: Any, stack: Any
) -> None:
    client = connect(to=stack, caller=who(ANN, reads=(BOB,)))
    for owner in (BOB, EVE, None):
        for method, params in WRITES.items():
            assert await client.code(method, owner=owner, **params) == -32005, (method, owner)
        code, message = await client.error(
            "remember", records=[{"content": "x"}, {"content": "y", "owner": owner}]
        )
        assert (code, message.startswith("records[1].owner")) == (-32005, True)
    assert (await stack.ok("timeline"))["records"] == []
    await client.remember({"id": "1", "content": "x"}, {"id": "2", "content": "y", "owner": ANN}, owner=ANN)
    assert {r["owner"] for r in (await stack.ok("timeline"))["records"]} == {ANN}


async def test_an_agent_changes_and_forgets_its_own_records_alone(connect: Any, shared: Any) -> None:
    client = connect(to=shared, caller=who(ANN, reads=(BOB,)))
    assert (await client.ok("reinforce", ids=["a", "b", "e", "p"]))["reinforced"] == 1
    for taken in ("b", "e", "p"):
        code, message = await client.error("remember", records=[{"id": taken, "content": "x"}])
        assert code == -32005
        assert not any(name in message for name in ("bob", "eve"))
    closed = await client.ok("session/close", session="s")
    assert closed["counts"] == {"memory": 3}
    assert (await client.ok("forget", query="secret"))["forgotten"] == 1
    assert ids(await shared.ok("timeline")) == ["b", "e", "p"]
    stranger = connect(to=shared, caller=who(EVE))
    events = (await stranger.ok("events", cursor=""))["events"]
    assert [e["id"] for e in events if e["kind"] == "written"] == ["e", "p"]
    assert [e for e in events if e["kind"] != "written"] == []


async def test_a_curator_writes_pooled_records_and_those_of_listed_owners(connect: Any, shared: Any) -> None:
    client = connect(to=shared, caller=CURATOR)
    await client.remember({"id": "1", "content": "for all", "owner": None})
    await client.remember({"id": "2", "content": "for all"}, owner=None)
    await client.remember({"id": "3", "content": "for bob"}, owner=BOB)
    await client.remember({"id": "4", "content": "mine"})
    owners = {r["id"]: r.get("owner") for r in (await shared.ok("timeline"))["records"]}
    assert [owners[i] for i in "1234"] == [None, None, BOB, ANN]
    assert await client.code("remember", records=[{"content": "x"}], owner=EVE) == -32005
    assert await client.code("remember", records=[{"content": "x", "owner": EVE}]) == -32005
    assert (await client.ok("forget", ids=["b", "e", "p"]))["forgotten"] == 2
    assert ids(await shared.ok("timeline", where={"id": ["b", "e", "p"]})) == ["e"]


async def test_an_operator_may_name_every_owner_and_use_extensions(connect: Any, shared: Any) -> None:
    client = connect(to=shared, caller=OPERATOR)
    await client.remember({"id": "1", "content": "x"}, owner=EVE)
    await client.remember({"id": "2", "content": "x"})
    await client.ok("remember", transfer=True, records=[{"id": "3", "content": "was pooled"}])
    owners = {r["id"]: r.get("owner") for r in (await shared.ok("timeline"))["records"]}
    assert [owners[i] for i in "123"] == [EVE, "root", None]
    assert len((await client.ok("list", limit=10))["entries"]) == 7
    assert ids(await client.ok("read", ids=["a", "p"])) == ["a", "p"]
    # What is condensed stays with whose it was.
    assert (await client.ok("summarize", ids=["a"]))["records"][0]["owner"] == ANN
    assert (await client.ok("forget", ids=["a", "b", "e"]))["forgotten"] == 3


@pytest.mark.parametrize("caller", [AGENT, READER, CURATOR, who(ANN, reads=(BOB,))])
async def test_extensions_of_the_router_are_for_operators_and_routers(
    connect: Any, shared: Any, caller: Caller
) -> None:
    client = connect(to=shared, caller=caller)
    extensions = (await shared.ok("describe"))["extensions"]
    listed = (await client.ok("describe"))["methods"]
    ours = [
        name
        for name, method in EXTENSIONS.items()
        if method.name in extensions and method.roles.isdisjoint(caller.roles)
    ]
    assert {"memory/list", "memory/read", "memory/forget_if", "memory/touch"} <= {*ours}
    for name in ours:
        assert await client.code(name.removeprefix("memory/"), ids=["a"], owner=BOB) == -32005
        assert name not in listed
    if Role.READER not in caller.roles:
        assert await client.code("remember", records=[{"content": "x"}], transfer=True) == -32005


async def test_a_reader_may_call_what_writes_nothing_and_leaves_no_trace(connect: Any, stack: Any) -> None:
    await stack.remember({"id": "a", "content": "secret of ann", "owner": ANN, "session": "s", "key": "k"})
    client = connect(to=stack, caller=READER)
    before = await stack.ok("timeline")
    for name, method in METHODS.items():
        params = {**READS, **WRITES}.get(name.removeprefix("memory/"), {})
        if Role.READER not in method.roles:
            assert await client.code(name.removeprefix("memory/"), **params) == -32005, name
    assert {name for name, method in METHODS.items() if Role.READER in method.roles} == {
        "memory/recall",
        "memory/timeline",
        "memory/fetch",
        "memory/session/list",
        "memory/events",
        "memory/events/subscribe",
        "memory/events/unsubscribe",
    }
    for method, params in READS.items():
        assert await client.ok(method, **params)
    listed = (await client.ok("describe"))["methods"]
    assert "memory/recall" in listed
    assert "memory/remember" not in listed
    assert await stack.ok("timeline") == before


async def test_who_has_no_role_may_call_nothing_but_describe(connect: Any, shared: Any) -> None:
    client = connect(to=shared, caller=principal("x", ANN, frozenset(), (), pooled=True))
    for name in METHODS:
        assert await client.code(name.removeprefix("memory/")) in (-32005, -32003), name
    assert (await client.ok("describe"))["methods"] == ["memory/describe"]


async def test_the_owner_that_a_router_names_is_believed_and_so_is_a_set_of_them(
    connect: Any, shared: Any
) -> None:
    router = connect(to=shared, caller=who("router-1", Role.ROUTER))
    assert ids(await router.ok("timeline")) == ["a", "b", "e", "p"]
    assert ids(await router.ok("timeline", owner=ANN)) == ["a", "p"]
    assert ids(await router.ok("timeline", owner=ANN, owners=[ANN])) == ["a"]
    assert ids(await router.ok("timeline", owner=ANN, owners=[ANN, BOB, None])) == ["a", "b", "p"]
    assert ids(await router.ok("timeline", owners=[])) == []
    assert await router.code("timeline", owners=["x", 5]) == -32602
    assert await router.code("timeline", owners="x") == -32602
    assert "owners" in (await router.ok("describe"))["extensions"]
    assert (await router.ok("forget", ids=["a", "p"], owner=ANN, owners=[ANN]))["forgotten"] == 1


@pytest.mark.parametrize("caller", [AGENT, CURATOR, READER, OPERATOR, LOOPBACK, ANONYMOUS])
async def test_a_set_of_owners_is_believed_of_nobody_else(connect: Any, shared: Any, caller: Caller) -> None:
    client = connect(to=shared, caller=caller)
    assert ids(await client.ok("timeline", owners=[EVE])) == ids(await client.ok("timeline"))


async def test_where_a_store_keeps_no_owners_apart_a_principal_sees_no_more_than_its_own(
    connect: Any, varied: Any
) -> None:
    from a2m_protocol.types import Capability

    trusted = varied(capabilities=frozenset({Capability.CORE}))
    client = connect(to=trusted, caller=AGENT)
    await connect(to=trusted, caller=LOCAL).remember({"content": "pooled"})
    await client.remember({"content": "ann's"})
    assert "scopes" not in (await client.ok("describe"))["capabilities"]
    assert await client.contents() == ["pooled", "ann's"]
    assert await connect(to=trusted, caller=who(EVE)).contents() == ["pooled"]


async def test_without_authentication_a_set_of_owners_and_scopes_are_not_declared(
    connect: Any, shared: Any
) -> None:
    for caller in (LOOPBACK, ANONYMOUS):
        described = await connect(to=shared, caller=caller).ok("describe")
        assert "scopes" not in described["capabilities"]
        assert "owners" not in described["extensions"]


async def test_who_may_read_everybody_s_summarizes_into_its_own_memory(connect: Any, shared: Any) -> None:
    eve = connect(to=shared, caller=who(EVE, Role.READER, Role.AGENT, reads=("*",)))
    assert await eve.code("remember", records=[{"content": "x", "owner": BOB}]) == -32005
    done = await eve.ok("summarize", where={"owner": BOB}, key="k")
    assert done["records"][0]["owner"] == EVE
    bob = connect(to=shared, caller=who(BOB))
    assert (await bob.ok("fetch", key="k"))["record"]["content"] == "secret of bob"


async def test_an_access_counts_on_what_one_may_write_and_on_pooled_records(
    connect: Any, shared: Any
) -> None:
    ann = connect(to=shared, caller=who(ANN, reads=(BOB,)))
    assert ids(await ann.ok("recall", query="secret")) == ["a", "b", "p"]
    records = (await shared.ok("recall", query="secret", touch=False))["records"]
    assert {r["id"]: r["access_count"] for r in records} == {"a": 1, "b": 0, "e": 0, "p": 1}


@pytest.mark.parametrize("caller", [LOOPBACK, OPERATOR, AGENT])
async def test_nobody_but_a_router_says_who_wrote(connect: Any, memory: Any, caller: Caller) -> None:
    client = connect(to=memory, caller=caller)
    told = {"principal": "bob", "at": "2020-01-01T00:00:00.000Z", "client": "c", "source": "s"}
    await client.remember({"content": "x", "provenance": told})
    (record,) = (await client.ok("timeline"))["records"]
    assert record["provenance"].get("principal") == caller.name
    assert record["provenance"]["at"] > "2026"
    assert "client" not in record["provenance"]


async def test_a_set_of_owners_is_offered_to_who_is_believed_alone(connect: Any, shared: Any) -> None:
    for caller in (AGENT, CURATOR, OPERATOR, LOOPBACK):
        assert "owners" not in (await connect(to=shared, caller=caller).ok("describe"))["extensions"]
    assert "owners" in (await shared.ok("describe"))["extensions"]
