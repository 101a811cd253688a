"""The event log, pushed over the connection."""

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object, part
from a2m_conformance.values import equal, is_timestamp


@check("PUSH-01", phase="alone")
async def push_is_declared(probe: Probe) -> None:
    events = probe.about.get("events")
    expect(is_object(events), f"events in describe is {events!r}")
    expect(isinstance(events.get("push"), bool), f"push is {events.get('push')!r}")
    if not events["push"]:
        await probe.refused("events/subscribe", {}, -32003)


@check("PUSH-02", phase="alone")
async def events_are_pushed(probe: Probe) -> None:
    await _subscribe(probe)
    start = len(probe.stdio.notifications)
    written = await probe.write("one", "two")
    await probe.call("describe")
    pushed = probe.stdio.notifications[start:]
    await probe.call("events/unsubscribe")
    found: list[Json] = []
    for message in pushed:
        equal(message.get("method"), "memory/event", "the method of a notification")
        event = message["params"]
        expect(is_timestamp(event.get("at")), f"at is {event.get('at')!r}")
        if event.get("kind") == "written":
            found.append(event.get("id"))
    equal(found, written, "the ids of pushed written events, before the response of the next request")


@check("PUSH-03", phase="alone")
async def nothing_before_subscribing(probe: Probe) -> None:
    _pushing(probe)
    await probe.call("events/unsubscribe")
    start = len(probe.stdio.notifications)
    await probe.write("unseen")
    await _subscribe(probe)
    await probe.call("describe")
    pushed = [message["params"]["kind"] for message in probe.stdio.notifications[start:]]
    await probe.call("events/unsubscribe")
    expect("written" not in pushed, "what was written before subscribing was pushed")


@check("PUSH-04", phase="alone")
async def unsubscribe_always_answers(probe: Probe) -> None:
    for _ in range(2):
        equal((await probe.call("events/unsubscribe")).get("subscribed"), False, "subscribed")


@check("PUSH-05", phase="alone")
async def nothing_after_unsubscribing(probe: Probe) -> None:
    await _subscribe(probe)
    await probe.write("seen")
    await probe.call("events/unsubscribe")
    start = len(probe.stdio.notifications)
    await probe.write("unseen")
    await probe.call("describe")
    expect(len(probe.stdio.notifications) == start, "an event was pushed after unsubscribing")


@check("PUSH-06", phase="alone")
async def pushed_events_stay(probe: Probe) -> None:
    cursor = (await probe.call("events"))["cursor"]
    await _subscribe(probe)
    written = await probe.write("one", "two")
    await probe.call("events/unsubscribe")
    events = (await probe.call("events", cursor=cursor, kinds=["written"]))["events"]
    equal([event.get("id") for event in events], written, "the ids of polled written events")


@check("PUSH-07", phase="alone")
async def subscriptions_have_kinds(probe: Probe) -> None:
    await _subscribe(probe, kinds=["forgotten"])
    start = len(probe.stdio.notifications)
    written = await probe.write("one", "two")
    await probe.call("forget", ids=written)
    await probe.call("describe")
    pushed = [message["params"]["kind"] for message in probe.stdio.notifications[start:]]
    await probe.call("events/unsubscribe")
    equal(pushed, ["forgotten"], "the kinds that were pushed")


def _pushing(probe: Probe) -> None:
    if not part(probe.about.get("events"), "push"):
        raise NotApplicable("events are not pushed")


async def _subscribe(probe: Probe, **params: Json) -> None:
    _pushing(probe)
    equal((await probe.call("events/subscribe", **params)).get("subscribed"), True, "subscribed")
