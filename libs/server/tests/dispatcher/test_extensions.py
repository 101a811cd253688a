import time
from typing import Any

import pytest

from a2m_protocol.clock import created_at_of
from a2m_server.identity import ANONYMOUS, LOOPBACK

METHODS = ["forget_if", "tombstones", "list", "read", "touch", "embed"]

MOVED = {
    "id": "m",
    "content": "moved here",
    "created_at": "2020-05-01T10:00:00.123Z",
    "seq": 1588327200123004,
    "key": "k",
    "revision": 3,
    "moves": 2,
    "salience": 4.5,
    "access_count": 7,
    "accessed_at": "2021-05-01T10:00:00.000Z",
    "embedding": [0.5, 0.25],
    "embedding_model": "m1",
    "features": "opaque",
    "aliases": ["older"],
    "provenance": {"source": "s", "principal": "p", "derived_from": ["x"]},
    "status": "superseded",
    "owner": "ann",
    "metadata": {"a": 1},
}


async def test_our_methods_are_for_the_router_and_the_operator(connect: Any, memory: Any) -> None:
    stranger = connect(to=memory, caller=ANONYMOUS)
    for method in METHODS:
        assert await stranger.code(method) == -32005
    assert await stranger.code("remember", records=[MOVED], transfer=True) == -32005
    assert await memory.contents() == []


async def test_what_a_store_lacks_is_not_supported(varied: Any) -> None:
    plain = varied(extensions=frozenset())
    for method in METHODS:
        assert await plain.code(method) == -32003
    assert await plain.code("remember", records=[MOVED], transfer=True) == -32003


async def test_a_transfer_keeps_a_record_what_it_was(memory: Any) -> None:
    result = await memory.ok("remember", records=[MOVED], transfer=True)
    assert result["ids"] == ["m"]
    assert [(w["id"], w["outcome"]) for w in result["written"]] == [("m", "created")]
    (held,) = (await memory.ok("read", ids=["m", "none"]))["records"]
    assert held.items() >= MOVED.items()
    again = await memory.ok("remember", records=[MOVED], transfer=True)
    assert [(w["outcome"], w["reason"]) for w in again["written"]] == [("refused", "exists")]


async def test_a_transfer_logs_nothing(memory: Any) -> None:
    await memory.ok("remember", records=[MOVED], transfer=True)
    assert (await memory.ok("events", cursor=""))["events"] == []


async def test_what_a_router_alone_may_see_is_not_in_a_timeline(memory: Any) -> None:
    await memory.ok("remember", records=[MOVED], transfer=True)
    (held,) = (await memory.ok("timeline", embeddings=True, status="superseded"))["records"]
    assert held["embedding"] == [0.5, 0.25]
    assert not {"features", "aliases"} & held.keys()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", "1"),
        ("seq", 2**60),
        ("seq", 1.5),
        ("moves", -1),
        ("revision", True),
        ("status", "odd"),
        ("created_at", 5),
        ("created_at", "2020-05-01"),
        ("aliases", "x"),
        ("features", 5),
        ("features", "\x00"),
        ("provenance", []),
        ("embedding_model", 5),
    ],
)
async def test_a_transfer_is_checked(memory: Any, field: str, value: object) -> None:
    code, message = await memory.error("remember", records=[MOVED | {field: value}], transfer=True)
    assert code == -32602
    assert field in message
    assert await memory.code("remember", records=[MOVED], transfer="yes") == -32602


async def test_a_router_is_told_what_became_of_each_record(connect: Any, memory: Any) -> None:
    records = [{"id": "a", "content": "x", "key": "k"}, {"id": "b", "content": "y", "key": "k"}]
    written = (await memory.ok("remember", records=records))["written"]
    assert [(w["id"], w["outcome"], w["revision"]) for w in written] == [
        ("a", "created", 0),
        ("a", "replaced", 1),
    ]
    assert all(w["etag"] for w in written)
    stranger = connect(to=memory, caller=ANONYMOUS)
    assert (await stranger.ok("remember", records=records)).keys() == {"ids"}
    assert (await stranger.ok("forget", ids=["a"])).keys() == {"forgotten"}


async def test_records_are_forgotten_all_or_none_by_their_etags(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "a"}, {"id": "b", "content": "b"})
    entries = (await memory.ok("list"))["entries"]
    named = [{"id": e["id"], "etag": e["etag"]} for e in entries]
    await memory.ok("reinforce", ids=["b"])
    outcomes = (await memory.ok("forget_if", records=named, reason="moved", target="episodic"))["outcomes"]
    assert outcomes == {"a": "deleted", "b": "changed"}
    assert await memory.contents() == ["a", "b"]
    outcomes = (await memory.ok("forget_if", records=named[:1], reason="moved", target="episodic"))[
        "outcomes"
    ]
    assert outcomes == {"a": "deleted"}
    assert await memory.contents() == ["b"]
    written = (await memory.ok("remember", records=[{"id": "a", "content": "again"}]))["written"]
    assert [(w["id"], w["outcome"], w["tier"]) for w in written] == [("a", "moved", "episodic")]
    (grave,) = (await memory.ok("tombstones", ids=["a", "b"]))["tombstones"]
    assert (grave["id"], grave["reason"], grave["target"], grave["moves"]) == ("a", "moved", "episodic", 1)
    kinds = {e["kind"] for e in (await memory.ok("events", cursor=""))["events"]}
    assert kinds == {"written"}


async def test_tombstones_are_put_and_end_older_records(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "a"})
    (entry,) = (await memory.ok("list"))["entries"]
    graves = [
        {"id": "a", "reason": "forgotten", "seq": entry["seq"]},
        {"id": "b", "reason": "forgotten", "seq": entry["seq"], "owner": "ann"},
    ]
    assert (await memory.ok("tombstones", tombstones=graves))["outcomes"] == {"a": "forgotten", "b": "absent"}
    assert (await memory.ok("tombstones", ids=["b"]))["tombstones"] == [graves[1] | {"moves": 0}]
    assert await memory.contents() == []


async def test_what_was_forgotten_is_listed_in_pages_that_say_where_to_go_on(
    connect: Any, memory: Any
) -> None:
    for n in range(5):
        await memory.remember({"id": f"r{n}", "content": "x", **({"owner": "ann"} if n in (0, 1) else {})})
        await memory.ok("forget", ids=[f"r{n}"])
    other = connect(to=memory, caller=LOOPBACK)
    for caller, expected in ((memory, ["r0", "r1", "r2", "r3", "r4"]), (other, ["r2", "r3", "r4"])):
        seen: list[str] = []
        page = await caller.ok("tombstones", limit=2)
        while True:
            seen += [grave["id"] for grave in page["tombstones"]]
            if "after" not in page:
                break
            page = await caller.ok("tombstones", limit=2, after=page["after"])
        assert seen == expected


async def test_entries_come_in_pages_without_content(memory: Any) -> None:
    await memory.remember(*({"id": f"r{n}", "content": f"tea {n}", "session": "s"} for n in range(5)))
    seen: list[str] = []
    after, more = None, True
    while more:
        page = await memory.ok("list", limit=2, after=after, where={"session": "s"}, query="tea")
        assert all("content" not in entry for entry in page["entries"])
        seen += [entry["id"] for entry in page["entries"]]
        last = page["entries"][-1]
        after, more = [last["seq"], last["id"]], page["more"]
    assert seen == [f"r{n}" for n in range(5)]
    assert (await memory.ok("list", ids=[]))["entries"] == []


async def test_touching_counts_a_mention(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "x"})
    assert await memory.ok("touch", ids=["a", "a", "none"], at="2030-01-01T00:00:00Z") == {}
    (held,) = (await memory.ok("timeline"))["records"]
    assert (held["access_count"], held["accessed_at"]) == (2, "2030-01-01T00:00:00.000Z")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("forget_if", {}),
        ("forget_if", {"records": [{"id": "a", "etag": "1"}]}),
        ("forget_if", {"records": [{"id": "a", "etag": "1"}], "reason": "because"}),
        ("forget_if", {"records": ["a"], "reason": "undo"}),
        ("forget_if", {"records": [{"id": "a"}], "reason": "undo"}),
        ("tombstones", {}),
        ("tombstones", {"tombstones": [{"id": "a", "reason": "undo", "seq": 1}]}),
        ("tombstones", {"tombstones": [{"id": "a", "reason": "moved", "seq": "1"}]}),
        ("tombstones", {"limit": 1001}),
        ("tombstones", {"limit": 1, "after": "x"}),
        ("list", {"limit": 1001}),
        ("list", {"after": "x"}),
        ("list", {"after": [True, "x"]}),
        ("list", {"after": [10**30, "x"]}),
        ("tombstones", {"limit": 1, "after": [-(10**30), "x"]}),
        ("tombstones", {"limit": 1, "after": [1, "\x00"]}),
        ("list", {"after": [1]}),
        ("list", {"ids": "a"}),
        ("read", {}),
        ("touch", {"ids": ["a"]}),
        ("touch", {"ids": ["a"], "at": "now"}),
    ],
)
async def test_what_is_wrong_is_invalid(memory: Any, method: str, params: Any) -> None:
    assert await memory.code(method, **params) == -32602


async def test_without_trust_our_methods_reach_pooled_records_alone(connect: Any, memory: Any) -> None:
    await memory.remember({"id": "a", "content": "a", "owner": "ann"}, {"id": "p", "content": "p"})
    etags = {e["id"]: e["etag"] for e in (await memory.ok("list"))["entries"]}
    other = connect(to=memory, caller=LOOPBACK)
    assert [e["id"] for e in (await other.ok("list"))["entries"]] == ["p"]
    assert [r["id"] for r in (await other.ok("read", ids=["a", "p"]))["records"]] == ["p"]
    named = [{"id": i, "etag": etag} for i, etag in etags.items()]
    assert await other.code("forget_if", records=named, reason="undo") == -32005
    assert await other.code("touch", ids=["a"], at="2030-01-01T00:00:00Z") == -32005
    grave = {"id": "a", "reason": "forgotten", "seq": 2**53 - 1}
    assert await other.code("tombstones", tombstones=[grave]) == -32005
    assert await other.code("tombstones", tombstones=[grave | {"id": "z", "owner": "ann"}]) == -32005
    await memory.ok("forget", ids=["a"])
    assert (await other.ok("tombstones", ids=["a"]))["tombstones"] == []
    assert await memory.contents() == ["p"]


async def test_a_transfer_from_the_future_or_beyond_all_time_is_refused(memory: Any) -> None:
    now = time.time_ns() // 1_000
    hour = 3_600_000_000
    for seq in (now + 25 * hour, 2**53, -(2**53), 2**60, -(2**63)):
        code, message = await memory.error(
            "remember", records=[{"content": "x", "seq": now}, {"content": "y", "seq": seq}], transfer=True
        )
        assert (code, "records[1].seq" in message) == (-32602, True)
    for at in (created_at_of(now + 25 * hour), "9999-12-31T23:59:59.999Z", "1684-01-01T00:00:00.000Z"):
        for seq in ({}, {"seq": now}):
            code, message = await memory.error(
                "remember", records=[{"content": "x", "created_at": at, **seq}], transfer=True
            )
            assert (code, "records[0].created_at" in message) == (-32602, True)
    assert await memory.contents() == []
    near = {"content": "x", "seq": now + 23 * hour, "created_at": created_at_of(now + 23 * hour)}
    old = {"content": "old", "seq": -(2**53) + 1, "created_at": "1700-01-01T00:00:00.000Z"}
    await memory.remember(near, old, transfer=True)
    assert await memory.contents() == ["old", "x"]
    # What a plain write says of it is the client's business, as before.
    await memory.remember({"content": "plain", "created_at": "9999-12-31T23:59:59.999Z"})


async def test_what_a_model_saw_is_kept_and_listed_no_more(memory: Any) -> None:
    await memory.remember(
        {"id": "a", "content": "a"}, {"id": "b", "content": "b"}, {"id": "c", "content": " "}
    )
    waiting = (await memory.ok("list", without="m"))["entries"]
    assert [entry["id"] for entry in waiting] == ["a", "b"]
    seen = [
        {
            "id": "a",
            "etag": waiting[0]["etag"],
            "embedding": [0.5, 1],
            "embedding_model": "m",
            "features": "f",
        },
        {"id": "b", "etag": "stale", "embedding": [0.5, 1], "embedding_model": "m"},
    ]
    assert (await memory.ok("embed", records=seen))["outcomes"] == {"a": True, "b": False}
    (held,) = (await memory.ok("read", ids=["a"]))["records"]
    assert held.items() >= {"embedding": [0.5, 1.0], "embedding_model": "m", "features": "f"}.items()
    for without, left in (("m", ["b"]), ("other", ["a", "b"]), ("", ["b"])):
        assert [e["id"] for e in (await memory.ok("list", without=without))["entries"]] == left
    page = await memory.ok("list", without="other", limit=1)
    assert ([e["id"] for e in page["entries"]], page["more"]) == (["a"], True)
    assert (await memory.ok("embed", records=[]))["outcomes"] == {}
    kinds = {e["kind"] for e in (await memory.ok("events", cursor=""))["events"]}
    assert kinds == {"written"}, "an embedding is no event"


SEEN = {"id": "a", "etag": "e", "embedding": [0.5], "embedding_model": "m"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 5),
        ("id", ""),
        ("etag", None),
        ("embedding", []),
        ("embedding", None),
        ("embedding", ["x"]),
        ("embedding", [1e300]),
        ("embedding", [0.0] * 4_001),
        ("embedding_model", None),
        ("embedding_model", ""),
        ("features", 5),
        ("features", "f" * 262_145),
        ("features", "\x00"),
        ("etag", "\x00"),
    ],
)
async def test_what_a_model_saw_is_checked(memory: Any, field: str, value: object) -> None:
    code, message = await memory.error("embed", records=[SEEN | {field: value}])
    assert code == -32602
    assert f"records[0].{field}" in message


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "records: is missing"),
        ({"records": "x"}, "records: expected an array"),
        ({"records": [5]}, "records[0]: expected an object"),
        ({"records": [SEEN, SEEN]}, "each id once"),
        ({"records": [SEEN, SEEN | {"id": "b", "embedding": [0.5, 1.0]}]}, "of one width"),
    ],
)
async def test_an_embedding_call_is_checked(memory: Any, params: Any, said: str) -> None:
    code, message = await memory.error("embed", **params)
    assert code == -32602
    assert said in message


async def test_without_is_the_name_of_a_model(memory: Any) -> None:
    for value in (5, ["m"], "m" * 513, "a\x00"):
        code, message = await memory.error("list", without=value)
        assert code == -32602
        assert "without" in message


async def test_who_may_not_see_a_record_may_not_embed_it(memory: Any) -> None:
    await memory.ok("remember", records=[{"id": "a", "content": "a", "owner": "ann"}])
    assert await memory.code("embed", records=[SEEN], owner="bob") == -32005
