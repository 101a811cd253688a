from typing import Any

import pytest

from a2m_protocol.types import Capability
from a2m_server.identity import Role, principal


async def test_one_id_a_record_in_order(memory: Any) -> None:
    ids = await memory.remember(
        {"content": "a", "id": "one"}, {"content": "b"}, {"content": "c", "id": "three"}
    )
    assert ids[0] == "one"
    assert ids[2] == "three"
    assert len(set(ids)) == 3
    assert [r["id"] for r in (await memory.ok("timeline"))["records"]] == ids


async def test_a_record_comes_back_with_what_was_written(memory: Any) -> None:
    record = {
        "id": "r",
        "content": " žluťoučký\n🐎 ",
        "role": "user",
        "metadata": {"a.b": [1, -0.0, 2**70, None, {"x": "\u2028"}], "": True},
        "group": "g",
        "session": "s",
        "owner": "ann",
        "key": "k/1",
        "uri": "file:///x",
        "media_type": "text/plain",
        "salience": 2.5,
    }
    await memory.remember(record)
    (held,) = (await memory.ok("timeline"))["records"]
    assert held.items() >= record.items()
    assert held["revision"] == 0
    assert "tier" not in held
    assert "embedding" not in held


async def test_the_call_gives_defaults_and_a_record_its_own(memory: Any) -> None:
    await memory.remember(
        {"content": "default"},
        {"content": "own", "session": "t", "owner": "bob"},
        {"content": "none", "session": None, "owner": None},
        session="s",
        owner="ann",
    )
    held = (await memory.ok("timeline"))["records"]
    assert [(r.get("session"), r.get("owner")) for r in held] == [("s", "ann"), ("t", "bob"), (None, None)]


@pytest.mark.parametrize("records", [None, [], {}, "x", 5, [None], ["x"], [[]]])
async def test_records_are_an_array_of_objects(memory: Any, records: object) -> None:
    assert await memory.code("remember", records=records) == -32602


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", 5),
        ("content", None),
        ("content", "\x00"),
        ("content", "\ud800"),
        ("id", 5),
        ("id", ""),
        ("id", "x" * 513),
        ("id", "\x00"),
        ("role", 5),
        ("metadata", []),
        ("metadata", "x"),
        ("metadata", {"a": "\x00"}),
        ("metadata", {"\ud800": 1}),
        ("group", False),
        ("session", 5),
        ("owner", 5),
        ("owner", ""),
        ("key", {}),
        ("key", ""),
        ("uri", 5),
        ("media_type", 5),
        ("salience", "1"),
        ("salience", True),
        ("embedding", "x"),
        ("embedding", []),
        ("embedding", ["1"]),
        ("embedding", [True]),
        ("embedding", [1e39]),
        ("created_at", 5),
        ("created_at", "yesterday"),
        ("accessed_at", 5),
        ("access_count", "1"),
        ("revision", 1.5),
    ],
)
async def test_a_field_of_a_wrong_type_refuses_the_whole_batch(
    memory: Any, field: str, value: object
) -> None:
    records = [{"content": "good"}, {"content": "bad", field: value}]
    code, message = await memory.error("remember", records=records)
    assert code == -32602
    assert message.startswith(f"records[1].{field}")
    assert await memory.contents() == []


async def test_content_may_be_left_out_beside_a_uri_alone(memory: Any) -> None:
    await memory.remember({"uri": "https://example.org/x"})
    assert (await memory.ok("timeline"))["records"][0]["content"] == ""
    assert await memory.code("remember", records=[{"role": "user"}]) == -32602
    assert await memory.code("remember", records=[{"uri": None}]) == -32602
    assert await memory.code("remember", records=[{"uri": "x", "content": None}]) == -32602


async def test_what_the_server_assigns_is_not_the_clients_to_set(memory: Any) -> None:
    await memory.remember(
        {
            "content": "x",
            "key": "k",
            "created_at": "2001-01-01T00:00:00Z",
            "accessed_at": "2001-01-01T00:00:00Z",
            "access_count": 9,
            "revision": 9,
            "seq": "any",
            "moves": -1,
            "status": "odd",
            "etag": 5,
            "score": {},
        }
    )
    (held,) = (await memory.ok("timeline"))["records"]
    assert held["created_at"] > "2020"
    assert (held["access_count"], held["revision"]) == (0, 0)
    assert not {"accessed_at", "moves", "status", "score"} & held.keys()


async def test_a_provenance_says_who_and_how_and_the_client_its_source(connect: Any, memory: Any) -> None:
    ann = principal("ann-laptop", "ann", frozenset({Role.AGENT}), (), pooled=True)
    client = connect(to=memory, caller=ann)
    client.peer.client = "notebook/2"
    await client.remember(
        {"content": "x", "provenance": {"source": "chat", "principal": "root", "at": "2020-01-01T00:00:00Z"}},
        {"content": "y", "provenance": "odd", "features": 5, "embedding_model": 5},
        {"content": "z", "provenance": {"derived_from": ["a", "b"], "method": "magic"}},
        {"content": "w", "provenance": {"source": "chat", "derived_from": None}},
    )
    told = [r["provenance"] for r in (await client.ok("timeline"))["records"]]
    assert all(one.pop("at") > "2026" for one in told)
    asserted = {"principal": "ann-laptop", "authority": "agent", "method": "remember", "client": "notebook/2"}
    assert told == [
        asserted | {"source": "chat"},
        asserted,
        asserted | {"derived_from": ["a", "b"]},
        asserted | {"source": "chat"},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"source": ""},
        {"source": 1},
        {"source": "x" * 600},
        {"source": "a\x00b"},
        {"derived_from": []},
        {"derived_from": "x"},
        {"derived_from": [1]},
        {"derived_from": ["x" * 600]},
        {"derived_from": ["x"] * 1_001},
        {"source": "web", "derived_from": [""]},
    ],
)
async def test_a_source_that_is_none_is_refused_rather_than_lost(memory: Any, part: Any) -> None:
    code, message = await memory.error("remember", records=[{"content": "x", "provenance": part}])
    assert code == -32602
    assert "records[0].provenance" in message
    assert await memory.contents() == []


async def test_a_rewritten_fact_says_who_rewrote_it(connect: Any, memory: Any) -> None:
    await memory.remember({"content": "x", "key": "k", "owner": "ann", "provenance": {"source": "mail"}})
    ann = connect(to=memory, caller=principal("p", "ann", frozenset({Role.AGENT}), (), pooled=True))
    await ann.remember({"content": "y", "key": "k"})
    record = (await ann.ok("fetch", key="k"))["record"]
    assert record["provenance"]["principal"] == "p"
    assert "source" not in record["provenance"]


async def test_what_a_router_passes_on_stays_as_it_was(memory: Any) -> None:
    told = {
        "source": "s",
        "principal": "p",
        "method": "remember",
        "client": "c",
        "at": "2026-01-01T00:00:00.000Z",
    }
    await memory.remember({"content": "x", "provenance": told})
    assert [r["provenance"] for r in (await memory.ok("timeline"))["records"]] == [told]


async def test_fields_of_undeclared_capabilities_are_dropped_whatever_they_hold(varied: Any) -> None:
    core = varied(capabilities=frozenset({Capability.CORE}))
    odd = {"owner": 1, "session": 2, "key": 3, "salience": "x", "embedding": "x", "uri": 5, "media_type": []}
    await core.ok("remember", records=[{"content": "x", **odd}], session=5, owner=6)
    (held,) = (await core.ok("timeline"))["records"]
    assert not odd.keys() & held.keys()
    assert "access_count" not in held


async def test_a_uri_excuses_no_content_where_it_is_not_declared(varied: Any) -> None:
    core = varied(capabilities=frozenset({Capability.CORE}))
    assert await core.code("remember", records=[{"uri": "https://example.org"}]) == -32602


@pytest.mark.parametrize("tier", ["working", "x", 5])
async def test_a_placement_without_tiers_is_not_dropped(memory: Any, tier: object) -> None:
    assert await memory.code("remember", records=[{"content": "x", "tier": tier}]) == -32003
    await memory.remember({"content": "x", "tier": None})


async def test_writing_an_id_again_changes_nothing(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "first"}, {"id": "a", "content": "second"})
    assert await memory.remember({"id": "a", "content": "third"}) == ["a"]
    assert await memory.contents() == ["first"]


async def test_an_occupied_key_is_replaced_and_the_retry_is_not_a_revision(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "old", "key": "k"})
    assert await memory.remember({"id": "b", "content": "new", "key": "k"}) == ["a"]
    assert await memory.remember({"id": "b", "content": "new", "key": "k"}) == ["a"]
    record = (await memory.ok("fetch", key="k"))["record"]
    assert (record["id"], record["content"], record["revision"]) == ("a", "new", 1)


async def test_fetch_answers_null_for_a_free_key(memory: Any) -> None:
    assert await memory.ok("fetch", key="free") == {"record": None}
    for key in (None, "", 5, []):
        assert await memory.code("fetch", key=key) == -32602


async def test_reinforcing_adds_exactly_and_counts_an_id_once(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "x", "salience": 0.5})
    assert await memory.ok("reinforce", ids=["a", "a", "none"], amount=-0.25) == {"reinforced": 1}
    assert (await memory.ok("timeline"))["records"][0]["salience"] == 0.25
    assert await memory.ok("reinforce", ids=[]) == {"reinforced": 0}
    for params in (
        {},
        {"ids": "a"},
        {"ids": [1]},
        {"ids": ["a"], "amount": "1"},
        {"ids": ["a"], "amount": True},
    ):
        assert await memory.code("reinforce", **params) == -32602


async def test_forgetting_is_by_all_selectors_together(memory: Any) -> None:
    await memory.remember(
        {"id": "a", "content": "green tea", "role": "user", "key": "x/1"},
        {"id": "b", "content": "black tea", "role": "user", "key": "x/2"},
        {"id": "c", "content": "green tea", "role": "tool", "key": "xy"},
    )
    assert (await memory.ok("forget", query="green tea", where={"role": "tool"}, ids=["a"]))["forgotten"] == 0
    assert (await memory.ok("forget", query="tea", key_prefix="x/", where={"role": "user"}, ids=["a", "c"]))[
        "ids"
    ] == ["a"]
    assert await memory.contents() == ["black tea", "green tea"]


async def test_forgetting_needs_a_selector_that_is_not_empty(memory: Any) -> None:
    await memory.remember({"content": "x", "key": "k"})
    for params in (
        {},
        {"owner": "ann"},
        {"query": ""},
        {"query": "  "},
        {"where": {}},
        {"key_prefix": ""},
        {"key_prefix": "//"},
        {"query": "x " * 500_001},
        {"ids": None, "where": {"role": None}},
        {"where": None, "query": "x"},
        {"query": None, "where": {"role": None}},
        {"ids": "a"},
        {"ids": [1]},
        {"query": 5},
        {"where": []},
        {"where": {"role": {"like": "x"}}},
        {"key_prefix": 5},
        {"ids": ["\x00"]},
        {"query": "\ud800"},
    ):
        assert await memory.code("forget", **params) == -32602, params
    assert await memory.contents() == ["x"]


async def test_no_ids_and_no_words_select_nothing(memory: Any) -> None:
    await memory.remember({"content": "x"})
    for params in ({"ids": []}, {"ids": [], "where": {"role": None}}, {"query": "!?"}):
        assert (await memory.ok("forget", **params))["forgotten"] == 0
    assert await memory.contents() == ["x"]


async def test_a_filter_of_an_undeclared_capability_is_not_dropped(varied: Any) -> None:
    core = varied(capabilities=frozenset({Capability.CORE}))
    await core.remember({"content": "x"})
    for params in ({"key_prefix": "k"}, {"tier": "t"}, {"ids": [], "key_prefix": 5}):
        assert await core.code("forget", **params) == -32003
        assert await core.code("timeline", **params) == -32003
        assert await core.code("recall", **params) == -32003
    assert await core.code("recall", embedding=[1.0]) == -32003
    assert await core.contents() == ["x"]
