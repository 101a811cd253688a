"""memory/summarize."""

from a2m_conformance.check import check
from a2m_conformance.checks.tiers import writable_tiers
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object, part
from a2m_conformance.values import equal, fields, ids, is_count

_TURNS = (
    "Ada booked the flight to Lund for the second of May.",
    "The hotel is near the station and costs ninety euros a night.",
    "She prefers the early train and a window seat.",
    "Her talk is on analytical engines, at ten o'clock.",
)


@check("SUMMARIZE-01")
async def the_model_is_named(probe: Probe) -> None:
    about = probe.about.get("summarize")
    expect(is_object(about), f"summarize in describe is {about!r}")
    model = about.get("model", 0)
    expect(model is None or isinstance(model, str), f"model is {model!r}")


@check("SUMMARIZE-02")
async def a_selector_is_required(probe: Probe) -> None:
    for params in ({}, {"limit": 3}):
        await probe.refused("summarize", params, -32602)


@check("SUMMARIZE-03")
async def nothing_gives_nothing(probe: Probe) -> None:
    nothing = probe.word()
    selectors: list[dict[str, Json]] = [
        {"ids": [nothing]},
        {"ids": []},
        {"query": nothing},
        {"where": {"id": nothing}},
    ]
    for selector in selectors:
        result = await probe.call("summarize", **selector)
        wanted: dict[str, Json] = {"records": [], "read": 0, "written": 0}
        equal(fields(result, *wanted), wanted, f"the summary of {selector}")


@check("SUMMARIZE-04")
async def it_reports(probe: Probe) -> None:
    written = await probe.write(*_TURNS)
    result = await probe.call("summarize", ids=written)
    equal(result.get("read"), len(_TURNS), "read")
    expect(is_count(result.get("written")), f"written is {result.get('written')!r}")
    equal(len(result.get("records")), result["written"], "the records that were written")
    await _drop(probe, result)


@check("SUMMARIZE-05")
async def sources_stay(probe: Probe) -> None:
    written = await probe.write(*_TURNS)
    names = ("id", "content", "created_at", "metadata", "session")
    before = {record["id"]: fields(record, *names) for record in await probe.mine()}
    result = await probe.call("summarize", where=probe.mine_where)
    after = {record["id"]: fields(record, *names) for record in await probe.mine()}
    for identifier in written:
        equal(after.get(identifier), before[identifier], "a source after it was summarized")
    await _drop(probe, result)


@check("SUMMARIZE-06")
async def summaries_are_records(probe: Probe) -> None:
    written = await probe.write(*_TURNS)
    result = await _summary(probe, ids=written)
    for record in result["records"]:
        expect(record["id"] not in written, "a summary has the id of a source")
        kept = await probe.read(record["id"])
        equal(part(kept, "content"), record["content"], "the content of a summary that is read again")
    forgotten = await probe.call("forget", ids=ids(result["records"]))
    equal(forgotten.get("forgotten"), result["written"], "summaries forgotten")


@check("SUMMARIZE-07")
async def summaries_replace_at_their_key(probe: Probe) -> None:
    key = f"{probe.mark}/summary"
    written = await probe.write(*_TURNS)
    first = await _summary(probe, ids=written[:2], key=key)
    second = await _summary(probe, ids=written, key=key)
    record = (await probe.call("fetch", key=key))["record"]
    await _drop(probe, second)
    equal(ids(second["records"]), ids(first["records"]), "the id of the second summary")
    expect(record, "there is no summary at its key")
    wanted = {"content": second["records"][0]["content"], "revision": 1}
    equal(fields(record, *wanted), wanted, "the record at the key")


@check("SUMMARIZE-08")
async def into_is_the_destination(probe: Probe) -> None:
    source, target = (await writable_tiers(probe))[:2]
    await probe.write(*(probe.record(turn, tier=source) for turn in _TURNS))
    await probe.write(probe.record("elsewhere", tier=target))
    result = await _summary(probe, tier=source, where=probe.mine_where, into=target)
    kept = [part(await probe.read(identifier), "tier") for identifier in ids(result["records"])]
    await _drop(probe, result)
    equal(result["read"], len(_TURNS), "read in the source tier alone")
    equal(kept, [target] * result["written"], "the tiers of the summaries")


@check("SUMMARIZE-09")
async def a_query_needs_all_its_words(probe: Probe) -> None:
    first, second = probe.word(), probe.word()
    await probe.write(f"{first} alone", f"{second} alone", f"{second} and {first} meet", "neither of them")
    result = await probe.call("summarize", query=f"{first} {second}")
    await _drop(probe, result)
    equal(result.get("read"), 1, "read by two words that one record holds")


@check("SUMMARIZE-10")
async def prefixes_select(probe: Probe) -> None:
    await probe.write(*(probe.record(turn, key=f"{probe.mark}/trip/{n}") for n, turn in enumerate(_TURNS)))
    await probe.write(probe.record("elsewhere", key=f"{probe.mark}/tripod"))
    result = await probe.call("summarize", key_prefix=f"{probe.mark}/trip")
    await _drop(probe, result)
    equal(result.get("read"), len(_TURNS), "read beneath the prefix")


async def _summary(probe: Probe, **params: Json) -> Json:
    result = await probe.call("summarize", **params)
    if not result["written"]:
        raise NotApplicable("the server declined to summarize")
    return result


async def _drop(probe: Probe, result: Json) -> None:
    await probe.call("forget", ids=ids(result["records"]))
