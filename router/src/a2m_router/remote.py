"""A tier behind the wire, as a store: the port spoken over A2M."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pydantic import ValidationError

from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, Code, Json, JsonObject, TransportError, invalid_params
from a2m_protocol.types import MAX_RECORDS, STATUSES, Capability, Draft, Record, metadata_text
from a2m_router import inspection, wire
from a2m_router.circuit import Circuit, OpenCircuitError
from a2m_router.counts import Counts
from a2m_router.gate import Gate
from a2m_router.listing import PAGE, every_entry
from a2m_server import requests, tracing
from a2m_server.describe import OWNERS
from a2m_server.values import (
    Buried,
    Deleted,
    Entry,
    Erased,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Judged,
    Named,
    Page,
    Reason,
    Scope,
    Search,
    Seen,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)

T = TypeVar("T")

MOST_WEIGHT = 4_000_000
"""Characters of records in one call: escaped as JSON, six times as many bytes are still taken."""

NUMBER, ROOM = 24, 500
"""Characters of a number in a vector, and of the other fields of a record."""


class RemoteTier:
    """A `TierStore` over an A2M client.

    A server that is not ours answers the protocol's methods alone; what needs our extensions must not be
    asked of it (`info().extensions` tells).
    """

    def __init__(
        self, client: Client, name: str, *, probe_interval: float = 1.0, counts: Counts | None = None
    ) -> None:
        """`probe_interval` is how often a tier that does not answer is looked for, in seconds."""
        self._counts = counts or Counts()
        self._client = client
        self._name = name
        self._circuit = Circuit(name, partial(_probe, client), probe_interval)
        self._max_recall: int | None = None
        self._scopes = _Scopes()
        self._traced = {"rpc.system.name": "jsonrpc", "a2m.tier": name}
        self.gate = Gate()

    def trade(self, other: RemoteTier) -> None:
        """Take the place of another service, which takes this one's: calls under way end where they began."""
        self._client, other._client = other._client, self._client
        self._circuit, other._circuit = other._circuit, self._circuit
        self._max_recall, other._max_recall = other._max_recall, self._max_recall
        self._scopes, other._scopes = other._scopes, self._scopes

    @property
    def silence(self) -> str | None:
        """Why the tier is not asked at present, or None."""
        return self._circuit.reason if self._circuit.open else None

    async def open(self) -> None:
        await self._client.__aenter__()

    async def close(self) -> None:
        await self._circuit.close()
        await self._client.__aexit__(None, None, None)

    async def ready(self) -> None:
        await self._call("fetch", _READY)

    async def info(self) -> StoreInfo:
        told = await self._ask("describe", {}, wire.info)
        self._max_recall = told.max_recall
        self._scopes = _Scopes(Capability.SCOPES in told.capabilities, OWNERS in told.extensions)
        return told

    async def counts(self, scope: Scope) -> dict[str, int]:
        if self._scopes.hides(scope):
            return {self._name: 0}
        return await self._ask("describe", self._scopes.told(scope, self._name), wire.counts)

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        records: list[Json] = [wire.draft_json(draft) for draft in drafts]
        return await self._ask("remember", {"records": records, **wire.scoped(scope)}, wire.written)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        written: list[Written] = []
        for part in _by_weight(drafts, _weight):
            records: list[Json] = [wire.draft_json(draft) for draft in part]
            written += await self._ask("remember", {"records": records, "transfer": True}, wire.written)
        return written

    async def search(self, search: Search) -> Found:
        limit = search.least or search.limit
        limit = limit if self._max_recall is None else min(limit, self._max_recall)
        if self._scopes.hides(search.filter.scope):
            return Found([])
        scoped = self._scopes.told(search.filter.scope, self._name)
        params = wire.selecting(search.filter) | scoped | {"limit": limit, "touch": False}
        if search.least is not None:
            params["candidates"] = search.limit
        if search.text is not None:
            params["query"] = search.text
        if search.embedding is not None:
            params["embedding"] = list(search.embedding)
        if search.embedding_model is not None:
            params["embedding_model"] = search.embedding_model
        if search.vectors:
            params["embeddings"] = True
        if search.features:
            params["features"] = True
        return await self._ask("recall", params, wire.found)

    async def timeline(self, page: Page) -> Found:
        if page.filter.ids is not None or page.filter.words is not None:
            return await self._selected(page)
        if self._scopes.hides(page.filter.scope):
            return Found([])
        params = wire.selecting(page.filter) | self._scopes.told(page.filter.scope, self._name)
        # Left out, it would mean what is active, where no session is named.
        params["status"] = [*(page.filter.statuses or STATUSES)]
        if page.limit is not None:
            params["limit"] = page.limit
        if page.vectors:
            params["embeddings"] = True
        return await self._ask("timeline", params, wire.found)

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        if self._scopes.hides(scope):
            return Fetched(None)
        params: JsonObject = {"key": key, "embeddings": vectors, **self._scopes.told(scope, self._name)}
        return await self._ask("fetch", params, wire.fetched)

    async def forget(self, selected: Filter) -> Forgotten:
        if self._scopes.hides(selected.scope):
            return Forgotten([])
        params = wire.selecting(self._scopes.narrowing(selected))
        if not params:
            raise invalid_params("tier: all of a tier that is not ours cannot be forgotten at once: name ids")
        return await self._ask("forget", params | wire.scoped(selected.scope), wire.forgotten)

    async def sessions(self, scope: Scope) -> Sessions:
        if self._scopes.hides(scope):
            return Sessions([])
        return await self._ask("session/list", self._scopes.told(scope, self._name), wire.sessions)

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        params: JsonObject = {"ids": list(ids), "amount": amount, **wire.scoped(scope)}
        return await self._ask("reinforce", params, wire.reinforced)

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self._call("touch", {"ids": list(ids), "at": at})

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        params: JsonObject = {"records": wire.named_json(named), "reason": reason}
        if target is not None:
            params["target"] = target
        return await self._ask("forget_if", params, wire.deletions)

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return await self._ask("tombstones", {"ids": list(ids)}, wire.tombstones)

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        params: JsonObject = {"limit": limit}
        if after is not None:
            params["after"] = list(after)
        return await self._ask("tombstones", params, wire.tombstones)

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        outcomes: dict[str, Buried] = {}
        for part in _parts(tombstones, PAGE):
            graves = wire.tombstones_json(part)
            outcomes |= await self._ask("tombstones", {"tombstones": graves}, wire.burials)
        return outcomes

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        params = wire.selecting(self._scopes.narrowing(selected)) | wire.scoped(selected.scope)
        params |= {"limit": limit}
        if selected.arrived:
            params["arrived"] = True
        if selected.without is not None:
            params["without"] = selected.without
        if after is not None:
            params["after"] = list(after)
        return await self._ask("list", params, wire.entries)

    async def held(self, owner: str | None) -> dict[str, int]:
        return await self._ask("held", {"owner": owner}, wire.held)

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return await self._ask("read", {"ids": list(ids)}, wire.records)

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        outcomes: dict[str, bool] = {}
        for part in _by_weight(seen, _weight_seen):
            records = wire.seen_json(part)
            outcomes |= await self._ask("embed", {"records": records}, wire.kept)
        return outcomes

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        outcomes: dict[str, bool] = {}
        for part in _parts(judged, PAGE):
            outcomes |= await self._ask("judge", {"records": wire.judged_json(part)}, wire.kept)
        return outcomes

    async def settle(self, named: Sequence[Named]) -> None:
        await self._call("settle", {"records": wire.named_json(named)})

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        return await inspection.remnants(self._ask, ids)

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        return await inspection.erase(self._ask, ids, dry=dry)

    async def _selected(self, page: Page) -> Found:
        """A timeline by ids or words, which the protocol's own method cannot select by."""
        entries = await every_entry(self, page.filter)
        if page.limit is not None:
            entries = entries[max(0, len(entries) - page.limit) :]
        records = await self.read([entry.id for entry in entries])
        return Found(sorted(records, key=lambda r: (r.seq, r.id)))

    async def _ask(
        self, method: str, params: JsonObject, read: Callable[[JsonObject], T], seconds: float | None = None
    ) -> T:
        """What a call answers, read; an answer of another shape is the tier's failure, not the caller's."""
        told = await self._call(method, params, seconds)
        try:
            return read(told)
        except (A2MError, KeyError, TypeError, ValueError) as error:
            raise TransportError(
                f"tier {self._name}: its answer to memory/{method} cannot be read: {_wrong(error)}",
                maybe_received=True,
            ) from error

    async def _call(self, method: str, params: JsonObject, seconds: float | None = None) -> JsonObject:
        async with self.gate.change() if _changes(method, params) else nullcontext():
            return await self._call_now(method, params, seconds)

    async def _call_now(self, method: str, params: JsonObject, seconds: float | None) -> JsonObject:
        request = requests.current()
        if request is not None:
            request.tiers[self._name] = None
        client = self._client
        began, code = time.perf_counter(), "cancelled"
        try:
            with tracing.asking(f"memory/{method}", self._traced):
                told = await self._circuit.call(
                    lambda: client.call(f"memory/{method}", params, timeout=seconds)
                )
            code = "0"
            return told
        except OpenCircuitError:
            code = "open"
            raise
        except TransportError as error:
            code = "unreachable"
            raise TransportError(
                f"tier {self._name} does not answer: {error.message}; try again",
                maybe_received=error.maybe_received,
                retryable=error.retryable,
            ) from error
        except A2MError as error:
            code = str(int(error.code))
            raise
        finally:
            self._counts.asked(self._name, f"memory/{method}", code, time.perf_counter() - began)


async def _probe(client: Client) -> None:
    await client.call("memory/fetch", _READY)


_READS = {"describe", "recall", "timeline", "fetch", "session/list", "list", "read", "held", "remnants"}


def _changes(method: str, params: JsonObject) -> bool:
    """Whether a call may change anything in a tier."""
    return "tombstones" in params if method == "tombstones" else method not in _READS


def _wrong(error: Exception) -> str:
    """What is wrong with an answer, without what is in it: it may be anybody's."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, found['loc']))}: {found['type']}"
    return f"{error}" if isinstance(error, A2MError | KeyError) else type(error).__name__


@dataclass(frozen=True, slots=True)
class _Scopes:
    """How a tier keeps owners apart: if it does, and whether it can be told a set of them."""

    kept: bool = True
    sets: bool = False

    def hides(self, scope: Scope) -> bool:
        """Whether nothing of a tier is for a scope: where no owners are kept apart, all is pooled."""
        return not self.kept and not scope.sees(None)

    def told(self, scope: Scope, name: str) -> JsonObject:
        """A scope for a read; a tier that could but show more than is seen counts as away."""
        if self.kept and not self.sets and not wire.is_plain(scope):
            raise A2MError(
                Code.INTERNAL, f"tier {name} knows one owner at a time, and this caller has several"
            )
        return wire.scoped(scope) if self.kept else {}

    def narrowing(self, selected: Filter) -> Filter:
        """What is to be forgotten: never more than is seen, whatever a tier takes `owner` for."""
        if not self.kept or self.sets:
            return selected
        return replace(selected, where=wire.narrowed(selected.where, selected.scope))


_READY: JsonObject = {"key": "a2m/ready", "owner": None}
"""A fact that nobody has: it costs a look in the database and no counting."""


def _by_weight(items: Sequence[T], weigh: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Items in parts that a server takes in one call, in number and in bytes."""
    begun = weight = 0
    for at, item in enumerate(items):
        added = weigh(item)
        if at > begun and (at - begun == MAX_RECORDS or weight + added > MOST_WEIGHT):
            yield items[begun:at]
            begun, weight = at, 0
        weight += added
    if begun < len(items):
        yield items[begun:]


def _weight_seen(one: Seen) -> int:
    return NUMBER * len(one.embedding) + len(one.features or "") + ROOM


def _weight(draft: Draft) -> int:
    """About how many characters a draft has as JSON."""
    vector = NUMBER * len(draft.embedding or ())
    return (
        len(draft.content)
        + len(metadata_text(draft.metadata or {}))
        + len(draft.features or "")
        + vector
        + ROOM
    )


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
