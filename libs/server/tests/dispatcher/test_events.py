from typing import Any

import pytest

from a2m_server.events import EventLog, Kind, Subscription, consolidated, forgotten, session_closed, written
from a2m_server.identity import LOOPBACK
from a2m_server.values import EVERYONE, POOLED, Consolidated, Scope


def log(retained: int = 1024) -> EventLog:
    return EventLog(retained, clock=lambda: 1_700_000_000_000)


def did(moved: int, owner: str | None = None, dropped: int = 0) -> Consolidated:
    return Consolidated(
        moved={f"{owner} {n}": owner for n in range(moved)}, dropped={f"x{n}": owner for n in range(dropped)}
    )


def add(events: EventLog, *ids: str) -> None:
    for record_id in ids:
        events.add(written(record_id, None))


def ids(polled: Any) -> list[Any]:
    return [event["id"] for event in polled.events]


async def test_without_a_cursor_only_the_head_is_given(memory: Any) -> None:
    await memory.remember({"content": "before"})
    now = await memory.ok("events")
    assert now == {"events": [], "cursor": now["cursor"]}
    await memory.remember({"id": "after", "content": "x", "session": "s", "key": "k"})
    (event,) = (await memory.ok("events", cursor=now["cursor"]))["events"]
    at = event.pop("at")
    assert at.endswith("Z")
    assert event == {"kind": "written", "id": "after", "session": "s", "key": "k", "revision": 0}


async def test_only_what_a_write_changed_is_logged(memory: Any) -> None:
    cursor = (await memory.ok("events"))["cursor"]
    await memory.remember({"id": "a", "content": "x", "key": "k"}, {"id": "a", "content": "x"})
    await memory.remember({"id": "b", "content": "y", "key": "k"})
    await memory.code("remember", records=[{"content": "z"}, {"content": 5}])
    await memory.ok("forget", ids=["none"])
    await memory.ok("forget", ids=["a"])
    events = (await memory.ok("events", cursor=cursor))["events"]
    assert [(e["kind"], e.get("id"), e.get("revision"), e.get("count")) for e in events] == [
        ("written", "a", 0, None),
        ("written", "a", 1, None),
        ("forgotten", None, None, 1),
    ]


async def test_polls_see_every_event_once_and_in_order() -> None:
    events = log()
    cursor = (await events.poll(None, None, None, EVERYONE)).cursor
    add(events, *"abcde")
    seen: list[str] = []
    more = True
    while more:
        polled = await events.poll(cursor, 2, None, EVERYONE)
        assert not polled.reset
        seen += ids(polled)
        cursor, more = polled.cursor, polled.more
    assert seen == [*"abcde"]
    add(events, "f")
    assert ids(await events.poll(cursor, 2, None, EVERYONE)) == ["f"]


async def test_a_limit_that_is_just_met_leaves_no_more() -> None:
    events = log()
    cursor = (await events.poll(None, None, None, EVERYONE)).cursor
    add(events, *"ab")
    assert not (await events.poll(cursor, 2, None, EVERYONE)).more


async def test_kinds_that_were_filtered_are_not_offered_again() -> None:
    events = log()
    cursor = (await events.poll(None, None, None, EVERYONE)).cursor
    add(events, "a")
    events.add(session_closed("s", [None]))
    add(events, "b")
    polled = await events.poll(cursor, None, frozenset({Kind.SESSION_CLOSED}), EVERYONE)
    assert [e["kind"] for e in polled.events] == ["session_closed"]
    assert (await events.poll(polled.cursor, None, None, EVERYONE)).events == []


@pytest.mark.parametrize("cursor", ["", "x", "0.0", "zz.zz", ".1", "\u0661.1"])
async def test_a_cursor_never_issued_starts_over_at_the_oldest(cursor: str) -> None:
    events = log()
    add(events, "a", "b")
    polled = await events.poll(cursor, 1, None, EVERYONE)
    assert (ids(polled), polled.reset, polled.more) == (["a"], True, True)
    assert not (await events.poll(polled.cursor, 1, None, EVERYONE)).reset


async def test_a_cursor_of_another_process_or_beyond_the_head_starts_over() -> None:
    events, other = log(), log()
    add(events, "a")
    add(other, *"abc")
    foreign = (await other.poll(None, None, None, EVERYONE)).cursor
    assert (await events.poll(foreign, None, None, EVERYONE)).reset
    epoch = (await events.poll(None, None, None, EVERYONE)).cursor.partition(".")[0]
    for position in ("2", "-1", "1_0", " 1"):
        polled = await events.poll(f"{epoch}.{position}", None, None, EVERYONE)
        assert polled.reset, position


async def test_a_cursor_from_before_what_is_held_starts_over() -> None:
    events = log(3)
    cursor = (await events.poll(None, None, None, EVERYONE)).cursor
    add(events, *"abc")
    assert not (await events.poll(cursor, 1, None, EVERYONE)).reset
    add(events, "d")
    polled = await events.poll(cursor, None, None, EVERYONE)
    assert (ids(polled), polled.reset) == (["b", "c", "d"], True)


async def test_background_reorganisations_add_up_until_somebody_was_given_one() -> None:
    events = log()
    start = (await events.poll(None, None, None, EVERYONE)).cursor
    for _ in range(3):
        events.add(consolidated(did(moved=2, dropped=1)), background=True)
    (event,) = (await events.poll(start, None, None, EVERYONE)).events
    assert (event["moved"], event["dropped"], event["promoted"]) == (6, 3, 0)
    events.add(consolidated(did(moved=1)), background=True)
    assert [e["moved"] for e in (await events.poll(start, None, None, EVERYONE)).events] == [6, 1]


async def test_a_head_that_was_given_is_not_changed_afterwards() -> None:
    events = log()
    events.add(consolidated(did(moved=2)), background=True)
    head = (await events.poll(None, None, None, EVERYONE)).cursor
    events.add(consolidated(did(moved=1)), background=True)
    assert [e["moved"] for e in (await events.poll(head, None, None, EVERYONE)).events] == [1]


async def test_only_background_reorganisations_add_up_whoever_s_records_they_moved() -> None:
    events = log()
    events.add(consolidated(did(moved=1)))
    events.add(consolidated(did(moved=1)), background=True)
    events.add(consolidated(did(1, "ann")), background=True)
    add(events, "a")
    events.add(consolidated(did(1, "ann")), background=True)
    found = (await events.poll("", None, None, EVERYONE)).events
    assert [e.get("moved") for e in found] == [1, 2, None, 1]
    assert [e.get("moved") for e in (await events.poll("", None, None, POOLED)).events] == [1, 1, None]


async def test_a_reorganisation_is_shown_to_each_by_its_own_records() -> None:
    events = log()
    events.add(
        consolidated(Consolidated(moved={"a": "ann", "b": "bob"}, promoted={"c": "bob"}, summarized=1))
    )
    events.add(consolidated(did(1, "ann")))
    events.add(consolidated(Consolidated()))
    events.add(consolidated(Consolidated(), ["bob"]))

    async def figures(scope: Scope) -> list[Any]:
        return [
            (e["moved"], e["promoted"], e["summarized"])
            for e in (await events.poll("", None, None, scope)).events
        ]

    assert await figures(Scope.of("ann")) == [(1, 0, 0), (1, 0, 0), (0, 0, 0)]
    assert await figures(Scope.of("bob")) == [(1, 1, 0), (0, 0, 0), (0, 0, 0)]
    assert await figures(POOLED) == [(0, 0, 0)]
    assert await figures(EVERYONE) == [(2, 1, 1), (1, 0, 0), (0, 0, 0), (0, 0, 0)]


async def test_a_forget_of_very_many_keeps_their_numbers_alone() -> None:
    events = log()
    event = forgotten({str(n): "ann" if n < 2 else None for n in range(1001)})
    assert event.ids is None
    events.add(event)
    for scope, count in ((POOLED, 999), (Scope.of("ann"), 1001), (EVERYONE, 1001)):
        (shown,) = (await events.poll("", None, None, scope)).events
        assert shown == {"kind": "forgotten", "at": shown["at"], "count": count}
    events.add(forgotten({str(n): "ann" for n in range(1001)}))
    assert len((await events.poll("", None, None, POOLED)).events) == 1


async def test_subscribers_are_pushed_what_they_may_see_from_then_on(connect: Any, memory: Any) -> None:
    ann, everyone = connect(to=memory, push=True), connect(to=memory, push=True)
    await memory.remember({"content": "before"})
    assert await ann.ok("events/subscribe", owner="ann") == {"subscribed": True}
    assert await everyone.ok("events/subscribe", kinds=["forgotten"]) == {"subscribed": True}
    await memory.remember(
        {"id": "a", "content": "x", "owner": "ann"}, {"id": "b", "content": "y", "owner": "bob"}
    )
    await memory.ok("forget", ids=["a", "b"])
    pushed = ann.pushed()
    assert {m["method"] for m in pushed} == {"memory/event"}
    assert not any("id" in m for m in pushed)
    assert [(m["params"]["kind"], m["params"].get("ids")) for m in pushed] == [
        ("written", None),
        ("forgotten", ["a"]),
    ]
    assert [m["params"]["count"] for m in everyone.pushed()] == [2]
    assert memory.pushed() == []
    assert len((await ann.ok("events", cursor="", owner="ann"))["events"]) == 3


async def test_nothing_is_pushed_after_unsubscribing(memory: Any) -> None:
    assert await memory.ok("events/unsubscribe") == {"subscribed": False}
    await memory.ok("events/subscribe")
    await memory.ok("events/subscribe")
    await memory.remember({"content": "x"})
    assert len(memory.pushed()) == 1
    assert await memory.ok("events/unsubscribe") == {"subscribed": False}
    await memory.remember({"content": "y"})
    assert memory.pushed() == []


async def test_a_transport_without_push_supports_no_subscription(connect: Any, memory: Any) -> None:
    http = connect(to=memory, caller=LOOPBACK)
    assert (await http.ok("describe"))["events"]["push"] is False
    assert await http.code("events/subscribe") == -32003
    assert await http.ok("events/unsubscribe") == {"subscribed": False}
    assert (await memory.ok("describe"))["events"]["push"] is True


def test_a_subscription_ends_with_its_peer() -> None:
    events = log()
    pushed: list[Any] = []
    subscription = Subscription(EVERYONE, None, pushed.append)
    events.subscribe(subscription)
    del subscription
    add(events, "a")
    assert pushed == []


@pytest.mark.parametrize(
    "params",
    [{"cursor": 5}, {"cursor": []}, {"limit": -1}, {"limit": "1"}, {"kinds": "written"}, {"kinds": ["odd"]}],
)
async def test_a_poll_of_wrong_types_is_invalid(memory: Any, params: Any) -> None:
    assert await memory.code("events", **params) == -32602
