"""What several routers share: leases, the roster of readers, and one stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from a2m_protocol.errors import A2MError
from a2m_router import roster
from a2m_router.eventstream import EventStream
from a2m_router.leases import Leases, _key
from a2m_router.link import PREFIX, connect
from a2m_router.roster import SharedReaders
from a2m_server.events import UNKNOWN, Event, Kind, Subscription, consolidated, forgotten, written
from a2m_server.values import EVERYONE, Consolidated, Scope

PATIENCE = 5.0
LEASE = 10.0


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    client = connect(valkey_url)
    await client.delete(*[key async for key in client.scan_iter(match=f"{PREFIX}*")], "nothing")
    yield client
    await client.aclose()


async def test_two_routers_never_hold_one_lock(redis: Redis) -> None:
    routers = [Leases(redis, LEASE) for _ in range(3)]
    inside = most = 0

    async def work(number: int) -> None:
        nonlocal inside, most
        async with routers[number % 3].hold([f"lock {n}" for n in range(number % 4, 6)]):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*(work(number) for number in range(30)))
    assert most == 1
    assert [key async for key in redis.scan_iter(match=f"{PREFIX}lease:*")] == []


async def test_a_lease_is_renewed_while_it_is_held_and_ends_with_a_holder_that_died(redis: Redis) -> None:
    short = 0.3
    holder, other = Leases(redis, short), Leases(redis, short)
    loop = asyncio.get_running_loop()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with holder.hold(["one"]):
            entered.set()
            await leave.wait()

    holding = asyncio.create_task(hold())
    await entered.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4 * short), other.hold(["one"]):
            pytest.fail("the lease was not renewed")
    leave.set()
    await holding
    # What a router leaves that is killed: a lease that nobody renews or gives back.
    await redis.set(_key("one"), "dead", px=int(short * 1_000))
    begun = loop.time()
    async with other.hold(["one"]):
        assert loop.time() - begun > short / 2


async def test_who_lost_a_lease_does_not_take_it_from_another(redis: Redis) -> None:
    async with Leases(redis, LEASE).hold(["one"]):
        await redis.set(_key("one"), "another")
    assert await redis.get(_key("one")) == b"another"


async def test_only_one_router_sweeps(redis: Redis) -> None:
    first, second = Leases(redis, LEASE), Leases(redis, LEASE)
    async with first.alone("sweep") as one, second.alone("sweep") as two, first.alone("sweep") as three:
        assert (one, two, three) == (True, False, False)
    async with second.alone("sweep") as again:
        assert again


async def test_without_redis_a_lock_is_refused_and_can_be_retried() -> None:
    nowhere = connect("redis://127.0.0.1:1")
    with pytest.raises(A2MError) as refused:
        async with Leases(nowhere, LEASE).hold(["one"]):
            pytest.fail("held")
    assert refused.value.retryable
    await nowhere.aclose()


@pytest.mark.parametrize(
    "url", ["http://user:secret@host", "redis://user:secret@host:x", "redis://user:secret@host/0?what=1", ""]
)
def test_an_unusable_url_is_refused_without_repeating_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="not usable") as refused:
        connect(url)
    assert "secret" not in str(refused.value)


async def test_a_move_waits_for_the_reads_of_other_routers(redis: Redis) -> None:
    mover, reader = SharedReaders(redis, PATIENCE, LEASE), SharedReaders(redis, PATIENCE, LEASE)
    await mover.open()
    await reader.open()
    with reader.reading():
        waiting = asyncio.create_task(mover.drained())
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
    assert await asyncio.wait_for(waiting, 2.0)
    assert await asyncio.wait_for(mover.drained(), 2.0)
    await reader.close()
    await mover.close()


async def test_a_router_that_died_is_waited_for_as_long_as_a_read_may_take(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = 0.1
    mover, dead = SharedReaders(redis, 0.5, beat), SharedReaders(redis, 0.5, beat)
    await mover.open()
    await dead.open()
    for task in dead._tasks:
        task.cancel()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert not await mover.drained()
    assert loop.time() - begun >= 0.5
    async with asyncio.timeout(5):
        # In time it is struck off, and waited for no longer.
        while not await mover.drained():
            pass
    assert loop.time() - begun >= roster.GONE_BEATS * beat * 0.5
    await mover.close()
    assert await redis.hgetall(roster._ROUTERS) == {}


async def test_a_router_without_redis_says_that_it_is_cut_off(redis: Redis) -> None:
    beat = 0.05
    readers = SharedReaders(redis, PATIENCE, beat)
    await readers.open()
    assert readers.cut_off is None
    readers._redis = connect("redis://127.0.0.1:1")
    async with asyncio.timeout(5):
        while readers.cut_off is None:  # noqa: ASYNC110 polls the clock
            await asyncio.sleep(beat)
    await readers._redis.aclose()
    readers._redis = redis
    async with asyncio.timeout(5):
        while readers.cut_off is not None:  # noqa: ASYNC110 polls the clock
            await asyncio.sleep(beat)
    await readers.close()


@pytest.fixture
async def streams(redis: Redis) -> AsyncIterator[list[EventStream]]:
    made = [EventStream(redis, retained=20, clock=lambda: 1_700_000_000_000) for _ in range(3)]
    for stream in made:
        await stream.open()
    yield made
    for stream in made:
        await stream.close()


async def sent(*streams: EventStream) -> None:
    """Wait until what was logged has been sent."""
    async with asyncio.timeout(5):
        while any(stream._unsent for stream in streams):  # noqa: ASYNC110 polls a queue
            await asyncio.sleep(0.001)
    # A batch that is under way is out of the queue.
    for stream in streams:
        async with stream._turn:
            pass


async def test_a_cursor_works_on_whichever_router_answers(streams: list[EventStream]) -> None:
    cursor = (await streams[0].poll(None, None, None, EVERYONE)).cursor
    seen: list[object] = []
    for number in range(15):
        streams[number % 3].add(written(str(number), None))
        await sent(*streams)
        polled = await streams[(number + 1) % 3].poll(cursor, 1, None, EVERYONE)
        cursor = polled.cursor
        seen += [event["id"] for event in polled.events]
        assert not polled.reset
    assert seen == [str(number) for number in range(15)]
    assert (await streams[2].poll(cursor, None, None, EVERYONE)).events == []


async def test_every_router_gives_all_events_in_one_order(streams: list[EventStream]) -> None:
    cursor = (await streams[0].poll(None, None, None, EVERYONE)).cursor
    for number in range(18):
        streams[number % 3].add(written(str(number), None))
    await sent(*streams)
    given = [[e["id"] for e in (await s.poll(cursor, None, None, EVERYONE)).events] for s in streams]
    assert given[0] == given[1] == given[2]
    assert sorted(given[0], key=int) == [str(number) for number in range(18)]


async def test_a_cursor_from_before_what_is_held_starts_over(streams: list[EventStream]) -> None:
    cursor = (await streams[0].poll(None, None, None, EVERYONE)).cursor
    for number in range(25):
        streams[0].add(written(str(number), None))
    polled = await streams[0].poll(cursor, None, None, EVERYONE)
    assert polled.reset
    assert [event["id"] for event in polled.events] == [str(number) for number in range(5, 25)]
    for wrong in ("", "x", "abc.1", f"{cursor}0", cursor.partition(".")[0] + ".ffff"):
        assert (await streams[1].poll(wrong, None, None, EVERYONE)).reset


async def test_an_event_comes_out_as_it_went_in(streams: list[EventStream]) -> None:
    many = {f"id {n}": ("ann" if n % 2 else None) for n in range(4)}
    events = [
        forgotten({**many, "x": UNKNOWN}),
        consolidated(Consolidated(moved=many, dropped={"y": "bob"}, summarized=2), ["ann", None]),
        written("z", "ann", tier="working", session="s", key="k", revision=3),
        Event(Kind.PROMOTED, {"tier": "semantic"}, ids={"é\n": None}),
    ]
    for event in events:
        streams[0].add(event)
    await sent(streams[0])
    await streams[1].poll("", None, None, EVERYONE)
    assert [held.event for held in streams[1]._copy] == events
    for scope in (EVERYONE, Scope.of("ann"), Scope.of("bob")):
        shown = (await streams[2].poll("", None, None, scope)).events
        expected = [e.shown(scope) for e in events if e.shown(scope) is not None]
        assert [{k: v for k, v in e.items() if k not in ("kind", "at")} for e in shown] == expected


async def test_who_subscribed_is_told_of_what_another_router_did(streams: list[EventStream]) -> None:
    told: asyncio.Queue[object] = asyncio.Queue()
    subscription = Subscription(Scope.of("ann"), None, told.put_nowait)
    streams[1].subscribe(subscription)
    streams[0].add(written("hers", "ann"))
    streams[0].add(written("his", "bob"))
    streams[2].add(written("pooled", None))
    got = {(await asyncio.wait_for(told.get(), 5))["id"] for _ in range(2)}  # pyright: ignore[reportIndexIssue]
    assert got == {"hers", "pooled"}
    streams[1].unsubscribe(subscription)


async def test_a_stream_that_was_lost_starts_over(streams: list[EventStream], redis: Redis) -> None:
    streams[0].add(written("before", None))
    cursor = (await streams[0].poll("", None, None, EVERYONE)).cursor
    await redis.delete(f"{PREFIX}events", f"{PREFIX}events:epoch")
    streams[1].add(written("after", None))
    await sent(streams[1])
    polled = await streams[2].poll(cursor, None, None, EVERYONE)
    assert polled.reset
    assert [event["id"] for event in polled.events] == ["after"]
    assert not (await streams[0].poll(polled.cursor, None, None, EVERYONE)).reset


async def test_events_wait_while_redis_is_away_and_a_gap_is_told(redis: Redis) -> None:
    stream, other = EventStream(redis, retained=20), EventStream(redis, retained=20)
    await stream.open()
    await other.open()
    cursor = (await other.poll(None, None, None, EVERYONE)).cursor
    script, stream._script = stream._script, connect("redis://127.0.0.1:1").register_script("return 0")
    stream.add(written("kept", None))
    with pytest.raises(A2MError) as away:
        await stream.poll(cursor, None, None, EVERYONE)
    assert away.value.retryable
    stream._script = script
    polled = await stream.poll(cursor, None, None, EVERYONE)
    assert ([event["id"] for event in polled.events], polled.reset) == (["kept"], False)
    stream._script = connect("redis://127.0.0.1:1").register_script("return 0")
    for number in range(30):
        stream.add(written(str(number), None))
    stream._script = script
    polled = await stream.poll(polled.cursor, None, None, EVERYONE)
    assert polled.reset
    assert [event["id"] for event in polled.events][-1] == "29"
    await stream.close()
    await other.close()
