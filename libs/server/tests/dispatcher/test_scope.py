from typing import Any

import pytest

from a2m_server.identity import ANONYMOUS, LOOPBACK


@pytest.fixture
async def shared(memory: Any) -> Any:
    await memory.remember(
        {"id": "a", "content": "secret of ann", "owner": "ann", "session": "s", "key": "k"},
        {"id": "b", "content": "secret of bob", "owner": "bob", "session": "s", "key": "k"},
        {"id": "p", "content": "pooled secret", "session": "s", "key": "k"},
    )
    return memory


async def test_a_trusted_caller_sees_everything_or_its_owners_and_what_is_pooled(shared: Any) -> None:
    assert len(await shared.contents()) == 3
    assert await shared.contents(owner="ann") == ["secret of ann", "pooled secret"]
    assert await shared.contents(owner=None) == ["pooled secret"]
    assert await shared.contents(owner="nobody") == ["pooled secret"]


async def test_every_method_keeps_to_the_owner(shared: Any) -> None:
    assert {r["id"] for r in (await shared.ok("recall", query="secret", owner="bob"))["records"]} == {
        "b",
        "p",
    }
    assert (await shared.ok("fetch", key="k", owner="bob"))["record"]["id"] == "b"
    assert (await shared.ok("fetch", key="k", owner="eve"))["record"]["id"] == "p"
    assert [s.get("owner") for s in (await shared.ok("session/list", owner="bob"))["sessions"]] == [
        None,
        "bob",
    ]
    assert (await shared.ok("session/close", session="s", owner="eve"))["counts"] == {"memory": 1}
    assert (await shared.ok("reinforce", ids=["a", "b"], owner="bob"))["reinforced"] == 1
    assert (await shared.ok("summarize", ids=["a"], owner="bob"))["read"] == 0
    assert (await shared.ok("forget", query="secret", owner="bob"))["forgotten"] == 2
    assert await shared.contents() == ["secret of ann"]
    assert (await shared.ok("describe", owner="bob"))["count"] == 0


async def test_an_id_of_another_owner_is_refused_without_saying_whose(shared: Any) -> None:
    code, message = await shared.error("remember", records=[{"id": "a", "content": "x"}], owner="bob")
    assert code == -32005
    assert "ann" not in message


@pytest.mark.parametrize("caller", [LOOPBACK, ANONYMOUS])
async def test_without_trust_there_are_no_scopes(connect: Any, shared: Any, caller: Any) -> None:
    other = connect(to=shared, caller=caller)
    assert "scopes" not in (await other.ok("describe"))["capabilities"]
    await other.remember({"content": "mine", "owner": "ann"}, owner={"any": "type"})
    records = (await other.ok("timeline", owner="ann"))["records"]
    assert [r["content"] for r in records] == ["pooled secret", "mine"]
    assert not any("owner" in r for r in records)
    assert not any("owner" in s for s in (await other.ok("session/list"))["sessions"])
    assert await other.code("remember", records=[{"id": "a", "content": "x"}]) == -32005
    assert (await other.ok("forget", ids=["a", "b"]))["forgotten"] == 0
    assert (await other.ok("describe"))["count"] == 2
    assert await other.contents(where={"owner": "ann"}) == []


async def test_events_are_seen_by_who_could_recall_the_record(connect: Any, shared: Any) -> None:
    async def seen(**params: Any) -> list[Any]:
        return (await shared.ok("events", cursor="", **params))["events"]

    assert [e["id"] for e in await seen()] == ["a", "b", "p"]
    assert [e["id"] for e in await seen(owner="ann")] == ["a", "p"]
    assert [e["id"] for e in await seen(owner=None)] == ["p"]
    await shared.ok("forget", query="secret")
    for owner, ids in (("ann", ["a", "p"]), ("eve", ["p"])):
        forgotten = [e for e in await seen(owner=owner) if e["kind"] == "forgotten"]
        assert [(e["count"], e["ids"]) for e in forgotten] == [(len(ids), ids)]
    untrusted = connect(to=shared, caller=ANONYMOUS)
    events = (await untrusted.ok("events", cursor=""))["events"]
    assert [(e["kind"], e.get("ids")) for e in events] == [("written", None), ("forgotten", ["p"])]


async def test_a_summary_is_of_one_owner(shared: Any) -> None:
    assert await shared.code("summarize", query="secret") == -32602
    result = await shared.ok("summarize", ids=["a", "p"])
    assert result["records"][0]["owner"] == "ann"
    result = await shared.ok("summarize", ids=["p"], owner="bob")
    assert result["records"][0]["owner"] == "bob"
