"""The port's values as JSON: what a tier is sent, and what its answers say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter

from a2m_protocol.clock import parse_ms, seq_of
from a2m_protocol.errors import Json, JsonObject
from a2m_protocol.types import Capability, Draft, Model, Record
from a2m_protocol.where import Condition, Op, Where
from a2m_server.values import (
    Buried,
    Degraded,
    Deleted,
    Entry,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Judged,
    Named,
    Scope,
    Seen,
    SessionInfo,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)


class _Vectors(Model, strict=False):
    dimensions: int | None = None
    metric: str = "cosine"
    metrics: tuple[str, ...] = ("cosine",)
    model: str | None = None


class _Counted(Model):
    name: str
    count: int


class _Limits(Model, strict=False):
    max_recall_limit: int | None = None


class _Described(Model, strict=False):
    name: str
    capabilities: list[str]
    kind: str | None = None
    extensions: tuple[str, ...] = ()
    read_only: bool = False
    count: int | None = None
    tiers: tuple[_Counted, ...] = ()
    embeddings: _Vectors | None = None
    limits: _Limits = _Limits()


_KNOWN = frozenset(Capability)
_Count = TypeAdapter(int)
_Sessions = TypeAdapter(list[SessionInfo])
_Tombstones = TypeAdapter(list[Tombstone])
_Entries = TypeAdapter(list[Entry])
_Deletions = TypeAdapter(dict[str, Deleted])
_Judged = TypeAdapter(list[Judged])
_Seen = TypeAdapter(list[Seen])
_Kept = TypeAdapter(dict[str, bool])
_Held = TypeAdapter(dict[str, int])
_Burials = TypeAdapter(dict[str, Buried])
_Receipts = TypeAdapter(list[Written])
_Objects = TypeAdapter(list[dict[str, Any]])


def scoped(scope: Scope) -> JsonObject:
    """A scope on the wire: left out for everything, else its owner, null being no owner's.

    Where that is not all that it sees, or where it does not see pooled records too, `owners` are named. A
    server that is not ours takes no notice of them.
    """
    if scope.readable is None:
        return {}
    if is_plain(scope):
        return {"owner": scope.owner}
    return {"owner": scope.owner, "owners": [*_listed(scope.readable)]}


def is_plain(scope: Scope) -> bool:
    """Whether `owner` alone says what a scope sees."""
    return scope.readable is None or scope.readable == frozenset({scope.owner, None})


def narrowed(where: Where, scope: Scope) -> Where:
    """A filter that selects within a scope, for a server that is told but an `owner`."""
    if scope.readable is None or is_plain(scope):
        return where
    owners = Condition("owner", False, Op.IN, _listed(scope.readable))
    return Where((*where.conditions, owners))


def _listed(owners: frozenset[str | None]) -> tuple[str | None, ...]:
    named = sorted(owner for owner in owners if owner is not None)
    return (*named, None) if None in owners else tuple(named)


def where_json(where: Where) -> JsonObject:
    """A filter as JSON, which parses back to the same; equalities in the protocol's own form."""
    operators: dict[str, JsonObject] = {}
    for condition in where.conditions:
        value: Json = list(condition.values) if condition.op is Op.IN else condition.value
        operators.setdefault(condition.field, {})[condition.op] = value
    return {field: ops[Op.IN] if ops.keys() == {Op.IN} else ops for field, ops in operators.items()}


def selecting(selected: Filter) -> JsonObject:
    """What a filter selects by; its scope apart."""
    params: JsonObject = {}
    if selected.where:
        params["where"] = where_json(selected.where)
    if selected.key_prefix is not None:
        params["key_prefix"] = selected.key_prefix
    if selected.ids is not None:
        params["ids"] = list(selected.ids)
    if selected.words is not None:
        params["query"] = " ".join(selected.words)
    if selected.statuses is not None:
        params["status"] = list(selected.statuses)
    return params


def draft_json(draft: Draft) -> JsonObject:
    fields = cast("JsonObject", draft.model_dump(exclude_none=True, exclude={"chosen", "tier"}))
    for name, default in (("revision", 0), ("moves", 0), ("access_count", 0), ("status", "active")):
        if fields[name] == default:
            del fields[name]
    if not fields["aliases"]:
        del fields["aliases"]
    # Said also where there is none: left out, it would be the owner that the call names.
    return {**fields, "owner": draft.owner}


def named_json(named: Sequence[Named]) -> list[Json]:
    return [{"id": name.id, "etag": name.etag} for name in named]


def judged_json(judged: Sequence[Judged]) -> list[Json]:
    return cast("list[Json]", _Judged.dump_python([*judged], exclude_none=True))


def seen_json(seen: Sequence[Seen]) -> list[Json]:
    return cast("list[Json]", _Seen.dump_python([*seen], exclude_none=True))


def tombstones_json(tombstones: Sequence[Tombstone]) -> list[Json]:
    return cast("list[Json]", _Tombstones.dump_python([*tombstones], exclude_none=True))


def info(told: JsonObject) -> StoreInfo:
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
        max_recall=described.limits.max_recall_limit,
    )


def counts(told: JsonObject) -> dict[str, int]:
    described = _Described.model_validate(told)
    if described.count is not None:
        return {described.name: described.count}
    return {tier.name: tier.count for tier in described.tiers}


def written(told: JsonObject) -> list[Written]:
    if "written" in told:
        return _Receipts.validate_python(told["written"])
    return [Written(str(record_id), "created") for record_id in cast("list[str]", told["ids"])]


def found(told: JsonObject) -> Found:
    return Found(records(told), elsewhere=told.get("elsewhere") is True, degraded=_silent(told))


def records(told: JsonObject) -> list[Record]:
    return [_record(record) for record in _Objects.validate_python(told["records"])]


def fetched(told: JsonObject) -> Fetched:
    record = told["record"]
    return Fetched(None if record is None else _record(cast("JsonObject", record)), _silent(told))


def forgotten(told: JsonObject) -> Forgotten:
    """The receipt; a server that is not ours says how many, not which."""
    count = _Count.validate_python(told["forgotten"])
    ids = cast("list[str]", told.get("ids") or [])
    return Forgotten(ids, {} if ids else {"": count})


def sessions(told: JsonObject) -> Sessions:
    return Sessions(_Sessions.validate_python(told["sessions"]), _silent(told))


def reinforced(told: JsonObject) -> int:
    return _Count.validate_python(told["reinforced"])


def entries(told: JsonObject) -> list[Entry]:
    return _Entries.validate_python(told["entries"])


def tombstones(told: JsonObject) -> list[Tombstone]:
    return _Tombstones.validate_python(told["tombstones"])


def deletions(told: JsonObject) -> dict[str, Deleted]:
    return _Deletions.validate_python(told["outcomes"])


def burials(told: JsonObject) -> dict[str, Buried]:
    return _Burials.validate_python(told["outcomes"])


def kept(told: JsonObject) -> dict[str, bool]:
    return _Kept.validate_python(told["outcomes"])


def held(told: JsonObject) -> dict[str, int]:
    return _Held.validate_python(told["tiers"])


def _record(fields: JsonObject) -> Record:
    """A record; one of a server that is not ours is given the fields that we order and compare by."""
    if "seq" not in fields or "etag" not in fields:
        fields = {"seq": seq_of(parse_ms(str(fields["created_at"]))), "etag": "", **fields}
    return Record.parse(fields)


def _silent(told: JsonObject) -> tuple[Degraded, ...]:
    """What a tier that is a federation itself says of its own."""
    items = _Objects.validate_python(told.get("degraded") or [])
    return tuple(Degraded(str(item["tier"]), str(item["reason"])) for item in items)
