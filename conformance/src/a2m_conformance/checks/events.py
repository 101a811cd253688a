"""The event log, polled."""

from a2m_conformance.check import check
from a2m_conformance.checks.tiers import writable_tiers
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object
from a2m_conformance.values import equal, fields, is_count, is_timestamp, only
from a2m_conformance.wire import Refusal

_MOST_WE_WRITE = 2_400


@check("EVENTS-01", phase="alone")
async def no_cursor_is_now(probe: Probe) -> None:
    if not probe.read_only:
        await probe.write("before")
    result = await probe.call("events")
    equal(result.get("events"), [], "events without a cursor")
    expect(result.get("cursor") is not None, "there is no cursor")


@check("EVENTS-02", phase="alone")
async def writes_are_logged(probe: Probe) -> None:
    cursor = await _head(probe)
    written = await probe.write("one", "two") + await probe.write("three")
    events = await _after(probe, cursor, "written")
    equal([event.get("id") for event in events], written, "the ids of written events")
    for event in events:
        expect(is_timestamp(event.get("at")), f"at is {event.get('at')!r}")


@check("EVENTS-03", phase="alone")
async def every_event_is_seen_once(probe: Probe) -> None:
    cursor = await _head(probe)
    written: list[str] = []
    seen: list[Json] = []
    for number in range(4):
        written += await probe.write(*(f"turn {number}.{n}" for n in range(3)))
        result = await probe.call("events", cursor=cursor, limit=2)
        seen += result["events"]
        cursor = result["cursor"]
    for _ in range(len(written) + 2):
        result = await probe.call("events", cursor=cursor, limit=2)
        seen += result["events"]
        cursor = result["cursor"]
    found = [event.get("id") for event in seen if event["kind"] == "written"]
    equal(found, written, "the ids of written events over several polls")


@check("EVENTS-04", phase="alone")
async def an_idle_poll_keeps_its_place(probe: Probe) -> None:
    cursor = await _head(probe)
    for _ in range(3):
        result = await probe.call("events", cursor=cursor, kinds=["written"])
        equal(result["events"], [], "events while nothing is written")
        expect(not result.get("reset"), "a cursor that was just issued was reset")
        cursor = result["cursor"]
    written = await probe.write("later")
    equal([event.get("id") for event in await _after(probe, cursor, "written")], written, "what came later")


@check("EVENTS-05", phase="alone")
async def the_limit_holds(probe: Probe) -> None:
    cursor = await _head(probe)
    await probe.write(*(f"turn {n}" for n in range(5)))
    result = await probe.call("events", cursor=cursor, limit=2, kinds=["written"])
    equal(len(result["events"]), 2, "events with a limit of 2")
    expect(result.get("more") is True, f"more is {result.get('more')!r} where 3 events are left")
    rest = await probe.call("events", cursor=result["cursor"], limit=50, kinds=["written"])
    equal(len(rest["events"]), 3, "the events that were left")
    expect(not rest.get("more"), "more is claimed where nothing is left")


@check("EVENTS-06", phase="alone")
async def kinds_filter(probe: Probe) -> None:
    cursor = await _head(probe)
    written = await probe.write("one", "two")
    await probe.call("forget", ids=written)
    result = await probe.call("events", cursor=cursor, kinds=["forgotten"])
    kinds = {event["kind"] for event in result["events"]}
    equal(sorted(kinds), ["forgotten"], "the kinds that were asked for")
    again = await probe.call("events", cursor=result["cursor"])
    left = [event for event in again["events"] if event["kind"] == "written"]
    expect(not left, "what was filtered is offered again")


@check("EVENTS-07", phase="alone")
async def forgets_are_logged(probe: Probe) -> None:
    written = await probe.write("one", "two", "three")
    cursor = await _head(probe)
    await probe.call("forget", ids=written)
    event = only(await _after(probe, cursor, "forgotten"), "forgotten events of one call")
    equal(event.get("count"), 3, "count")
    expect(is_timestamp(event.get("at")), f"at is {event.get('at')!r}")
    if "ids" in event:
        equal(sorted(event["ids"]), sorted(written), "the ids of the event")


@check("EVENTS-08", phase="alone")
async def retries_are_not_logged(probe: Probe) -> None:
    record = probe.record("once", id=f"{probe.mark}-once")
    await probe.write(record)
    cursor = await _head(probe)
    await probe.write(record)
    equal(await _after(probe, cursor, "written"), [], "events of a retry")
    await probe.write(record, "new")
    only(await _after(probe, cursor, "written"), "written events of a batch of which one record is new")


@check("EVENTS-09", phase="alone")
async def refusals_are_not_logged(probe: Probe) -> None:
    cursor = await _head(probe)
    attempts: list[tuple[str, Json]] = [
        ("remember", {"records": [probe.record("good"), {"role": "no content"}]}),
        ("remember", {"records": []}),
        ("forget", {}),
        ("forget", {"ids": "no list"}),
    ]
    for method, params in attempts:
        await probe.answer(method, params)
    equal(await _after(probe, cursor, "written"), [], "written events of a refused call")
    equal(await _after(probe, cursor, "forgotten"), [], "forgotten events of a refused call")


@check("EVENTS-10", phase="alone")
async def strange_cursors_reset(probe: Probe) -> None:
    for cursor in (f"never-{probe.mark}", "", "999999999999"):
        result = await probe.answer("events", {"cursor": cursor})
        if isinstance(result, Refusal):
            equal(result.code, -32602, "the refusal of a cursor that was never issued")
        else:
            equal(result.get("reset"), True, f"reset for the cursor {cursor!r}, which was never issued")


@check("EVENTS-11", phase="alone")
async def keyed_writes_are_logged(probe: Probe) -> None:
    key = f"{probe.mark}/fact"
    cursor = await _head(probe)
    (identifier,) = await probe.write(probe.record("old", key=key))
    await probe.write(probe.record("new", key=key))
    events = await _after(probe, cursor, "written")
    wanted = [{"id": identifier, "key": key, "revision": revision} for revision in (0, 1)]
    equal([fields(event, "id", "key", "revision") for event in events], wanted, "the written events")


@check("EVENTS-12", phase="alone")
async def promotions_are_logged(probe: Probe) -> None:
    source, target = (await writable_tiers(probe))[:2]
    written = await probe.write(*(probe.record(f"{n}", tier=source) for n in range(3)))
    cursor = await _head(probe)
    await probe.call("promote", ids=written, tier=target)
    event = only(await _after(probe, cursor, "promoted"), "promoted events of one call")
    equal(sorted(event.get("ids") or []), sorted(written), "the ids of the event")
    equal(event.get("tier"), target, "the tier of the event")
    for kind in ("written", "forgotten"):
        equal(await _after(probe, cursor, kind), [], f"{kind} events of a move")


@check("EVENTS-13", phase="alone")
async def consolidations_are_logged(probe: Probe) -> None:
    await probe.call("consolidate")
    cursor = await _head(probe)
    await probe.call("consolidate")
    events = await _after(probe, cursor, "consolidated")
    expect(events, "a consolidation that was asked for logged nothing")
    for event in events:
        for name in ("moved", "promoted", "dropped", "summarized"):
            expect(is_count(event.get(name)), f"{name} of a consolidated event is {event.get(name)!r}")


@check("EVENTS-14", phase="alone")
async def closes_are_logged(probe: Probe) -> None:
    await probe.write("turn")
    cursor = await _head(probe)
    await probe.call("session/close", session=probe.session)
    event = only(await _after(probe, cursor, "session_closed"), "session_closed events of one close")
    equal(event.get("session"), probe.session, "the session of the event")
    for kind in ("written", "forgotten"):
        equal(await _after(probe, cursor, kind), [], f"{kind} events of a close")


@check("EVENTS-15", phase="alone")
async def written_names_the_session(probe: Probe) -> None:
    cursor = await _head(probe)
    await probe.write("turn")
    event = only(await _after(probe, cursor, "written"), "written events of one record")
    equal(event.get("session"), probe.session, "the session of the event")


@check("EVENTS-16")
async def parameters_have_types(probe: Probe) -> None:
    for params in ({"limit": -1}, {"limit": "2"}, {"kinds": "written"}, {"kinds": [5]}):
        await probe.refused("events", params, -32602)


@check("EVENTS-17")
async def http_does_not_push(probe: Probe) -> None:
    events = probe.about.get("events")
    expect(is_object(events), f"events in describe is {events!r}")
    equal(events.get("push"), False, "push")
    await probe.refused("events/subscribe", {}, -32003)
    equal((await probe.call("events/unsubscribe")).get("subscribed"), False, "subscribed")


@check("EVENTS-18", phase="alone")
async def written_names_the_tier(probe: Probe) -> None:
    for tier in await writable_tiers(probe):
        cursor = await _head(probe)
        await probe.write(probe.record("placed", tier=tier))
        event = only(await _after(probe, cursor, "written"), "written events of one record")
        equal(event.get("tier"), tier, "the tier of the event")


@check("EVENTS-19", phase="alone", slow=True)
async def the_log_is_bounded(probe: Probe) -> None:
    size = min(200, probe.limits.get("max_records_per_call", 200))
    cursor = await _head(probe)
    written: list[str] = []
    while len(written) < _MOST_WE_WRITE:
        written += await probe.write(*("one of many" for _ in range(size)))
        result = await probe.call("events", cursor=cursor, limit=1)
        if result.get("reset"):
            break
    else:
        raise NotApplicable(f"the log holds more than {_MOST_WE_WRITE} events")
    seen: list[Json] = []
    while True:
        events = await probe.call("events", cursor=cursor, limit=500)
        seen += [event.get("id") for event in events["events"] if event["kind"] == "written"]
        cursor = events["cursor"]
        if not events["events"]:
            break
    equal(seen, written[-len(seen) :], "the events from the oldest that is held")


async def _head(probe: Probe) -> Json:
    return (await probe.call("events"))["cursor"]


async def _after(probe: Probe, cursor: Json, kind: str) -> list[Json]:
    found: list[Json] = []
    while True:
        result = await probe.call("events", cursor=cursor, kinds=[kind], limit=200)
        for event in result["events"]:
            equal(event.get("kind"), kind, "the kind of an event")
        found += result["events"]
        cursor = result["cursor"]
        if not result.get("more"):
            return found
