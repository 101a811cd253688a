"""Methods of our own, by which a router moves records: for the roles router and operator alone.

A caller whose `owner` is not believed may name pooled records alone, here as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Literal, TypeVar, cast

from pydantic import Field, ValidationError

from a2m_protocol.clock import MAX_SEQ, format_ms, parse_ms
from a2m_protocol.errors import Json, JsonObject, invalid_params, scope_denied
from a2m_protocol.types import (
    MAX_FEATURES,
    MAX_NAME,
    Capability,
    Count,
    Model,
    Name,
    Status,
    Text,
    Vector,
    explain,
)
from a2m_server.call import Call, check_tiers
from a2m_server.methods.reading import require_filter
from a2m_server.params import checked
from a2m_server.store import SearchingStore, TierStore
from a2m_server.values import EVERYONE, Entry, Filter, Judged, Named, Reason, Seen, Tombstone

MAX_ENTRIES = 1_000
REASONS: Mapping[str, Reason] = {"forgotten": "forgotten", "moved": "moved", "undo": "undo"}


async def forget_if(call: Call) -> JsonObject:
    """Delete all records that are named by id and etag if none has changed, else none."""
    named = [Named(name.id, name.etag) for name in _read(call, "records", _Named)]
    reason = REASONS.get(call.params.required("reason"))
    if reason is None:
        raise invalid_params(f"reason: expected one of {', '.join(REASONS)}")
    target = call.params.name("target")
    await guard(call, [name.id for name in named])
    return _outcomes(await tier_of(call).delete_if(named, reason, target) if named else {})


async def tombstones(call: Call) -> JsonObject:
    """The tombstones of `ids`; given `tombstones`, put them; given `limit` instead, a page of the forgotten.

    Such a page is by `seq` then id, beyond `after`. Unless it is the last, the answer has the next `after`.
    """
    if call.params.raw("tombstones") is not None:
        graves = [Tombstone(**grave.model_dump()) for grave in _read(call, "tombstones", _Tombstone)]
        for grave in graves:
            if not call.scope.sees(grave.owner):
                raise scope_denied(f"the tombstone of {grave.id!r} names an owner that this caller may not")
        await guard(call, [grave.id for grave in graves])
        return _outcomes(await tier_of(call).bury(graves) if graves else {})
    if "ids" not in call.params and "limit" in call.params:
        limit = _page_size(call)
        found = await _seen_graves(call, limit, _position(call.params.raw("after")))
        page: JsonObject = {"tombstones": _graves(call, found)}
        if len(found) == limit:
            page["after"] = [found[-1].seq, found[-1].id]
        return page
    ids = call.params.required_ids()
    return {"tombstones": _graves(call, await tier_of(call).tombstones(ids) if ids else [])}


async def list_entries(call: Call) -> JsonObject:
    """Records without their content, oldest first, a page at a time; `more` says that it was full.

    `without` names a model of whose vectors they have none; the empty name stands for every model.
    """
    check_tiers(call.params, ("tier",), call.info)
    require_filter(call, "key_prefix", Capability.KEYS)
    limit = _page_size(call)
    after = _position(call.params.raw("after"))
    selected = replace(call.selected(), arrived=call.params.flag("arrived"), without=_model(call, "without"))
    await call.server.accesses.settle()
    found = await tier_of(call).entries(selected, limit, after)
    entries: list[Json] = [_entry(entry) for entry in found]
    return {"entries": entries, "more": len(found) == limit}


async def read(call: Call) -> JsonObject:
    """Records whole, with vectors, features and aliases."""
    ids = call.params.required_ids()
    found = await tier_of(call).read(ids) if ids else []
    records: list[Json] = [*call.wire([r for r in found if call.scope.sees(r.owner)], private=True)]
    return {"records": records}


async def settle(call: Call) -> JsonObject:
    """Take the mark of a move under way from records that are named by id and etag."""
    named = [Named(name.id, name.etag) for name in _read(call, "records", _Named)]
    await guard(call, [name.id for name in named])
    if named:
        await tier_of(call).settle(named)
    return {}


async def judge(call: Call) -> JsonObject:
    """Set the status of records that are named by id and etag; whether it was set, of each."""
    judged = [Judged(**one.model_dump()) for one in _read(call, "records", _Judged)]
    if len({one.id for one in judged}) < len(judged):
        raise invalid_params("records: expected each id once")
    await guard(call, [one.id for one in judged])
    outcomes = await tier_of(call).judge(judged) if judged else {}
    return {"outcomes": {**outcomes}}


async def embed(call: Call) -> JsonObject:
    """Keep what a model saw in records that are named by id and etag; whether it was kept, of each."""
    seen = [Seen(**one.model_dump()) for one in _read(call, "records", _Seen)]
    if len({one.id for one in seen}) < len(seen):
        raise invalid_params("records: expected each id once")
    if len({len(one.embedding) for one in seen}) > 1:
        raise invalid_params("records: expected embeddings of one width")
    await guard(call, [one.id for one in seen])
    outcomes = await cast("SearchingStore", call.store).embed(seen) if seen else {}
    return {"outcomes": {**outcomes}}


async def touch(call: Call) -> JsonObject:
    """Count one access a mention."""
    ids = call.params.required_ids()
    at = call.params.required("at")
    try:
        at = format_ms(parse_ms(at))
    except ValueError as error:
        raise invalid_params(f"at: {error}") from None
    await guard(call, ids)
    if ids:
        await call.store.touch(ids, at)
    return {}


async def held(call: Call) -> JsonObject:
    """The bytes that records of the call's `owner` take, in all and by tier; by default the caller's own."""
    tiers = await tier_of(call).held(call.scope.owner)
    return {"bytes": sum(tiers.values()), "tiers": {**tiers}}


class _Named(Model):
    id: Name
    etag: Text


class _Seen(_Named):
    embedding: Vector
    embedding_model: Name
    features: Annotated[Text, Field(max_length=MAX_FEATURES)] | None = None


class _Judged(_Named):
    status: Status
    approved: Name | None = None


class _Tombstone(Model):
    id: Name
    reason: Literal["forgotten", "moved"]
    seq: Annotated[int, Field(ge=-MAX_SEQ, le=MAX_SEQ)]
    owner: Name | None = None
    key: Name | None = None
    session: Name | None = None
    target: Name | None = None
    moves: Count = 0


_Item = TypeVar("_Item", bound=Model)


def _read(call: Call, name: str, model: type[_Item]) -> list[_Item]:
    values = call.params.objects(name)
    if values is None:
        raise invalid_params(f"{name}: is missing; expected an array of objects")
    items: list[_Item] = []
    for index, value in enumerate(values):
        try:
            items.append(model.model_validate(value))
        except ValidationError as error:
            raise invalid_params(explain(error, f"{name}[{index}]")) from error
    return items


def _model(call: Call, name: str) -> str | None:
    """The name of a model, which may be empty."""
    model = call.params.text(name)
    if model is not None and len(model) > MAX_NAME:
        raise invalid_params(f"{name}: expected the name of a model, of at most {MAX_NAME} characters")
    return model


def _page_size(call: Call) -> int:
    limit = call.params.limit() or MAX_ENTRIES
    if limit > MAX_ENTRIES:
        raise invalid_params(f"limit: {limit} is above the {MAX_ENTRIES} entries of a page")
    return limit


def _position(value: object) -> tuple[int, str] | None:
    if value is None:
        return None
    pair = cast("list[object]", value) if isinstance(value, list) else []
    match pair:
        case [int() as seq, str() as record_id] if not isinstance(seq, bool) and abs(seq) <= MAX_SEQ:
            return seq, checked("after", record_id)
        case _:
            raise invalid_params("after: expected [seq, id] of the last entry seen")


async def guard(call: Call, ids: Sequence[str]) -> None:
    """Raise -32005 where a live record of `ids` is one that the caller may not see."""
    if call.scope.readable is None or not ids:
        return
    selected = Filter(EVERYONE, ids=tuple(dict.fromkeys(ids)))
    if any(not call.scope.sees(e.owner) for e in await tier_of(call).entries(selected, len(ids), None)):
        raise scope_denied("an id is of a record that this caller may not name")


def tier_of(call: Call) -> TierStore:
    """The store as one that has our extensions, which the dispatcher looked up in its `info`."""
    return cast("TierStore", call.store)


async def _seen_graves(call: Call, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
    """A page of those that the caller may see: the place where it ends must not be another owner's."""
    seen: list[Tombstone] = []
    while True:
        found = await tier_of(call).graves(limit, after)
        seen += [grave for grave in found if call.scope.sees(grave.owner)]
        if len(found) < limit or len(seen) >= limit:
            return seen[:limit]
        after = (found[-1].seq, found[-1].id)


def _graves(call: Call, found: Sequence[Tombstone]) -> list[Json]:
    """Tombstones as JSON, those of owners that the caller may see."""
    return [_fields(asdict(grave)) for grave in found if call.scope.sees(grave.owner)]


def _entry(entry: Entry) -> JsonObject:
    fields = _fields(asdict(entry))
    if not entry.moves:
        del fields["moves"]
    return fields


def _fields(values: Mapping[str, Json]) -> JsonObject:
    return {name: value for name, value in values.items() if value is not None}


def _outcomes(outcomes: Mapping[str, str]) -> JsonObject:
    return {"outcomes": dict(outcomes)}
