"""A tier behind the wire, as a store: the port spoken over A2M."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from a2m_protocol.client import Client
from a2m_protocol.clock import parse_ms, seq_of
from a2m_protocol.errors import Json, JsonObject, TransportError
from a2m_protocol.types import Capability, Draft, Model, Record, explain
from a2m_protocol.where import Op, Where
from a2m_server.store import (
    Buried,
    Degraded,
    Deleted,
    Entry,
    Filter,
    Forgotten,
    Found,
    Named,
    Page,
    Reason,
    Scope,
    Search,
    SessionInfo,
    StoreInfo,
    Tombstone,
    Written,
)

T = TypeVar("T")


class RemoteTier:
    """A `TierStore` over an A2M client.

    A server that is not ours answers the protocol's methods alone; what needs our extensions must not be
    asked of it (`info().extensions` tells).
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def open(self) -> None:
        await self._client.__aenter__()

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def ready(self) -> None:
        await self._client.call("memory/describe")

    async def info(self) -> StoreInfo:
        told = _parse(_Description, await self._client.call("memory/describe"))
        vectors = told.embeddings or _Vectors()
        return StoreInfo(
            name=told.name,
            kind=told.kind,
            capabilities=frozenset(Capability(name) for name in told.capabilities if name in _KNOWN),
            extensions=frozenset(told.extensions),
            read_only=told.read_only,
            dimensions=vectors.dimensions,
            metric=vectors.metric,
            metrics=vectors.metrics,
            embedding_model=vectors.model,
        )

    async def counts(self, scope: Scope) -> dict[str, int]:
        told = _parse(_Description, await self._client.call("memory/describe", _scoped(scope)))
        if told.count is not None:
            return {told.name: told.count}
        return {tier.name: tier.count for tier in told.tiers}

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        records: list[Json] = [_wire(draft) for draft in drafts]
        answer = await self._client.call("memory/remember", {"records": records, **_scoped(scope)})
        return _written(answer, "created")

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        records: list[Json] = [_wire(draft) for draft in drafts]
        return _written(
            await self._client.call("memory/remember", {"records": records, "transfer": True}), "refused"
        )

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
        return _found(await self._client.call("memory/recall", params))

    async def timeline(self, page: Page) -> Found:
        if page.filter.ids is not None or page.filter.words is not None:
            return await self._selected(page)
        params = _selecting(page.filter)
        if page.limit is not None:
            params["limit"] = page.limit
        if page.vectors:
            params["embeddings"] = True
        return _found(await self._client.call("memory/timeline", params))

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Record | None:
        params: JsonObject = {"key": key, "embeddings": vectors, **_scoped(scope)}
        record = (await self._client.call("memory/fetch", params)).get("record")
        return None if record is None else Record.parse(cast("JsonObject", record))

    async def forget(self, selected: Filter) -> Forgotten:
        answer = await self._client.call("memory/forget", _selecting(selected))
        ids = cast("list[str]", answer.get("ids") or [])
        return Forgotten(ids or [""] * cast("int", answer["forgotten"]))

    async def sessions(self, scope: Scope) -> list[SessionInfo]:
        answer = await self._client.call("memory/session/list", _scoped(scope))
        return _parse(_Sessions, answer["sessions"])

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        params: JsonObject = {"ids": list(ids), "amount": amount, **_scoped(scope)}
        return cast("int", (await self._client.call("memory/reinforce", params))["reinforced"])

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self._client.call("memory/touch", {"ids": list(ids), "at": at})

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        records: list[Json] = [{"id": name.id, "etag": name.etag} for name in named]
        params: JsonObject = {"records": records, "reason": reason}
        if target is not None:
            params["target"] = target
        return _parse(_Deletions, (await self._client.call("memory/forget_if", params))["outcomes"])

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        answer = await self._client.call("memory/tombstones", {"ids": list(ids)})
        return _parse(_Tombstones, answer["tombstones"])

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        graves = cast("list[Json]", _Tombstones.dump_python(list(tombstones), exclude_none=True))
        answer = await self._client.call("memory/tombstones", {"tombstones": graves})
        return _parse(_Burials, answer["outcomes"])

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        params = _selecting(selected) | {"limit": limit}
        if selected.arrived:
            params["arrived"] = True
        if after is not None:
            params["after"] = list(after)
        return _parse(_Entries, (await self._client.call("memory/list", params))["entries"])

    async def read(self, ids: Sequence[str]) -> list[Record]:
        answer = await self._client.call("memory/read", {"ids": list(ids)})
        return [Record.parse(record) for record in cast("list[JsonObject]", answer["records"])]

    async def settle(self, named: Sequence[Named]) -> None:
        records: list[Json] = [{"id": name.id, "etag": name.etag} for name in named]
        await self._client.call("memory/settle", {"records": records})

    async def _selected(self, page: Page) -> Found:
        """A timeline by ids or words, which the protocol's own method cannot select by."""
        entries: list[Entry] = []
        after: tuple[int, str] | None = None
        while batch := await self.entries(page.filter, 1_000, after):
            entries += batch
            after = (batch[-1].seq, batch[-1].id)
        if page.limit is not None:
            entries = entries[max(0, len(entries) - page.limit) :]
        records = await self.read([entry.id for entry in entries])
        return Found(sorted(records, key=lambda r: (r.seq, r.id)))


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
_Description = TypeAdapter(_Described)
_Sessions = TypeAdapter(list[SessionInfo])
_Tombstones = TypeAdapter(list[Tombstone])
_Entries = TypeAdapter(list[Entry])
_Deletions = TypeAdapter(dict[str, Deleted])
_Burials = TypeAdapter(dict[str, Buried])
_WrittenList = TypeAdapter(list[Written])


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


def _written(answer: JsonObject, otherwise: str) -> list[Written]:
    if "written" in answer:
        return _parse(_WrittenList, answer["written"])
    outcome = "created" if otherwise == "created" else "refused"
    return [Written(str(record_id), outcome) for record_id in cast("list[str]", answer["ids"])]


def _found(answer: JsonObject) -> Found:
    records = [Record.parse(_complete(r)) for r in cast("list[JsonObject]", answer["records"])]
    told = cast("list[Mapping[str, str]]", answer.get("degraded") or [])
    degraded = tuple(Degraded(item["tier"], item["reason"]) for item in told)
    return Found(records, elsewhere=answer.get("elsewhere") is True, degraded=degraded)


def _complete(record: JsonObject) -> JsonObject:
    """A record of a server that is not ours, with the fields that we order and compare by."""
    if "seq" in record and "etag" in record:
        return record
    return {"seq": seq_of(parse_ms(str(record["created_at"]))), "etag": "", **record}


def _parse(adapter: TypeAdapter[T], value: object) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise TransportError(explain(error, "answer"), maybe_received=True) from error
