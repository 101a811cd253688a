"""Connections to a dispatcher over stores in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from a2m_protocol.jsonrpc import decode, encode
from a2m_protocol.types import Capability, Draft, Record
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.identity import LOCAL, Caller, Peer
from a2m_server.memory import MemoryTier
from a2m_server.params import Limits
from a2m_server.store import MemoryStore
from a2m_server.values import (
    Consolidated,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Named,
    Page,
    Scope,
    Search,
    Sessions,
    StoreInfo,
    TierInfo,
    Written,
)


class Connection:
    """Calls a dispatcher as one peer, through JSON and back."""

    def __init__(self, dispatcher: Dispatcher, peer: Peer) -> None:
        self.dispatcher = dispatcher
        self.peer = peer

    async def send(self, message: object) -> Any:
        response = await self.dispatcher.handle(decode(encode(message)), self.peer)
        return None if response is None else decode(encode(response))

    async def ok(self, method: str, **params: Any) -> Any:
        response = await self._request(method, params)
        assert "result" in response, response
        return response["result"]

    async def error(self, method: str, **params: Any) -> tuple[int, str]:
        response = await self._request(method, params)
        assert "error" in response, response
        return response["error"]["code"], response["error"]["message"]

    async def code(self, method: str, **params: Any) -> int:
        return (await self.error(method, **params))[0]

    async def remember(self, *records: dict[str, Any], **params: Any) -> list[str]:
        return (await self.ok("remember", records=list(records), **params))["ids"]

    async def contents(self, **params: Any) -> list[str]:
        return [record["content"] for record in (await self.ok("timeline", **params))["records"]]

    def pushed(self) -> list[Any]:
        """The notifications queued for this peer, taken out."""
        messages = [*self.peer.outbox]
        self.peer.outbox.clear()
        return messages

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        return await self.send({"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params})


class Varied(MemoryTier):
    """A tier that says something else of itself."""

    def __init__(self, **changes: Any) -> None:
        super().__init__("varied")
        self._changes = changes
        self.touches: list[list[str]] = []

    async def info(self) -> StoreInfo:
        return dataclasses.replace(await super().info(), **self._changes)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        self.touches.append([*ids])
        await super().touch(ids, at)


class Stack:
    """Two tiers, `working` above `episodic`; `next` is what a consolidation says that it did."""

    def __init__(self) -> None:
        self.tiers = {"working": MemoryTier("working"), "episodic": MemoryTier("episodic")}
        self.next = Consolidated()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ready(self) -> None: ...

    async def info(self) -> StoreInfo:
        return StoreInfo(
            name="stack",
            capabilities=frozenset(Capability),
            tiers=(
                TierInfo("working", "working", capacity=20, per_session=True, spill_to="episodic"),
                TierInfo("episodic", "episodic"),
            ),
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        return {name: sum((await tier.counts(scope)).values()) for name, tier in self.tiers.items()}

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        written: list[Written] = []
        for draft in drafts:
            name = draft.tier or "working"
            (one,) = await self.tiers[name].write([draft], scope)
            written.append(dataclasses.replace(one, tier=name))
        return written

    async def search(self, search: Search) -> Found:
        found = [
            r.model_copy(update={"tier": name})
            for name, tier in self._chosen(search.filter)
            for r in (await tier.search(search)).records
        ]
        return Found(sorted(found, key=lambda r: -(r.score or 0))[: search.limit])

    async def timeline(self, page: Page) -> Found:
        found: list[Record] = [
            r.model_copy(update={"tier": name})
            for name, tier in self._chosen(page.filter)
            for r in (await tier.timeline(page)).records
        ]
        found.sort(key=lambda r: (r.seq, r.id))
        return Found(found if page.limit is None else found[-page.limit :])

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        for tier in self.tiers.values():
            fetched = await tier.fetch(key, scope, vectors=vectors)
            if fetched.record is not None:
                return fetched
        return Fetched(None)

    async def forget(self, selected: Filter) -> Forgotten:
        receipts = {name: await tier.forget(selected) for name, tier in self._chosen(selected)}
        return Forgotten(
            [i for r in receipts.values() for i in r.ids],
            {name: len(r.ids) for name, r in receipts.items() if r.ids},
            {i: owner for r in receipts.values() for i, owner in r.owners.items()},
        )

    async def sessions(self, scope: Scope) -> Sessions:
        return Sessions([i for tier in self.tiers.values() for i in (await tier.sessions(scope)).sessions])

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        return sum([await tier.reinforce(ids, amount, scope) for tier in self.tiers.values()])

    async def touch(self, ids: Sequence[str], at: str) -> None:
        for tier in self.tiers.values():
            await tier.touch(ids, at)

    async def promote(
        self, ids: Sequence[str], tier: str, salience: float, scope: Scope
    ) -> dict[str, str | None]:
        moved: dict[str, str | None] = {}
        for name, held in self.tiers.items():
            if name == tier:
                continue
            found = (await held.timeline(Page(Filter(scope, ids=tuple(ids))))).records
            if not found:
                continue
            drafts = [
                Draft.model_validate(
                    r.model_dump(exclude={"etag", "score", "salience"})
                    | {"moves": r.moves + 1, "salience": r.salience + salience}
                )
                for r in found
            ]
            await self.tiers[tier].transfer(drafts)
            await held.delete_if([Named(r.id, r.etag) for r in found], "moved", tier)
            moved |= {r.id: r.owner for r in found}
        return moved

    async def consolidate(self) -> Consolidated:
        return self.next

    async def close_session(self, session: str, scope: Scope) -> Consolidated:
        held = (await self.tiers["working"].timeline(Page(Filter(scope)))).records
        ids = [r.id for r in held if r.session == session]
        return Consolidated(moved=await self.promote(ids, "episodic", 0.0, scope))

    def _chosen(self, selected: Filter) -> list[tuple[str, MemoryTier]]:
        return [(n, t) for n, t in self.tiers.items() if selected.tier in (None, n)]


Connect = Callable[..., Connection]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a dispatcher over `store` (in memory by default), or to that of another connection."""
    opened: list[Dispatcher] = []

    def connecting(
        store: MemoryStore | None = None,
        *,
        to: Connection | None = None,
        caller: Caller = LOCAL,
        push: bool = False,
        limits: Limits | None = None,
        events: EventLog | None = None,
    ) -> Connection:
        if to is not None:
            return Connection(to.dispatcher, Peer(caller, push=push))
        dispatcher = Dispatcher(store or MemoryTier(), limits=limits, events=events)
        opened.append(dispatcher)
        return Connection(dispatcher, Peer(caller, push=push))

    yield connecting
    for dispatcher in opened:
        await dispatcher.close()


@pytest.fixture
def memory(connect: Connect) -> Connection:
    """A trusted connection to a tier in memory."""
    return connect(push=True)


@pytest.fixture
def stacked() -> Stack:
    """The store behind `stack`."""
    return Stack()


@pytest.fixture
def stack(connect: Connect, stacked: Stack) -> Connection:
    """A trusted connection to a store of two tiers."""
    return connect(stacked, push=True)


@pytest.fixture
def varied(connect: Connect) -> Callable[..., Connection]:
    """A connection to a tier with other `StoreInfo`: `varied(read_only=True)`."""

    def making(caller: Caller = LOCAL, **changes: Any) -> Connection:
        return connect(Varied(**changes), caller=caller)

    return making
