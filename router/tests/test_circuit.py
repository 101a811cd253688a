"""A tier that does not answer: nobody waits for it, and it is found again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, Code, JsonObject, TransportError
from a2m_router.circuit import FAILURES, Circuit, OpenCircuitError
from a2m_router.config import TierConfig
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.contract import draft, name, within
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Search

INTERVAL = 0.05
TIMEOUT = 0.5


class Line:
    """A way to a tier that can be cut: `refused`, `silent` or `failing`; it counts what is asked over it."""

    deliver = None

    def __init__(self, store: MemoryTier) -> None:
        self.handle = Dispatcher(store).handle
        self.state = "whole"
        self.asked = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def notify(self, message: JsonObject, seconds: float) -> None: ...

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        self.asked += 1
        match self.state:
            case "refused":
                raise TransportError("refused", maybe_received=False)
            case "silent":
                await asyncio.sleep(seconds)
                raise TransportError("no answer in time", maybe_received=True)
            case "failing":
                error: JsonObject = {"code": int(Code.INTERNAL), "message": "no database"}
                return {"error": {**error, "data": {"retryable": True}}}
            case _:
                return cast("JsonObject", await self.handle(message, Peer(LOCAL)))


Lines = dict[str, Line]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def lines() -> Lines:
    return {tier: Line(MemoryTier(tier, tier)) for tier in ("working", "episodic", "semantic")}


@pytest.fixture
async def federation(lines: Lines, registry: CollectorRegistry) -> AsyncIterator[Federation]:
    members: list[Member] = []
    for tier, line in lines.items():
        more = {"capacity": 2, "per_session": True, "spill_to": "episodic"} if tier == "working" else {}
        config = TierConfig.model_validate({"name": tier, "kind": tier, "url": "http://127.0.0.1:1", **more})
        remote = RemoteTier(Client(line, timeout=TIMEOUT), tier, probe_interval=INTERVAL)
        members.append(Member(config, remote, lambda remote=remote: remote.silence))
    made = Federation("a2m", members, EventLog(), interval=3_600, counts=Counts(registry))
    await made.open()
    yield made
    await made.close()


async def opened(federation: Federation, tier: str) -> None:
    """Ask until a tier is known not to answer."""
    while all(d.tier != tier for d in await federation.ready()):
        await federation.timeline(Page(Filter()))


async def closed(federation: Federation) -> None:
    async with asyncio.timeout(5):
        while await federation.ready():  # noqa: ASYNC110 polls the circuits
            await asyncio.sleep(INTERVAL / 5)


@pytest.mark.parametrize("state", ["refused", "silent", "failing"])
async def test_reads_answer_from_the_others_at_once_and_name_the_tier(
    federation: Federation, lines: Lines, registry: CollectorRegistry, state: str
) -> None:
    session = name()
    await federation.write([draft("a note", session=session), draft("a fact", key="k")], EVERYONE)
    lines["semantic"].state = state
    await opened(federation, "semantic")
    asked = lines["semantic"].asked
    begun = asyncio.get_running_loop().time()
    found = await federation.search(Search(Filter(), 5, text="note"))
    played = await federation.timeline(Page(Filter()))
    fetched = await federation.fetch("k", EVERYONE, vectors=False)
    listed = await federation.sessions(EVERYONE)
    assert asyncio.get_running_loop().time() - begun < TIMEOUT / 2
    for answer in (found, played, fetched, listed):
        assert [d.tier for d in answer.degraded] == ["semantic"]
        assert "semantic does not answer" in answer.degraded[0].reason
    assert [r.content for r in found.records] == ["a note"]
    assert fetched.record is not None
    assert [s.session for s in listed.sessions] == [session]
    # The turn of a session that has nothing elsewhere asks working alone, and is whole.
    assert (await federation.timeline(Page(within(session)))).degraded == ()
    # What is asked meanwhile is the probes' alone.
    assert lines["semantic"].asked - asked <= 2
    assert registry.get_sample_value("a2m_circuit_open", {"tier": "semantic"}) == 1
    assert (registry.get_sample_value("a2m_degraded_reads_total", {"tier": "semantic"}) or 0) >= 4


async def test_writes_to_it_fail_at_once_and_can_be_retried(federation: Federation, lines: Lines) -> None:
    lines["semantic"].state = "silent"
    await opened(federation, "semantic")
    begun = asyncio.get_running_loop().time()
    for wrong in (
        federation.write([draft(tier="semantic")], EVERYONE),
        federation.write([draft(key=name("k"))], EVERYONE),
        federation.forget(Filter(ids=("x",))),
    ):
        with pytest.raises(A2MError) as refused:
            await wrong
        assert refused.value.retryable
        assert "semantic" in refused.value.message
    assert asyncio.get_running_loop().time() - begun < TIMEOUT / 2
    assert (await federation.write([draft(session="s")], EVERYONE))[0].outcome == "created"


async def test_it_is_found_again_within_a_probe_interval(
    federation: Federation, lines: Lines, registry: CollectorRegistry
) -> None:
    lines["semantic"].state = "silent"
    await opened(federation, "semantic")
    # A probe that still hangs does not hold up the next.
    await asyncio.sleep(INTERVAL * 2)
    lines["semantic"].state = "whole"
    begun = asyncio.get_running_loop().time()
    await closed(federation)
    assert asyncio.get_running_loop().time() - begun < INTERVAL * 4
    assert (await federation.timeline(Page(Filter()))).degraded == ()
    assert registry.get_sample_value("a2m_circuit_open", {"tier": "semantic"}) == 0


async def test_a_spill_into_a_tier_that_was_away_is_made_up_for(federation: Federation, lines: Lines) -> None:
    lines["episodic"].state = "refused"
    await opened(federation, "episodic")
    session = name()
    for number in range(6):
        await federation.write([draft(str(number), session=session)], EVERYONE)
    assert (await federation.counts(EVERYONE))["working"] == 6
    lines["episodic"].state = "whole"
    async with asyncio.timeout(10):
        while (await federation.counts(EVERYONE))["working"] > 2:  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.01)
    records = (await federation.timeline(Page(within(session)))).records
    assert [r.content for r in records] == [str(number) for number in range(6)]


async def test_a_federation_without_its_first_tier_is_not_ready(federation: Federation, lines: Lines) -> None:
    lines["working"].state = "refused"
    with pytest.raises(A2MError, match="working") as refused:
        await federation.ready()
    assert refused.value.retryable


async def test_what_a_tier_refuses_is_an_answer(federation: Federation, lines: Lines) -> None:
    for _ in range(FAILURES * 2):
        with pytest.raises(A2MError, match="vectors of 2"):
            await federation.write([draft(embedding=[1.0, 2.0]), draft(embedding=[1.0])], EVERYONE)
    assert await federation.ready() == []


async def test_a_call_that_is_given_up_says_nothing_of_the_tier() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def fails() -> None:
        raise TransportError("no answer", maybe_received=True)

    circuit = Circuit("one", never, INTERVAL)
    for _ in range(FAILURES - 1):
        with pytest.raises(TransportError):
            await circuit.call(fails)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await circuit.call(never)
    assert not circuit.open
    with pytest.raises(TransportError):
        await circuit.call(fails)
    with pytest.raises(OpenCircuitError, match="looked for every"):
        await circuit.call(fails)
    await circuit.close()


async def test_describe_says_whose_count_is_not_known(federation: Federation, lines: Lines) -> None:
    lines["semantic"].state = "failing"
    await opened(federation, "semantic")
    dispatcher = Dispatcher(federation)
    described = await dispatcher.describe(Peer(LOCAL))
    assert [d["tier"] for d in cast("list[JsonObject]", described["degraded"])] == ["semantic"]
