from typing import Any

import pytest

from a2m_server.identity import LOOPBACK
from a2m_server.memory import SEARCHING
from a2m_server.methods import lineage


@pytest.fixture
def memory(varied: Any) -> Any:
    return varied(extensions=SEARCHING | {"trace", "purge"})


async def chain(memory: Any) -> dict[str, str]:
    """Two sources, a summary of both, a summary of that, and what has nothing to do with them."""
    mail, web, other = await memory.remember(
        {"content": "The pump stops at noon.", "provenance": {"source": "mail"}},
        {"content": "The valve was opened on Monday.", "provenance": {"source": "web"}},
        {"content": "Lunch is at one.", "provenance": {"source": "chat"}},
    )
    (first,) = (await memory.ok("summarize", ids=[mail, web]))["records"]
    (second,) = (await memory.ok("summarize", ids=[first["id"]]))["records"]
    return {"mail": mail, "web": web, "other": other, "first": first["id"], "second": second["id"]}


def depths(told: list[Any]) -> dict[str, int]:
    return {one["id"]: one["depth"] for one in told}


async def test_a_trace_goes_both_ways_and_all_the_way(memory: Any) -> None:
    ids = await chain(memory)
    told = await memory.ok("trace", id=ids["first"])
    assert told["record"]["id"] == ids["first"]
    assert depths(told["sources"]) == {ids["mail"]: 1, ids["web"]: 1}
    assert depths(told["derived"]) == {ids["second"]: 1}
    assert depths((await memory.ok("trace", id=ids["second"]))["sources"]) == {
        ids["first"]: 1,
        ids["mail"]: 2,
        ids["web"]: 2,
    }
    assert depths((await memory.ok("trace", id=ids["mail"]))["derived"]) == {
        ids["first"]: 1,
        ids["second"]: 2,
    }
    alone = await memory.ok("trace", id=ids["other"])
    assert (alone["sources"], alone["derived"]) == ([], [])


async def test_a_trace_names_sources_that_are_no_more(memory: Any) -> None:
    ids = await chain(memory)
    await memory.ok("forget", ids=[ids["mail"]])
    told = await memory.ok("trace", id=ids["first"])
    assert {"id": ids["mail"], "depth": 1, "gone": True} in told["sources"]
    gone = await memory.ok("trace", id=ids["mail"])
    assert gone["record"] is None
    assert depths(gone["derived"]) == {ids["first"]: 1, ids["second"]: 2}


async def test_a_trace_shows_nothing_of_other_owners(memory: Any, connect: Any) -> None:
    theirs = await memory.remember({"content": "The pump.", "owner": "ann", "provenance": {"source": "mail"}})
    pooled = await memory.remember({"content": "Machines.", "provenance": {"derived_from": theirs}})
    hers = await memory.remember(
        {"content": "A pump.", "owner": "ann", "provenance": {"derived_from": pooled}}
    )
    stranger = connect(to=memory, caller=LOOPBACK)
    assert (await stranger.ok("trace", id=pooled[0]))["record"]["content"] == "Machines."
    for record_id in (*theirs, *pooled, *hers):
        told = await stranger.ok("trace", id=record_id)
        assert "ann" not in str(told)
        assert "pump" not in str(told)


async def test_a_purge_takes_a_source_and_all_that_came_of_it(memory: Any) -> None:
    ids = await chain(memory)
    planned = await memory.ok("purge", source="mail", dry=True)
    assert planned == {"source": 1, "derived": 2, "ids": [ids["second"], ids["first"], ids["mail"]]}
    assert len(await memory.contents()) == 5
    done = await memory.ok("purge", source="mail")
    assert (done["source"], done["derived"], done["forgotten"]) == (1, 2, 3)
    assert done["more"] is False
    left = {r["id"] for r in (await memory.ok("timeline"))["records"]}
    assert left == {ids["web"], ids["other"]}
    again = await memory.ok("purge", source="mail")
    assert again == {"source": 0, "derived": 0, "forgotten": 0, "tiers": {}, "more": False}


async def test_what_was_purged_does_not_come_back_in_a_transfer_that_is_late(memory: Any) -> None:
    await memory.remember({"id": "x", "content": "The pump.", "provenance": {"source": "mail"}})
    (record,) = (await memory.ok("read", ids=["x"]))["records"]
    await memory.ok("purge", source="mail")
    (written,) = (await memory.ok("remember", records=[record], transfer=True))["written"]
    assert (written["outcome"], written["reason"]) == ("refused", "forgotten")
    assert await memory.contents() == []


async def test_a_long_purge_goes_step_by_step(memory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(lineage, "STEP", 2)
    ids = await memory.remember(
        *({"content": f"{n} pumps", "provenance": {"source": "mail"}} for n in range(5))
    )
    for record_id in ids:
        await memory.remember({"content": "seen", "provenance": {"derived_from": [record_id]}})
    assert (await memory.ok("purge", source="mail", dry=True))["derived"] == 5
    steps = [await memory.ok("purge", source="mail") for _ in range(3)]
    assert [step["more"] for step in steps] == [True, True, False]
    assert [step["forgotten"] for step in steps] == [4, 4, 2]
    assert await memory.contents() == []


async def test_a_purge_since_a_time_keeps_what_was_written_before(memory: Any) -> None:
    (old,) = await memory.remember({"content": "old", "provenance": {"source": "mail"}})
    at = (await memory.ok("trace", id=old))["record"]["provenance"]["at"]
    later = at.replace(at[:4], str(int(at[:4]) + 1), 1)
    assert (await memory.ok("purge", source="mail", since=later))["forgotten"] == 0
    assert (await memory.ok("purge", source="mail", since=at))["forgotten"] == 1


@pytest.mark.parametrize(
    "params", [{}, {"source": ""}, {"source": 5}, {"source": "s", "since": "soon"}, {"source": "s", "dry": 1}]
)
async def test_a_purge_needs_a_source_and_a_time_that_is_one(memory: Any, params: Any) -> None:
    await memory.remember({"content": "x", "provenance": {"source": "s"}})
    assert await memory.code("purge", **params) == -32602
    assert len(await memory.contents()) == 1
