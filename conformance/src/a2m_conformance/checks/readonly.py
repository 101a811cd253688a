"""The profile of a server that takes no writes."""

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json
from a2m_conformance.values import equal, ids, is_ascending, is_number

_PARAMETERS: tuple[Json, ...] = (
    {},
    {"records": []},
    {"records": [{"content": "something"}]},
    {"records": [{"content": 5}]},
    {"records": [{"content": "placed", "tier": "nowhere"}]},
    {"records": "text", "ids": "text"},
    {"ids": []},
    {"ids": ["no such record"]},
    {"query": ""},
    {"where": {"role": {"$no_such": 1}}},
    {"where": {"a2m_check": "no such record"}},
)


@check("READONLY-01")
async def remember_is_refused(probe: Probe) -> None:
    for params in _PARAMETERS:
        await probe.refused("remember", params, -32004)


@check("READONLY-02")
async def forget_is_refused(probe: Probe) -> None:
    for params in _PARAMETERS:
        await probe.refused("forget", params, -32004)


@check("READONLY-03")
async def summarize_is_refused(probe: Probe) -> None:
    await probe.refused("summarize", {"query": "anything"}, -32004 if probe.has("summarize") else -32003)


@check("READONLY-04")
async def the_timeline_is_served(probe: Probe) -> None:
    records = (await probe.call("timeline", limit=50))["records"]
    expect(len(records) <= 50, f"{len(records)} records with a limit of 50")
    expect(is_ascending(record["created_at"] for record in records), "created_at does not ascend")
    newest = (await probe.call("timeline", limit=2))["records"]
    equal(ids(newest), ids(records)[-2:], "the newest two")


@check("READONLY-05")
async def recall_is_served(probe: Probe) -> None:
    records = (await probe.call("recall", limit=5))["records"]
    expect(len(records) <= 5, f"{len(records)} records with a limit of 5")
    scores = [record.get("score") for record in records]
    expect(all(map(is_number, scores)), f"a score is no number: {scores}")
    expect(is_ascending(reversed(scores)), f"the scores do not descend: {scores}")
    for record in records:
        found = (await probe.call("recall", where={"id": record["id"]}, limit=5))["records"]
        equal(ids(found), [record["id"]], "recall where id is one that was recalled")


@check("READONLY-06")
async def records_are_found_by_their_words(probe: Probe) -> None:
    records = (await probe.call("timeline", limit=5))["records"]
    if not records:
        raise NotApplicable("the server holds no record")
    for record in records:
        query = " ".join(record["content"].split()[:12])
        expect((await probe.call("recall", query=query))["records"], f"nothing is found for {query!r}")
