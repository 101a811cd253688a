"""A tier behind the wire, as a store: the port spoken over A2M."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from a2m_protocol.client import Client
from a2m_protocol.clock import parse_ms, seq_of
from a2m_protocol.errors import A2MError, Json, JsonObject, TransportError, invalid_params
from a2m_protocol.types import MAX_RECORDS, Capability, Draft, Model, Record, metadata_text
from a2m_protocol.where import Op, Where
from a2m_router import inspection
from a2m_router.circuit import Circuit, OpenCircuitError
from a2m_router.listing import PAGE, every_entry
from a2m_server.store import (
    Buried,
    Degraded,
    Deleted,
    Entry,
    Erased,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Named,
    Page,
    Reason,
    Scope,
    Search,
    Seen,
    SessionInfo,
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

    def __init__(self, client: Client, name: str, *, probe_interval: float = 1.0) -> None:
        """`probe_interval` is how often a tier that does not answer is looked for, in seconds."""
        self._client = client
        self._name = name
        self._circuit = Circuit(name, self._probe, probe_interval)

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
        return await self._ask("describe", {}, _info)

    async def counts(self, scope: Scope) -> dict[str, int]:
        return await self._ask("describe", _scoped(scope), _counts)

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        records: list[Json] = [_wire(draft) for draft in drafts]
        return await self._ask("remember", {"records": records, **_scoped(scope)}, _written)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        written: list[Written] = []
        for part in _by_weight(drafts, _weight):
            records: list[Json] = [_wire(draft) for draft in part]
            written += await self._ask("remember", {"records": records, "transfer": True}, _written)
        return written

    async def search(self, search: Search) -> Found:
        params = _selecting(search.filter) | {"limit": search.limit, "touch": False}
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
        return await self._ask("recall", params, _found)

    async def timeline(self, page: Page) -> Found:
        if page.filter.ids is not None or page.filter.words is not None:
            return await self._selected(page)
        params = _selecting(page.filter)
        if page.limit is not None:
            params["limit"] = page.limit
        if page.vectors:
            params["embeddings"] = True
        return await self._ask("timeline", params, _found)

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        return await self._ask("fetch", {"key": key, "embeddings": vectors, **_scoped(scope)}, _fetched)

    async def forget(self, selected: Filter) -> Forgotten:
        params = _selecting(selected)
        if not params.keys() - {"owner"}:
            raise invalid_params("tier: all of a tier that is not ours cannot be forgotten at once: name ids")
        return await self._ask("forget", params, _forgotten)

    async def sessions(self, scope: Scope) -> Sessions:
        return await self._ask(
            "session/list",
            _scoped(scope),
            lambda told: Sessions(_Sessions.validate_python(told["sessions"]), _silent(told)),
        )

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        params: JsonObject = {"ids": list(ids), "amount": amount, **_scoped(scope)}
        return await self._ask("reinforce", params, lambda told: _Count.validate_python(told["reinforced"]))

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self._call("touch", {"ids": list(ids), "at": at})

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        params: JsonObject = {"records": _named(named), "reason": reason}
        if target is not None:
            params["target"] = target
        return await self._ask("forget_if", params, lambda told: _Deletions.validate_python(told["outcomes"]))

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return await self._ask(
            "tombstones", {"ids": list(ids)}, lambda told: _Tombstones.validate_python(told["tombstones"])
        )

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        params: JsonObject = {"limit": limit}
        if after is not None:
            params["after"] = list(after)
        return await self._ask(
            "tombstones", params, lambda told: _Tombstones.validate_python(told["tombstones"])
        )

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        outcomes: dict[str, Buried] = {}
        for part in _parts(tombstones, PAGE):
            graves = cast("list[Json]", _Tombstones.dump_python(list(part), exclude_none=True))
            outcomes |= await self._ask(
                "tombstones", {"tombstones": graves}, lambda told: _Burials.validate_python(told["outcomes"])
            )
        return outcomes

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        params = _selecting(selected) | {"limit": limit}
        if selected.arrived:
            params["arrived"] = True
        if selected.without is not None:
            params["without"] = selected.without
        if after is not None:
            params["after"] = list(after)
        return await self._ask("list", params, lambda told: _Entries.validate_python(told["entries"]))

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return await self._ask("read", {"ids": list(ids)}, _records)

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        outcomes: dict[str, bool] = {}
        for part in _by_weight(seen, _weight_seen):
            records = cast("list[Json]", _Seen.dump_python([*part], exclude_none=True))
            outcomes |= await self._ask(
                "embed", {"records": records}, lambda told: _Embeddings.validate_python(told["outcomes"])
            )
        return outcomes

    async def settle(self, named: Sequence[Named]) -> None:
        await self._call("settle", {"records": _named(named)})

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
                f"tier {self._name}: its answer to memory/{method} cannot be read: {error}",
                maybe_received=True,
            ) from error

    async def _call(self, method: str, params: JsonObject, seconds: float | None = None) -> JsonObject:
        try:
            return await self._circuit.call(
                lambda: self._client.call(f"memory/{method}", params, timeout=seconds)
            )
        except OpenCircuitError:
            raise
        except TransportError as error:
            raise TransportError(
                f"tier {self._name} does not answer: {error.message}; try again",
                maybe_received=error.maybe_received,
                retryable=error.retryable,
            ) from error

    async def _probe(self) -> None:
        await self._client.call("memory/fetch", _READY)


_READY: JsonObject = {"key": "a2m/ready", "owner": None}
"""A fact that nobody has: it costs a look in the database and no counting."""


class _Vectors(Model, strict=False):
    dimensions: int | None = None
    metric: str = "cosine"
    metrics: tuple[str, ...] = ("cosine",)
    model: str | None = None


class _Counted(Model):
    name: str
    count: int


class _Described(Model, strict=False):
    name: str
    capabilities: list[str]
    kind: str | None = None
    extensions: tuple[str, ...] = ()
    read_only: bool = False
    count: int | None = None
    tiers: tuple[_Counted, ...] = ()
    embeddings: _Vectors | None = None


_KNOWN = frozenset(Capability)
_Count = TypeAdapter(int)
_Sessions = TypeAdapter(list[SessionInfo])
_Tombstones = TypeAdapter(list[Tombstone])
_Entries = TypeAdapter(list[Entry])
_Deletions = TypeAdapter(dict[str, Deleted])
_Seen = TypeAdapter(list[Seen])
_Embeddings = TypeAdapter(dict[str, bool])
_Burials = TypeAdapter(dict[str, Buried])
_Receipts = TypeAdapter(list[Written])
_Objects = TypeAdapter(list[dict[str, Any]])


def _info(told: JsonObject) -> StoreInfo:
    described = _Described.model_validate(told)
    vectors = described.embeddings or _Vectors()
    return StoreInfo(
        name=described.name,
        kind=described.kind,
        capabilities=frozenset(Capability(name) for name in described.capabilities if name in _KNOWN),
        extensions=frozenset(described.extensions),
        read_only=described.read_only,
        dimensions=vectors.dimensions,
        metric=vectors.metric,
        metrics=vectors.metrics,
        embedding_model=vectors.model,
    )


def _counts(told: JsonObject) -> dict[str, int]:
    described = _Described.model_validate(told)
    if described.count is not None:
        return {described.name: described.count}
    return {tier.name: tier.count for tier in described.tiers}


def _scoped(scope: Scope) -> JsonObject:
    """`owner` on the wire: left out for everything, null for pooled records, a name for that owner's."""
    if scope.readable is None:
        return {}
    return {"owner": scope.owner}


def where_json(where: Where) -> JsonObject:
    """A filter as JSON, which parses back to the same; equalities in the protocol's own form."""
    operators: dict[str, JsonObject] = {}
    for condition in where.conditions:
        value: Json = list(condition.values) if condition.op is Op.IN else condition.value
        operators.setdefault(condition.field, {})[condition.op] = value
    return {field: ops[Op.IN] if ops.keys() == {Op.IN} else ops for field, ops in operators.items()}


def _selecting(selected: Filter) -> JsonObject:
    params = _scoped(selected.scope)
    if selected.where:
        params["where"] = where_json(selected.where)
    if selected.key_prefix is not None:
        params["key_prefix"] = selected.key_prefix
    if selected.ids is not None:
        params["ids"] = list(selected.ids)
    if selected.words is not None:
        params["query"] = " ".join(selected.words)
    return params


def _wire(draft: Draft) -> JsonObject:
    fields = cast("JsonObject", draft.model_dump(exclude_none=True, exclude={"chosen", "tier"}))
    for name, default in (("revision", 0), ("moves", 0), ("access_count", 0), ("status", "active")):
        if fields[name] == default:
            del fields[name]
    if not fields["aliases"]:
        del fields["aliases"]
    return fields


def _named(named: Sequence[Named]) -> list[Json]:
    return [{"id": name.id, "etag": name.etag} for name in named]


def _written(told: JsonObject) -> list[Written]:
    if "written" in told:
        return _Receipts.validate_python(told["written"])
    return [Written(str(record_id), "created") for record_id in cast("list[str]", told["ids"])]


def _fetched(told: JsonObject) -> Fetched:
    record = told["record"]
    return Fetched(None if record is None else _record(cast("JsonObject", record)), _silent(told))


def _forgotten(told: JsonObject) -> Forgotten:
    """The receipt; a server that is not ours says how many, not which."""
    count = _Count.validate_python(told["forgotten"])
    ids = cast("list[str]", told.get("ids") or [])
    return Forgotten(ids, {} if ids else {"": count})


def _records(told: JsonObject) -> list[Record]:
    return [_record(record) for record in _Objects.validate_python(told["records"])]


def _found(told: JsonObject) -> Found:
    return Found(_records(told), elsewhere=told.get("elsewhere") is True, degraded=_silent(told))


def _silent(told: JsonObject) -> tuple[Degraded, ...]:
    """What a tier that is a federation itself says of its own."""
    items = _Objects.validate_python(told.get("degraded") or [])
    return tuple(Degraded(str(item["tier"]), str(item["reason"])) for item in items)


def _record(fields: JsonObject) -> Record:
    """A record; one of a server that is not ours is given the fields that we order and compare by."""
    if "seq" not in fields or "etag" not in fields:
        fields = {"seq": seq_of(parse_ms(str(fields["created_at"]))), "etag": "", **fields}
    return Record.parse(fields)


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
