"""Owners."""

from a2m_conformance.check import check
from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object
from a2m_conformance.tables import WRONG_VALUES
from a2m_conformance.values import contents, equal, fields, ids
from a2m_conformance.wire import Refusal


@check("SCOPES-01")
async def owners_are_kept(probe: Probe) -> None:
    me, other = _owners(probe)
    await probe.write(probe.record(me, owner=me), probe.record(other, owner=other))
    for record in [*await probe.mine(owner=me), *await probe.mine(owner=other)]:
        equal(record.get("owner"), record["content"], "owner")


@check("SCOPES-02")
async def a_call_has_a_default_owner(probe: Probe) -> None:
    me, _ = _owners(probe)
    written = await probe.write("mine by default", owner=me)
    record = (await probe.mine(owner=me))[0]
    equal(fields(record, "id", "owner"), {"id": written[0], "owner": me}, "the record")


@check("SCOPES-03")
async def reads_are_scoped(probe: Probe) -> None:
    me, other = _owners(probe)
    word = probe.word()
    await probe.write(f"{word} mine", owner=me)
    await probe.write(f"{word} theirs", owner=other)
    equal(contents(await probe.mine(owner=me)), [f"{word} mine"], "my timeline")
    equal(contents(await probe.mine(owner=other)), [f"{word} theirs"], "their timeline")
    for query in (word, None):
        equal(contents(await probe.found(query, owner=me)), [f"{word} mine"], "what I recall")


@check("SCOPES-04")
async def forget_is_scoped(probe: Probe) -> None:
    me, other = _owners(probe)
    word = probe.word()
    theirs = await probe.write(f"{word} theirs", owner=other)
    for selector in ({"ids": theirs}, {"where": probe.mine_where}, {"query": word}):
        result = await probe.call("forget", owner=me, **selector)
        equal(result.get("forgotten"), 0, f"forgotten of another owner by {selector}")
    equal(ids(await probe.mine(owner=other)), theirs, "what the other has")


@check("SCOPES-05")
async def keys_are_scoped(probe: Probe) -> None:
    key = f"{probe.mark}/name"
    owners = _owners(probe)
    written = [await probe.write(probe.record(owner, key=key), owner=owner) for owner in owners]
    expect(written[0] != written[1], "one owner's key replaced another's record")
    for owner in owners:
        record = (await probe.call("fetch", key=key, owner=owner))["record"]
        equal(
            fields(record, "content", "revision"), {"content": owner, "revision": 0}, "the record at the key"
        )
    result = await probe.call("fetch", key=key, owner=f"third-{probe.mark}")
    equal(result.get("record"), None, "the key of an owner who has none")


@check("SCOPES-06")
async def lists_are_scoped(probe: Probe) -> None:
    me, other = _owners(probe)
    await probe.write("mine", owner=me)
    await probe.write("theirs", "and theirs", owner=other)
    for owner, wanted in ((me, [1]), (other, [2]), (f"third-{probe.mark}", [])):
        sessions = (await probe.call("session/list", owner=owner))["sessions"]
        shown = [entry["records"] for entry in sessions if entry.get("session") == probe.session]
        equal(shown, wanted, f"the session's records as {owner} sees them")


@check("SCOPES-07", phase="alone")
async def counts_are_scoped(probe: Probe) -> None:
    if not probe.tiers:
        raise NotApplicable("no tiers shown")
    me, other = _owners(probe)

    async def count(owner: str) -> int:
        tiers = (await probe.call("describe", owner=owner))["tiers"]
        return sum(tier["count"] for tier in tiers)

    nobody = f"third-{probe.mark}"
    pooled = await count(nobody)
    await probe.write("mine", owner=me)
    await probe.write("theirs", "and theirs", owner=other)
    for owner, wanted in ((me, 1), (other, 2), (nobody, 0)):
        equal(await count(owner) - pooled, wanted, f"the count for {owner} beside pooled records")


@check("SCOPES-08", phase="alone")
async def events_are_scoped(probe: Probe) -> None:
    me, other = _owners(probe)
    cursor = (await probe.call("events", owner=me))["cursor"]
    mine = await probe.write("mine", owner=me)
    theirs = await probe.write("theirs", owner=other)
    await probe.call("forget", ids=theirs, owner=other)
    events = (await probe.call("events", cursor=cursor, owner=me))["events"]
    written = [event.get("id") for event in events if event["kind"] == "written"]
    equal(written, mine, "the written events that I see")
    expect(all(event["kind"] != "forgotten" for event in events), "I see what another forgot")


@check("SCOPES-09")
async def owners_are_text(probe: Probe) -> None:
    for value in WRONG_VALUES["owner"]:
        await probe.refused("remember", {"records": [probe.record("bad", owner=value)]}, -32602)
        await probe.refused("remember", {"records": [probe.record("bad")], "owner": value}, -32602)
        await probe.refused("timeline", {"owner": value}, -32602)


@check("SCOPES-10")
async def summaries_are_scoped(probe: Probe) -> None:
    me, other = _owners(probe)
    theirs = await probe.write("theirs", owner=other)
    for selector in ({"ids": theirs}, {"where": probe.mine_where}):
        result = await probe.call("summarize", owner=me, **selector)
        equal(result.get("read"), 0, "records read of another owner")


@check("SCOPES-11")
async def close_is_scoped(probe: Probe) -> None:
    me, other = _owners(probe)
    await probe.write("mine", owner=me)
    await probe.write("theirs", owner=other)
    before = [(record["id"], record.get("tier")) for record in await probe.mine(owner=other)]
    await probe.call("session/close", session=probe.session, owner=me)
    after = [(record["id"], record.get("tier")) for record in await probe.mine(owner=other)]
    expect(after == before, f"another owner's records were {before} and are {after}")


@check("SCOPES-12")
async def no_scopes_without_authentication(probe: Probe) -> None:
    wire = HttpWire(probe.http.url)
    wire.client = probe.http.client
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": "memory/describe", "params": {}}
    response = await wire.post(message)
    if response.status_code == 401:
        raise NotApplicable("the server authenticates")
    expect(
        "scopes" not in response.json()["result"]["capabilities"],
        "scopes is declared to nobody in particular",
    )


@check("SCOPES-13")
async def a_credential_decides(probe: Probe) -> None:
    stranger = f"stranger-{probe.mark}"
    result = await probe.answer("remember", {"records": [probe.record("whose?")], "owner": stranger})
    if isinstance(result, Refusal):
        equal(result.code, -32005, "the refusal of another owner")
    else:
        for record in await probe.mine():
            expect(record.get("owner") != stranger, "the client's own word made the owner")
        await probe.call("forget", where=probe.mine_where)


@check("SCOPES-14")
async def principals_are_apart(probe: Probe) -> None:
    if probe.http.other_token is None:
        raise NotApplicable("no --other-token given")
    other = HttpWire(probe.http.url, probe.http.other_token)
    other.client = probe.http.client
    written = await probe.write("mine")
    for method in ("timeline", "recall"):
        result = await _ask(other, method, {"where": probe.mine_where})
        equal(result.get("records"), [], f"what another principal's {method} shows of mine")
    result = await _ask(other, "forget", {"ids": written})
    equal(result.get("forgotten"), 0, "forgotten by another principal")
    equal(ids(await probe.mine()), written, "what is left")


def _owners(probe: Probe) -> tuple[str, str]:
    return f"me-{probe.mark}", f"other-{probe.mark}"


async def _ask(wire: HttpWire, method: str, params: Json) -> dict[str, Json]:
    result = (await wire.request(f"memory/{method}", params)).get("result")
    return result if is_object(result) else {}
