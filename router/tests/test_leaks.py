"""Every method, asked for everything in every tier by every kind of caller, tells nothing of strangers.

Whatever a caller asks is asked in a second federation too, which never had the strangers' records: both
must answer the same, so that not even the existence of an id shows.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import fields
from typing import Any

import httpx
import pytest
from asked import TABLE, Ask
from credentials import REFUSED, issuer, make_tokens
from marks import (
    AGENT,
    ALL,
    ANN,
    BEGAN,
    COMMON,
    EVERYTHING,
    GONE,
    KNOWN,
    MARKS,
    NOBODY,
    OTHER,
    OWNERS,
    READS,
    REVIEWS,
    TIERS,
    Fields,
    Who,
    doubted,
    leaks,
    may_call,
)

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.types import Draft
from a2m_router.config import TierConfig
from a2m_router.federation import Federation
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog, written
from a2m_server.http import serve_handler
from a2m_server.identity import SERVICE, Peer, Role, principal
from a2m_server.ledger import Ledger
from a2m_server.memory import MemoryTier
from a2m_server.methods import EXTENSIONS, METHODS
from a2m_server.metrics import Metrics
from a2m_server.settings import ServerSettings
from a2m_server.values import EVERYONE, Filter, Page, Tombstone

DRAFTS = {
    owner: {
        tier: [Draft.model_validate(r) for r in EVERYTHING if r.get("owner") == owner and r["tier"] == tier]
        for tier in TIERS
    }
    for owner in OWNERS
}
WIDTH = 3
NOW = BEGAN + 10_000_000
DENIED = -32005
UNCHANGING = READS | {"list", "read", "remnants"}
VARYING = frozenset(
    [
        "etag",
        "cursor",
        "took",
        "at",
        "seq",
        "created_at",
        "accessed_at",
        "opened_at",
        "touched_at",
        "after",
        "request",
        "revision",
    ]
)
"""Values that differ between two federations, whatever they hold: times, and what is counted by a process."""


class World:
    """A federation over tiers in memory with the records of some owners, and its events.

    With what they are in doubt of too, where it `doubts`.
    """

    def __init__(self, owners: Sequence[str | None], *, doubts: bool) -> None:
        clock = lambda: NOW  # noqa: E731 a clock that stands still
        self.stores = {tier: MemoryTier(tier, tier, clock=clock) for tier in TIERS}
        self.events = EventLog()
        self.owners, self.doubts = owners, doubts
        members = [
            Member(
                TierConfig.model_validate(
                    {"name": n, "kind": n, "url": "http://127.0.0.1:1", **_CONFIG.get(n, {})}
                ),
                _remote(store),
            )
            for n, store in self.stores.items()
        ]
        self.federation = Federation("a2m", members, self.events, interval=3_600, clock=clock)
        self.dispatcher = Dispatcher(self.federation, events=self.events)

    async def fill(self) -> None:
        for owner in self.owners:
            gone = Tombstone(
                GONE[owner], "forgotten", BEGAN, owner, f"{MARKS[owner]}key", f"{MARKS[owner]}session"
            )
            for store in self.stores.values():
                await store.bury([gone])
            for tier, drafts in DRAFTS[owner].items():
                if tier != "working":
                    # As the router leaves them where records land.
                    await self.stores["working"].bury([_claim(draft, tier) for draft in drafts])
                await self.stores[tier].transfer(drafts)
                for draft in drafts:
                    self.events.add(written(draft.id, owner, tier=tier, session=draft.session, key=draft.key))
            if self.doubts:
                await self.stores["semantic"].transfer(
                    [Draft.model_validate({**one, "tier": None}) for one in doubted(owner)]
                )

        self._full = {name: _copy(store._ledger) for name, store in self.stores.items()}
        self._told = [*self.events._held]

    def reset(self) -> None:
        """As it was when it was filled: quicker than another one."""
        for name, store in self.stores.items():
            store._ledger = _copy(self._full[name])
            store._width = WIDTH
        self.events._held.clear()
        self.events._held.extend(self._told)

    async def held(self) -> dict[str, Any]:
        """All records of all tiers, by id, as they are."""
        found: dict[str, Any] = {}
        for tier, store in self.stores.items():
            for record in (await store.timeline(Page(Filter(EVERYONE), vectors=True))).records:
                assert record.id not in found
                found[record.id] = (tier, record)
        return found


def _copy(ledger: Ledger) -> Ledger:
    return Ledger(**{field.name: copy(getattr(ledger, field.name)) for field in fields(Ledger)})


def _claim(draft: Draft, tier: str) -> Tombstone:
    named = {"owner": draft.owner, "key": draft.key, "session": draft.session, "target": tier}
    return Tombstone(draft.id, "moved", draft.seq or 0, moves=draft.moves, **named)


_CONFIG: Mapping[str, Fields] = {
    "working": {"capacity": 4, "per_session": True, "spill_to": "episodic"},
    "episodic": {"promote_to": "semantic", "promote_after": 3},
}


def _remote(store: MemoryTier) -> RemoteTier:
    """As the router reaches its tiers: by JSON, with the service token."""
    dispatcher, peer = Dispatcher(store), Peer(SERVICE)
    return RemoteTier(Client(LocalTransport(lambda message: dispatcher.handle(message, peer))), "tier")


@asynccontextmanager
async def world(owners: Sequence[str | None] = OWNERS, *, doubts: bool = False) -> AsyncIterator[World]:
    made = World(owners, doubts=doubts)
    await made.fill()
    await made.dispatcher.open()
    try:
        yield made
    finally:
        await made.dispatcher.close()


class Stage:
    """A handler whose federation is changed between two scenes, so that one application serves them all."""

    def __init__(self) -> None:
        self.now: Dispatcher | None = None

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ready(self) -> None: ...

    async def handle(self, message: object, peer: Peer) -> Any:
        assert self.now is not None
        return await self.now.handle(message, peer)

    async def describe(self, peer: Peer) -> Any:
        assert self.now is not None
        return await self.now.describe(peer)


class Front:
    """The application over HTTP, without sockets; `tokens` are by the name of a caller."""

    def __init__(self, settings: ServerSettings, tokens: Mapping[str, str]) -> None:
        self.stage, self.metrics = Stage(), Metrics()
        transport = httpx.ASGITransport(serve_handler(self.stage, settings, self.metrics))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        self.tokens = tokens
        self.asked = 0

    async def post(self, at: World, name: str, method: str, params: object) -> httpx.Response:
        self.stage.now, self.asked = at.dispatcher, self.asked + 1
        body = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return await self.http.post("/", content=json.dumps(body), headers=self.headers(name))

    async def get(self, at: World, name: str, path: str) -> httpx.Response:
        self.stage.now, self.asked = at.dispatcher, self.asked + 1
        return await self.http.get(path, headers=self.headers(name))

    def headers(self, name: str) -> dict[str, str]:
        token = self.tokens.get(name)
        said = {} if token is None else {"Authorization": f"Bearer {token}"}
        return {"Content-Type": "application/json", "User-Agent": "a program", **said}


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Front, Front]:
    """One that authenticates, and one that does not."""
    folder = tmp_path_factory.mktemp("tokens")
    principals = folder / "principals.json"
    tokens = make_tokens(folder, principals)
    settings = ServerSettings.model_validate({"principals_file": principals, "oidc": issuer(folder)})
    return Front(settings, tokens), Front(ServerSettings(), {})


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture, fronts: tuple[Front, Front]) -> Iterator[None]:
    """Nothing of anybody may be in a log line or a metric."""
    caplog.set_level(logging.DEBUG)
    yield
    said = caplog.text + "".join(front.metrics.text() for front in fronts)
    for owner in OWNERS:
        assert MARKS[owner] not in said
        assert owner is None or owner not in said


def test_the_table_has_every_method_and_no_other() -> None:
    known = {name.removeprefix("memory/") for name in (*METHODS, *EXTENSIONS, "memory/describe")}
    assert {*TABLE} == ALL == known


@pytest.mark.parametrize("method", TABLE)
@pytest.mark.parametrize("who", [*KNOWN, NOBODY], ids=lambda who: who.name)
async def test_nothing_of_strangers_is_told_or_changed(fronts: Any, who: Who, method: str) -> None:
    front = fronts[who is NOBODY]
    asks = [*TABLE[method]()]
    assert asks
    if not may_call(who, method):
        await check_denied(front, who, method, asks)
        return
    friends = [owner for owner in OWNERS if who.may_see(owner)]
    changes = method not in UNCHANGING
    doubts = method in REVIEWS
    async with world(doubts=doubts) as here, world(friends, doubts=doubts) as there:
        before = await here.held()
        for ask in asks:
            await check(front, who, method, ask, here, there)
            after = await here.held() if changes else before
            if after != before:
                check_unchanged(who, method, before, after)
                await check_events(fronts, here, who, ask)
            if changes:
                here.reset()
                there.reset()
        check_unchanged(who, method, before, await here.held())


async def check_denied(front: Front, who: Who, method: str, asks: Sequence[Ask]) -> None:
    async with world() as here:
        before = await here.held()
        for ask in asks[::7]:
            answer = await front.post(here, who.name, method, ask.params)
            assert answer.json()["error"]["code"] in (DENIED, -32003)
            assert not leaks([*OWNERS], answer.text, ask.params)
        assert await here.held() == before


async def check(front: Front, who: Who, method: str, ask: Ask, here: World, there: World) -> None:
    answer = await front.post(here, who.name, method, ask.params)
    assert answer.status_code == 200
    assert leaks(who.strangers(), answer.text, ask.params) == [], (method, ask.params, answer.text)
    told = answer.json()
    assert told.get("error", {}).get("code") != -32603, (method, ask.params, told)
    expected = denial(who, method, ask)
    if expected is not None:
        assert told.get("error", {}).get("code") == expected, (method, ask.params, told)
    elif "result" in told and ask.keep is not None:
        check_figures(who, method, ask, told["result"])
    if who.strangers() and not (told.get("error", {}).get("code") == DENIED and names_strangers(who, ask)):
        twin = (await front.post(there, who.name, method, ask.params)).json()
        assert alike(told) == alike(twin), (method, ask.params)


def denial(who: Who, method: str, ask: Ask) -> int | None:
    """The error that an owner's name must lead to; None where it must not."""
    if who.role == "nobody" or "owner" not in ask.params:
        return None
    owner = ask.params["owner"]
    if owner is not None and (not isinstance(owner, str) or owner == "" or "\x00" in owner):
        return -32602
    allowed = who.may_see(owner) if method in READS else who.may_write(owner)
    return None if allowed else DENIED


def names_strangers(who: Who, ask: Ask) -> bool:
    """Whether an id of a stranger's is in the parameters: to write it is refused, and that is all it says."""
    said = json.dumps(ask.params)
    return any(f"{MARKS[owner]}-" in said for owner in who.strangers())


def check_figures(who: Who, method: str, ask: Ask, result: Any) -> None:
    """What was found or changed, against what the caller may see or write by the test's own reckoning."""
    assert ask.keep is not None
    seen = [r for r in EVERYTHING if who.may_see(r.get("owner")) and ask.keep(r)]
    written = [r for r in seen if who.may_write(r.get("owner"))]
    ids, tiers = sorted(r["id"] for r in seen), Counter(r["tier"] for r in written)
    match method:
        case "timeline" | "recall":
            assert sorted(r["id"] for r in result["records"]) == ids, ask.params
        case "list":
            assert sorted(r["id"] for r in result["entries"]) == ids, ask.params
        case "forget":
            assert result["forgotten"] == len(written), ask.params
            assert result.get("tiers", {}) == tiers, ask.params
        case "reinforce":
            assert result == {"reinforced": len(written)}, ask.params
        case "promote":
            assert result == {"promoted": len(written)}, ask.params
        case "summarize":
            assert result["read"] <= len(seen), ask.params
        case "fetch":
            got = result["record"]
            assert (got is None) == (not seen), ask.params
            own = [r["id"] for r in seen if r.get("owner") == who.owner]
            assert not own or got["id"] in own, ask.params
        case _:
            pass


def check_unchanged(who: Who, method: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    for record_id, (tier, record) in before.items():
        if not who.may_write(record.owner):
            same_place = after[record_id][0] == tier or method in ("consolidate", "session/close")
            assert same_place
            now = after[record_id][1]
            if method in ("recall", "context") and who.may_see(record.owner):
                counted = ("access_count", "accessed_at", "etag")
                now = now.model_copy(update={name: getattr(record, name) for name in counted})
            if method != "consolidate":
                assert now == record, method
    for record_id, (_, record) in after.items():
        assert record_id in before or who.may_write(record.owner) or record.owner is None, method


async def check_events(fronts: Any, here: World, who: Who, ask: Ask) -> None:
    """What others see of what was done: never more than of their own."""
    for other in KNOWN[:3]:
        polled = await fronts[0].post(here, other.name, "events", {"cursor": ""})
        # What somebody writes for both to see may name what it likes.
        apart = who.writes is not None and other.sees is not None and who.writes.isdisjoint(other.sees)
        named = None if apart else ask.params
        assert leaks(other.strangers(), polled.text, named) == [], (other.name, ask.params)


_NEW = re.compile(r"[0-9a-f]{32}")


def alike(value: Any) -> Any:
    """An answer without what differs from process to process."""
    match value:
        case dict():
            return {k: None if k in VARYING else alike(v) for k, v in value.items()}
        case list():
            return [alike(item) for item in value]
        case str():
            return _NEW.sub("new", value)
        case float():
            return round(value, 9)
        case _:
            return value


async def test_without_a_valid_credential_no_method_is_reached(fronts: Any) -> None:
    front: Front = fronts[0]
    async with world() as here:
        before = await here.held()
        for name in REFUSED:
            for method, asks in TABLE.items():
                for ask in [*asks()][::25]:
                    answer = await front.post(here, name, method, ask.params)
                    assert answer.status_code == 401
                    assert answer.json().keys() == {"error"}
                    assert not leaks(OWNERS, answer.text)
            for path in ("/.well-known/a2m-server.json", "/metrics"):
                answer = await front.get(here, name, path)
                assert answer.status_code == 401
                assert not leaks(OWNERS, answer.text)
        assert await here.held() == before


async def test_a_token_of_an_issuer_is_the_owner_it_names_and_no_other(fronts: Any) -> None:
    front: Front = fronts[0]
    issued = Who("issued", AGENT.role, AGENT.owner, AGENT.sees, AGENT.writes)
    for method, asks in TABLE.items():
        if method in UNCHANGING and may_call(issued, method):
            async with world() as here, world([ANN, None]) as there:
                for ask in [*asks()][::11]:
                    await check(front, issued, method, ask, here, there)


@pytest.mark.parametrize("who", KNOWN, ids=lambda who: who.name)
async def test_the_documents_beside_the_methods_tell_nothing_either(fronts: Any, who: Who) -> None:
    front: Front = fronts[0]
    async with world() as here:
        described = await front.get(here, who.name, "/.well-known/a2m-server.json")
        assert leaks(who.strangers(), described.text) == []
        counted = {tier["name"]: tier["count"] for tier in described.json()["tiers"]}
        assert counted == Counter(record["tier"] for record in who.seen())
        assert not leaks(OWNERS, (await front.get(here, who.name, "/metrics")).text)
        for path in ("/healthz", "/readyz"):
            assert not leaks(OWNERS, (await front.get(here, who.name, path)).text)
        listed = (await front.post(here, who.name, "session/list", {})).json()["result"]["sessions"]
        assert Counter({(s["session"], s.get("owner")): s["records"] for s in listed}) == Counter(
            (record["session"], record.get("owner")) for record in who.seen()
        )


@pytest.mark.parametrize("who", KNOWN, ids=lambda who: who.name)
async def test_what_is_pushed_is_of_ones_own(who: Who) -> None:
    async with world() as here:
        caller = principal(
            who.name, str(who.owner), frozenset({Role(who.role)}), who.lists, pooled=who.pooled
        )
        peer = Peer(caller, push=True)

        async def call(as_peer: Peer, method: str, **params: Any) -> Any:
            message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
            answer: Any = await here.dispatcher.handle(message, as_peer)
            assert "error" not in answer, answer
            return answer["result"]

        await call(peer, "events/subscribe")
        for owner in OWNERS:
            own = {"owner": owner}
            mark = MARKS[owner]
            await call(Peer(SERVICE), "remember", records=[{"content": COMMON, "key": f"{mark}new"}], **own)
            await call(Peer(SERVICE), "promote", ids=[f"{mark}-id-working"], tier="semantic", **own)
            await call(Peer(SERVICE), "session/close", session=f"{mark}session", owners=[owner])
            await call(Peer(SERVICE), "forget", ids=[f"{mark}-id-episodic", f"{mark}-too-semantic"], **own)
        await call(Peer(SERVICE), "forget", query=COMMON)
        pushed = [message["params"] for message in peer.outbox]
        assert leaks(who.strangers(), json.dumps(pushed)) == []
        forgotten = [event["count"] for event in pushed if event["kind"] == "forgotten"]
        friends = [owner for owner in OWNERS if who.may_see(owner)]
        assert sum(forgotten) == len(who.seen()) + len(friends)
        assert Counter(event["kind"] for event in pushed)["written"] == len(friends)


async def test_a_cursor_does_not_tell_how_much_happened_to_others(fronts: Any) -> None:
    front: Front = fronts[0]
    async with world() as here:
        cursors: list[str] = []
        for _ in range(20):
            polled = (await front.post(here, AGENT.name, "events", {})).json()["result"]
            cursors.append(polled["cursor"])
            await front.post(here, OTHER.name, "remember", {"records": [{"content": COMMON}]})
        assert len({len(cursor) for cursor in cursors}) == 1
        assert len({*cursors}) == len(cursors)
        assert cursors != sorted(cursors) != [*reversed(cursors)]
        since = (await front.post(here, AGENT.name, "events", {"cursor": cursors[0]})).json()["result"]
        assert since.keys() == {"events", "cursor"}
        assert since["events"] == []
        told = (await front.post(here, OTHER.name, "events", {"cursor": cursors[0]})).json()["result"]
        assert len(told["events"]) == 20
