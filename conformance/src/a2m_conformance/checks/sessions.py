"""Sessions."""

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object, part
from a2m_conformance.tables import WRONG_VALUES
from a2m_conformance.values import contents, equal, ids, is_count, is_timestamp


@check("SESSIONS-01")
async def sessions_are_kept(probe: Probe) -> None:
    names = [f"{probe.mark}/a b", f"{probe.mark}-é🧠", f"{probe.mark}:{{x}}*"]
    await probe.write(*(probe.record(name, session=name) for name in names))
    for record in await probe.mine():
        equal(record.get("session"), record["content"], "session")


@check("SESSIONS-02")
async def a_call_has_a_default_session(probe: Probe) -> None:
    first, own = f"default-{probe.mark}", f"own-{probe.mark}"
    bare = {"content": "bare", "metadata": probe.mine_where}
    await probe.write(bare, probe.record("own", session=own), session=first)
    found = {record["content"]: record.get("session") for record in await probe.mine()}
    equal(found, {"bare": first, "own": own}, "sessions")


@check("SESSIONS-03")
async def null_is_no_session(probe: Probe) -> None:
    bare = {"content": "bare", "metadata": probe.mine_where}
    await probe.write(bare, {**bare, "session": None}, "in a session")
    found = [record.get("session") for record in await probe.mine()]
    equal(sorted(map(str, found)), sorted(["None", "None", probe.session]), "sessions")
    equal(part(await _listed(probe, probe.session), "records"), 1, "records of the named session")
    expect(await _listed(probe, "null") is None, "a session called null is listed")
    equal(
        sorted(contents(await probe.mine(where={"session": None}))), ["bare", "bare"], "where session is null"
    )


@check("SESSIONS-04")
async def sessions_are_filtered(probe: Probe) -> None:
    names = [f"{probe.mark}-{name}" for name in "ab"]
    for number in range(6):
        await probe.write(probe.record(f"{number}", session=names[number % 2]))
    equal(contents(await probe.mine(where={"session": names[0]})), ["0", "2", "4"], "the first session")
    equal(contents(await probe.mine(where={"session": names})), list("012345"), "both sessions")
    result = await probe.call("timeline", where={"session": names[1]}, limit=2)
    equal(contents(result["records"]), ["3", "5"], "the newest of the second session")


@check("SESSIONS-05")
async def sessions_are_text(probe: Probe) -> None:
    for value in WRONG_VALUES["session"]:
        await probe.refused("remember", {"records": [probe.record("bad", session=value)]}, -32602)
        await probe.refused("remember", {"records": [probe.record("bad")], "session": value}, -32602)


@check("SESSIONS-06")
async def sessions_are_listed(probe: Probe) -> None:
    expect(await _listed(probe, probe.session) is None, "a session without records is listed")
    await probe.write("one", "two")
    await probe.write("three")
    equal(part(await _listed(probe, probe.session), "records"), 3, "records of the session")


@check("SESSIONS-07")
async def sessions_have_times(probe: Probe) -> None:
    await probe.write_each(["one", "two"])
    session: Json = await _listed(probe, probe.session)
    expect(session, "the session is not listed")
    times = [session[name] for name in ("opened_at", "touched_at") if name in session]
    if not times:
        raise NotApplicable("no times of sessions are shown")
    expect(all(map(is_timestamp, times)), f"times of a session: {times}")
    expect(times == sorted(times), f"a session was opened after it was touched: {times}")


@check("SESSIONS-08")
async def close_reports(probe: Probe) -> None:
    await probe.write("one", "two")
    result = await probe.call("session/close", session=probe.session)
    equal(result.get("closed"), probe.session, "closed")
    for name in ("flushed", "moved", "promoted", "dropped", "summarized"):
        expect(is_count(result.get(name)), f"{name} is {result.get(name)!r}")
    expect(is_object(result.get("counts")), f"counts is {result.get('counts')!r}")


@check("SESSIONS-09")
async def close_needs_a_session(probe: Probe) -> None:
    for params in ({}, {"session": ""}, {"session": None}, {"session": 5}):
        await probe.refused("session/close", params, -32602)


@check("SESSIONS-10")
async def unknown_sessions_are_closed(probe: Probe) -> None:
    result = await probe.call("session/close", session=f"never-{probe.mark}")
    equal(result.get("flushed"), 0, "flushed")
    expect(await _listed(probe, f"never-{probe.mark}") is None, "closing an unknown session made it")


@check("SESSIONS-11")
async def close_destroys_nothing(probe: Probe) -> None:
    written = await probe.write(*(f"turn {number}" for number in range(5)))
    await probe.call("session/close", session=probe.session)
    found = await probe.mine(where={"session": probe.session})
    equal(ids(found), written, "the session's records")
    result = await probe.call("timeline", where={"session": probe.session})
    equal(ids(result["records"]), written, "the session's timeline")


@check("SESSIONS-12")
async def close_empties_working(probe: Probe) -> None:
    tier = _of_kind(probe, "working")
    if not tier.get("spill_to"):
        raise NotApplicable("the working tier has no tier below")
    await probe.write(*(probe.record(f"turn {number}", tier=tier["name"]) for number in range(4)))
    result = await probe.call("session/close", session=probe.session)
    equal(result.get("flushed"), 4, "flushed")
    expect(not await probe.mine(tier=tier["name"]), "the closed session has records in working")


@check("SESSIONS-13")
async def other_sessions_stay(probe: Probe) -> None:
    other = f"other-{probe.mark}"
    await probe.write("mine")
    await probe.write(*(probe.record(f"turn {number}", session=other) for number in range(3)))
    before = [(record["id"], record.get("tier")) for record in await probe.mine(where={"session": other})]
    await probe.call("session/close", session=probe.session)
    after = [(record["id"], record.get("tier")) for record in await probe.mine(where={"session": other})]
    expect(after == before, f"another session's records were {before} and are {after}")


@check("SESSIONS-14")
async def procedures_stay(probe: Probe) -> None:
    tier = _of_kind(probe, "procedural")
    (identifier,) = await probe.write(probe.record("how to do it", tier=tier["name"]))
    await probe.call("session/close", session=probe.session)
    equal(part(await probe.read(identifier), "tier"), tier["name"], "the tier of a procedure")


@check("SESSIONS-15")
async def without_a_tier_below_records_stay(probe: Probe) -> None:
    if any(part(tier, "spill_to") for tier in probe.about.get("tiers", [])):
        raise NotApplicable("there is a tier below")
    written = await probe.write("one", "two")
    result = await probe.call("session/close", session=probe.session)
    equal(result.get("flushed"), 0, "flushed")
    equal(ids(await probe.mine()), written, "the session's records")


@check("SESSIONS-16")
async def sessions_go_on(probe: Probe) -> None:
    written = await probe.write("before")
    await probe.call("session/close", session=probe.session)
    await probe.call("session/close", session=probe.session)
    written += await probe.write("after")
    equal(ids(await probe.mine()), written, "the session's timeline")
    equal(part(await _listed(probe, probe.session), "records"), 2, "records of the session")


def _of_kind(probe: Probe, kind: str) -> Json:
    for tier in probe.about["tiers"]:
        if tier.get("kind") == kind:
            return tier
    raise NotApplicable(f"no {kind} tier")


async def _listed(probe: Probe, session: str) -> Json | None:
    sessions = (await probe.call("session/list"))["sessions"]
    found = [entry for entry in sessions if entry.get("session") == session]
    expect(len(found) < 2, f"the session {session} is listed {len(found)} times")
    return found[0] if found else None
