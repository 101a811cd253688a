"""What an append and a replay cost, counted by the server itself."""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio import Redis

from a2m_server.contract import draft, name, where, within
from a2m_server.values import EVERYONE, Filter, Page, Scope
from a2m_working.store import WorkingStore


@dataclass
class Cost:
    sent: int
    inside: int
    answered: int


class Meter:
    """Commands that clients sent, commands that scripts ran, and bytes that the server answered."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def of(self, call: Awaitable[Any]) -> Cost:
        async with self._client.monitor() as monitor:
            # Opens the connection that tells the end, so that its greetings are not counted.
            await self._client.echo("begin")
            while (await monitor.next_command())["command"] != "ECHO begin":
                pass
            before = (await self._client.info("stats"))["total_net_output_bytes"]
            await call
            after = (await self._client.info("stats"))["total_net_output_bytes"]
            await self._client.echo("over")
            sent = inside = 0
            while (seen := await monitor.next_command())["command"] != "ECHO over":
                if seen["client_type"] == "lua":
                    inside += 1
                else:
                    sent += 1
        return Cost(sent - len(("INFO", "INFO")), inside, after - before)


@pytest.fixture
async def meter(valkey_url: str) -> AsyncIterator[Meter]:
    async with Redis.from_url(valkey_url) as client:
        yield Meter(client)


async def test_an_append_is_one_round_trip(single: WorkingStore, meter: Meter) -> None:
    session, owner = name(), name()
    await single.write([draft(session=session, owner=owner)], EVERYONE)
    batch = [draft(session=session, owner=owner, key=name("k"), embedding=[1.0, 2.0]) for _ in range(20)]
    assert (await meter.of(single.write(batch, Scope.of(owner)))).sent == 1
    assert (await meter.of(single.write(batch, Scope.of(owner)))).sent == 1


@pytest.mark.parametrize("scope", [EVERYONE, Scope.of("someone"), Scope(frozenset({None}))])
async def test_a_replay_is_one_round_trip(single: WorkingStore, meter: Meter, scope: Scope) -> None:
    session = name()
    await single.write([draft(session=session) for _ in range(60)], EVERYONE)
    assert (await meter.of(single.timeline(Page(within(session, scope), limit=50)))).sent == 1
    assert (await meter.of(single.timeline(Page(within(session, scope))))).sent == 1
    filtered = Filter(scope, where(session=session, role="user"))
    assert (await meter.of(single.timeline(Page(filtered, limit=5)))).sent == 1


async def test_a_replay_costs_what_it_replays_and_not_the_history(single: WorkingStore, meter: Meter) -> None:
    short, long = name("s"), name("s")
    await single.write([draft("x" * 100, session=short) for _ in range(20)], EVERYONE)
    for _ in range(10):
        await single.write([draft("x" * 100, session=long) for _ in range(400)], EVERYONE)
    costs = [await meter.of(single.timeline(Page(within(s), limit=20))) for s in (short, long)]
    assert costs[0].inside == costs[1].inside
    # What the monitor itself is sent is in the bytes too.
    assert abs(costs[0].answered - costs[1].answered) < 200


async def test_an_append_costs_the_same_after_a_long_history(single: WorkingStore, meter: Meter) -> None:
    session = name()
    await single.write([draft(session=session)], EVERYONE)
    first = await meter.of(single.write([draft(session=session)], EVERYONE))
    for _ in range(5):
        await single.write([draft(session=session) for _ in range(400)], EVERYONE)
    last = await meter.of(single.write([draft(session=session)], EVERYONE))
    assert first.inside == last.inside


async def test_a_replay_does_not_carry_vectors_unless_asked(single: WorkingStore, meter: Meter) -> None:
    session = name()
    vector = [0.5] * 1000
    await single.write([draft(session=session, embedding=vector) for _ in range(10)], EVERYONE)
    plain = await meter.of(single.timeline(Page(within(session))))
    whole = await meter.of(single.timeline(Page(within(session), vectors=True)))
    assert whole.answered - plain.answered > 10 * 4 * 1000
    [record, *_] = (await single.timeline(Page(within(session), vectors=True))).records
    assert record.embedding == vector
    assert all(r.embedding is None for r in (await single.timeline(Page(within(session)))).records)


async def test_counts_and_sessions_do_not_read_records(single: WorkingStore, meter: Meter) -> None:
    owner = name()
    for session in (name(), name()):
        await single.write([draft(session=session, owner=owner) for _ in range(200)], EVERYONE)
    for _ in range(20):
        await single.write([draft(session=name(), owner=name())], EVERYONE)
    cost = await meter.of(single.sessions(Scope(frozenset({owner}), owner)))
    assert cost.sent == 1
    assert cost.inside < 20
    assert (await meter.of(single.counts(Scope.of(owner)))).sent == 1


async def test_a_long_replay_comes_whole_and_in_bounded_answers(single: WorkingStore, meter: Meter) -> None:
    session = name()
    drafts = [draft(f"{n} " + "x" * 200_000, session=session) for n in range(60)]
    for start in range(0, 60, 20):
        await single.write(drafts[start : start + 20], EVERYONE)
    found = await single.timeline(Page(within(session)))
    assert [r.id for r in found.records] == [d.id for d in drafts]
    assert (await meter.of(single.timeline(Page(within(session), limit=55)))).sent > 1


async def test_a_filter_without_a_session_scans_in_bounded_steps(single: WorkingStore, meter: Meter) -> None:
    mark = name()
    for _ in range(40):
        session = name()
        await single.write([draft(str(n), session=session, metadata={"m": mark}) for n in range(5)], EVERYONE)
    selected = Filter(where=where(m=mark))
    assert len((await single.timeline(Page(selected))).records) == 200
    assert len((await single.timeline(Page(selected, limit=7))).records) == 7
    assert (await meter.of(single.timeline(Page(selected, limit=7)))).sent > 3
