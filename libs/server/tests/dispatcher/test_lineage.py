import dataclasses
from typing import Any

import pytest

from a2m_protocol.errors import after_forgetting, unavailable
from a2m_server import origins
from a2m_server.auditing import entry_of
from a2m_server.identity import LOOPBACK
from a2m_server.memory import SEARCHING, MemoryTier
from a2m_server.methods import lineage
from a2m_server.values import Filter, Forgotten, StoreInfo


class Lineage(MemoryTier):
    rewritten = False

    async def info(self) -> StoreInfo:
        return dataclasses.replace(await super().info(), extensions=SEARCHING | {"trace", "purge"})


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


async def provenance(memory: Any, record_id: str) -> Any:
    return (await memory.ok("trace", id=record_id))["record"]["provenance"]


async def test_what_was_derived_names_its_sources_and_what_stands_between(memory: Any) -> None:
    ids = await chain(memory)
    first = await provenance(memory, ids["first"])
    assert (first["origins"], first.get("ancestors")) == (["mail", "web"], None)
    second = await provenance(memory, ids["second"])
    assert (second["origins"], second["ancestors"]) == (["mail", "web"], [ids["mail"], ids["web"]])
    (third,) = await memory.remember(
        {"content": "so", "provenance": {"source": "me", "derived_from": [ids["second"], "unknown"]}}
    )
    told = await provenance(memory, third)
    assert (told["source"], told["origins"]) == ("me", ["mail", "web"])
    assert told["ancestors"] == [ids["first"], ids["mail"], ids["web"]]
    found = await memory.ok("timeline", where={"provenance.origins": "mail"})
    assert {r["id"] for r in found["records"]} == {ids["first"], ids["second"], third}


async def test_what_was_derived_is_purged_when_its_source_is_gone_already(memory: Any) -> None:
    ids = await chain(memory)
    await memory.ok("forget", ids=[ids["mail"], ids["first"]])
    planned = await memory.ok("purge", source="mail", dry=True)
    assert planned == {"source": 0, "derived": 1, "ids": [ids["second"]]}
    done = await memory.ok("purge", source="mail")
    assert (done["derived"], done["forgotten"], done["more"]) == (1, 1, False)
    assert {r["id"] for r in (await memory.ok("timeline"))["records"]} == {ids["web"], ids["other"]}


async def test_a_trace_finds_what_lies_beyond_what_is_gone(memory: Any) -> None:
    ids = await chain(memory)
    await memory.ok("forget", ids=[ids["first"]])
    assert depths((await memory.ok("trace", id=ids["mail"]))["derived"]) == {ids["second"]: 2}
    told = await memory.ok("trace", id=ids["second"])
    assert depths(told["sources"]) == {ids["first"]: 1, ids["mail"]: 2, ids["web"]: 2}
    assert {"id": ids["first"], "depth": 1, "gone": True} in told["sources"]


async def test_a_purge_since_a_time_spares_what_came_of_older_records_that_are_there(memory: Any) -> None:
    older = {"content": "old", "provenance": {"source": "mail", "at": "2020-01-01T00:00:00.000Z"}}
    kept, lost = await memory.remember(older, older)
    spared, bereft = await memory.remember(
        {"content": "of what is there", "provenance": {"derived_from": [kept]}},
        {"content": "of what is gone", "provenance": {"derived_from": [lost]}},
    )
    await memory.ok("forget", ids=[lost])
    await memory.ok("purge", source="mail", since="2021-01-01T00:00:00Z")
    assert {r["id"] for r in (await memory.ok("timeline"))["records"]} == {kept, spared}
    assert bereft not in str(await memory.ok("timeline"))


async def test_orphans_are_purged_step_by_step(memory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(lineage, "STEP", 2)
    (mail,) = await memory.remember({"content": "x", "provenance": {"source": "mail"}})
    for n in range(3):
        await memory.remember({"content": f"seen {n}", "provenance": {"derived_from": [mail]}})
    await memory.ok("forget", ids=[mail])
    steps = [await memory.ok("purge", source="mail") for _ in range(2)]
    assert [(step["forgotten"], step["more"]) for step in steps] == [(2, True), (1, False)]


async def test_only_who_is_trusted_says_what_stands_behind_a_record(memory: Any, connect: Any) -> None:
    forged = {"origins": ["mail"], "ancestors": ["x"], "principal": "root", "source": "web"}
    stranger = connect(to=memory, caller=LOOPBACK)
    (mine,) = await stranger.remember({"content": "mine", "provenance": forged})
    told = await provenance(memory, mine)
    assert "origins" not in told
    assert "ancestors" not in told
    (passed,) = await memory.remember(
        {"content": "passed on", "provenance": {**forged, "at": "2026-01-01T00:00:00.000Z"}}
    )
    assert (await provenance(memory, passed))["origins"] == ["mail"]


async def test_what_a_caller_may_not_see_lends_it_no_origins(memory: Any, connect: Any) -> None:
    (hers,) = await memory.remember({"content": "x", "owner": "ann", "provenance": {"source": "secret"}})
    stranger = connect(to=memory, caller=LOOPBACK)
    (mine,) = await stranger.remember({"content": "mine", "provenance": {"derived_from": [hers]}})
    assert "secret" not in str(await stranger.ok("trace", id=mine))
    assert "origins" not in await provenance(memory, mine)


async def test_more_sources_than_can_be_kept_are_refused(memory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(origins, "MAX_SOURCES", 2)
    ids = await memory.remember(
        *({"content": f"{n}", "provenance": {"source": f"source {n}"}} for n in range(3))
    )
    code, message = await memory.error(
        "remember", records=[{"content": "x", "provenance": {"derived_from": ids}}]
    )
    assert code == -32006
    assert "at most 2" in message


async def test_a_purge_leaves_what_was_rewritten_from_elsewhere_meanwhile(connect: Any) -> None:
    class Busy(Lineage):
        """Somebody rewrites the facts once a purge has listed them."""

        async def forget(self, selected: Filter) -> Forgotten:
            if not self.rewritten:
                self.rewritten = True
                for key in ("pump", "valve"):
                    await memory.remember({"content": "from the manual", "key": key})
            return await super().forget(selected)

    store = Busy()
    memory = connect(store)
    (pump,) = await memory.remember({"content": "a", "key": "pump", "provenance": {"source": "mail"}})
    await memory.remember({"content": "b", "key": "valve", "provenance": {"derived_from": [pump]}})
    await memory.remember({"content": "c", "provenance": {"derived_from": [pump]}})
    done = await memory.ok("purge", source="mail")
    assert (done["forgotten"], done["more"]) == (1, False)
    assert await memory.contents() == ["from the manual"] * 2


async def test_what_a_forget_removed_before_it_failed_is_told(connect: Any) -> None:
    class Failing(Lineage):
        async def forget(self, selected: Filter) -> Forgotten:
            done = await super().forget(selected)
            raise after_forgetting(unavailable("a tier", "it was switched off"), done.ids, ["u"])

    memory = connect(Failing(), push=True)
    ids = await memory.remember({"content": "a", "provenance": {"source": "mail"}}, {"content": "b"})
    cursor = (await memory.ok("events"))["cursor"]
    for method, params in (("purge", {"source": "mail"}), ("forget", {"where": {"content": "b"}})):
        memory.peer.removed.clear()
        response = await memory.send(
            {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        )
        assert response["error"]["data"]["retryable"] is True
        line = entry_of({"method": f"memory/{method}", "params": params}, response, memory.peer)
        assert line is not None
        assert line["uncertain"] == ["u"]
        assert line["ids"] == [ids[method == "forget"]]
    told = (await memory.ok("events", cursor=cursor))["events"]
    assert [event["ids"] for event in told] == [[i] for i in ids]
