"""Conversations at a steady rate over clients with their defaults, and an audit of what these were told."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from replicas import TIERS, TOKEN, Deployment

from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, JsonObject
from a2m_protocol.transports import Transport

OWNER = "ana"
FACTS = 5
_CYCLE = (
    *("turn", "timeline") * 3,
    "fact",
    *("turn", "timeline") * 4,
    "fetch",
    *("turn", "timeline") * 2,
    "recall",
)
"""What an agent does: it writes a turn and replays the conversation, and now and then looks for more."""
_CLOSE_EVERY = 4
"""Cycles after which a conversation is closed, which moves all of it, and another begins."""
_SETTLE_SECONDS = 60.0


class Counted:
    """A client's own transport: it counts exchanges (what is more than calls are retries), and why."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.deliver = inner.deliver
        self.exchanges = 0
        self.why: Counter[str] = Counter()

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        self.exchanges += 1
        try:
            response = await self.inner.exchange(message, seconds)
        except A2MError as error:
            self.why[_kind(message, error.message)] += 1
            raise
        error = response.get("error")
        if isinstance(error, dict):
            self.why[_kind(message, str(error["message"]))] += 1
        return response

    async def notify(self, message: JsonObject, seconds: float) -> None:
        await self.inner.notify(message, seconds)


@dataclass
class Conversation:
    """What one agent was told is kept: its turns in order by session, and its facts with their revisions."""

    name: str
    session: str = ""
    sessions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    facts: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])

    @property
    def turns(self) -> list[str]:
        return self.sessions[self.session]

    def begin(self) -> None:
        """Another session."""
        self.session = f"{self.name}/{len(self.sessions)}"
        self.sessions[self.session] = []


@dataclass
class Figures:
    """What was seen. `seconds` are of calls, retries and pauses included; `why` is of retries."""

    seconds: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    degraded: Counter[str] = field(default_factory=Counter[str])
    retries: int = 0
    why: Counter[str] = field(default_factory=Counter[str])
    elapsed: float = 0.0

    def __str__(self) -> str:
        ordered = sorted(self.seconds)

        def at(part: float) -> str:
            return f"{ordered[int(part * (len(ordered) - 1))] * 1_000:.0f} ms"

        return (
            f"{len(ordered)} requests in {self.elapsed:.1f} s ({len(ordered) / self.elapsed:.0f}/s), "
            f"{self.retries} retries, {len(self.failures)} failures, {len(self.wrong)} wrong answers, "
            f"degraded {dict(self.degraded)}; p50 {at(0.5)}, p99 {at(0.99)}, longest {at(1)}"
            + "".join(f"\n{times:6} retried: {reason}" for reason, times in self.why.most_common())
        )


class Traffic:
    """`rate` requests a second by `agents`, each with a client of its own, until `stop`."""

    def __init__(self, url: str, *, rate: float, agents: int) -> None:
        self.figures = Figures()
        self.conversations = [Conversation(f"talk-{number}") for number in range(agents)]
        for talk in self.conversations:
            talk.begin()
        self._pause = agents / rate
        self._url = url
        self._exchanges = 0
        self._stopping = False

    async def run(self) -> None:
        """Talk until `stop` was called and all calls have ended."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, talk in enumerate(self.conversations):
                first = begun + self._pause * number / len(self.conversations)
                group.create_task(self._agent(talk, first))
        self.figures.elapsed = time.monotonic() - begun
        self.figures.retries = self._exchanges - len(self.figures.seconds)

    def stop(self) -> None:
        self._stopping = True

    async def _agent(self, talk: Conversation, due: float) -> None:
        # With its defaults: they are what is tested.
        client = Client.http(self._url, token=TOKEN)
        counted = Counted(client.transport)
        client.transport = counted
        async with client:
            await self._talk(client, talk, due)
        self._exchanges += counted.exchanges
        self.figures.why += counted.why

    async def _talk(self, client: Client, talk: Conversation, due: float) -> None:
        for number in count():
            # Who was held up catches up: the rate is that of all of the time.
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self._stopping:
                return
            due += self._pause
            begun = time.monotonic()
            try:
                await self._step(client, talk, number)
            except A2MError as error:
                self.figures.failures.append(
                    f"{talk.name} {number}: {error.code} {error.message} {error.data}"
                )
            self.figures.seconds.append(time.monotonic() - begun)

    async def _step(self, client: Client, talk: Conversation, number: int) -> None:
        cycle, at = divmod(number, len(_CYCLE))
        if at == 0 and cycle % _CLOSE_EVERY == _CLOSE_EVERY - 1:
            await client.close_session(talk.session, owner=OWNER)
            talk.begin()
            return
        match _CYCLE[at]:
            case "turn":
                content = f"{talk.name} says zebra {number}"
                await client.remember([{"content": content}], session=talk.session, owner=OWNER)
                talk.turns.append(content)
            case "fact":
                await self._rewrite(
                    client, talk, f"{talk.name}/fact-{cycle % FACTS}", f"{talk.name} is at {number}"
                )
            case "timeline":
                told = await client.timeline(where={"session": talk.session}, limit=5, owner=OWNER)
                if self._whole(told):
                    shown = [record["content"] for record in told["records"]]
                    self._expect(talk.turns[-5:], shown, f"timeline of {talk.session}")
            case "fetch":
                key = f"{talk.name}/fact-{(cycle - 1) % FACTS}"
                told = await client.fetch(key, owner=OWNER)
                if self._whole(told):
                    self._expect(talk.facts.get(key), _fact(told), key)
            case _:
                told = await client.recall(f"{talk.name} zebra", limit=3, owner=OWNER)
                self._whole(told)

    async def _rewrite(self, client: Client, talk: Conversation, key: str, content: str) -> None:
        record: dict[str, Any] = {"content": content, "key": key, "tier": "semantic"}
        await client.remember([record], owner=OWNER)
        _, revision = talk.facts.get(key, ("", -1))
        talk.facts[key] = content, revision + 1

    def _whole(self, told: Any) -> bool:
        """Whether an answer is of all tiers; one that says that it is not may lack what they hold."""
        for one in told.get("degraded", ()):
            self.figures.degraded[one["tier"]] += 1
        return not told.get("degraded")

    def _expect(self, expected: object, shown: object, what: str) -> None:
        if shown != expected:
            self.figures.wrong.append(f"{what}: {shown} and not {expected}")


def _kind(message: JsonObject, reason: str) -> str:
    """What failed and why, without addresses and numbers."""
    return f"{message['method']}: {re.sub(r'[0-9]+', 'N', reason)[:90]}"


def _fact(told: Any) -> tuple[str, int] | None:
    record = told.get("record")
    return None if record is None else (record["content"], record["revision"])


async def audit(deployment: Deployment, conversations: list[Conversation]) -> None:
    """Read back all that was acknowledged: nothing is lost, doubled, or out of order."""
    async with Client.http(deployment.url, token=TOKEN) as router:
        for talk in conversations:
            for session, turns in talk.sessions.items():
                told: Any = await router.timeline(where={"session": session}, owner=OWNER)
                assert [record["content"] for record in told["records"]] == turns, session
            for key, fact in talk.facts.items():
                assert _fact(await router.fetch(key, owner=OWNER)) == fact, key
        deadline = time.monotonic() + _SETTLE_SECONDS
        most = sum(sum(map(len, talk.sessions.values())) + len(talk.facts) for talk in conversations)
        while (held := await _held(deployment)).total() != most or len(held) != most:
            if time.monotonic() > deadline:
                doubled = [record_id for record_id, times in held.items() if times > 1]
                pytest.fail(
                    f"{most} records were acknowledged, {held.total()} are held; twice: {doubled[:5]}"
                )
            # What a move had left twice when its router went is settled by a sweep.
            await router.consolidate()


async def _held(deployment: Deployment) -> Counter[str]:
    """How often each id is held, over all tiers, each asked itself."""
    held: Counter[str] = Counter()
    for tier in TIERS:
        async with Client.http(deployment.address(tier), token=TOKEN) as client:
            after: dict[str, Any] = {}
            while True:
                page: Any = await client.call("memory/list", {"limit": 1_000, "owner": OWNER, **after})
                held.update(entry["id"] for entry in page["entries"])
                if not page["more"]:
                    break
                after = {"after": [page["entries"][-1]["seq"], page["entries"][-1]["id"]]}
    return held
