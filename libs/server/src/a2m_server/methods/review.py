"""`memory/pending`, `memory/approve` and `memory/reject`: what waits for evidence, and deciding on it."""

from __future__ import annotations

import asyncio
from typing import cast

from a2m_protocol.errors import Json, JsonObject
from a2m_protocol.where import Condition, Op, Where
from a2m_server.call import Call
from a2m_server.methods.reading import silent
from a2m_server.store import ReviewedStore
from a2m_server.values import Filter, Page, Scope

SHOWN = 50
CONTESTS = "provenance.contests"
UNNAMED = "a caller without a name"


async def pending(call: Call) -> JsonObject:
    """The newest pending records, up to `limit` (50), oldest first; of `conflicts`, what contradicts facts.

    The answer is {records, facts}: `facts` has, by the id of each that contradicts one, the active one.
    """
    limit = min(call.params.limit() or SHOWN, call.server.limits.max_recall_limit)
    conflicts = (Condition(CONTESTS, True, Op.EXISTS, (True,)),) if call.params.flag("conflicts") else ()
    where = Where((*call.where().conditions, *conflicts))
    selected = Filter(call.scope, where, call.key_prefix(), statuses=("pending",), tier=call.tier())
    found = await call.store.timeline(Page(selected, limit))
    keys = {r.id: r.provenance.contests for r in found.records if r.provenance is not None}
    # Of one key each owner has a fact of his own, and it is his that is contradicted.
    contested = {r.id: (r.owner, key) for r in found.records if (key := keys.get(r.id)) is not None}
    addresses = [*dict.fromkeys(contested.values())]
    facts = await asyncio.gather(
        *(call.store.fetch(key, Scope.of(owner), vectors=False) for owner, key in addresses)
    )
    found_at = {at: one.record for at, one in zip(addresses, facts, strict=True)}
    # Where he has none, a pooled one may be told.
    held = {at: record for at, record in found_at.items() if record is not None and record.owner == at[0]}
    told: JsonObject = {i: call.wire([held[at]])[0] for i, at in contested.items() if at in held}
    records: list[Json] = [*call.wire(found.records)]
    return {"records": records, "facts": told, **silent(found.degraded)}


async def approve(call: Call) -> JsonObject:
    """Let pending records of `ids` be believed: {approved}, the ids of those that were pending."""
    ids = list(dict.fromkeys(call.params.required_ids()))
    by = call.peer.caller.name or UNNAMED
    if not ids:
        return {"approved": []}
    approved = await cast("ReviewedStore", call.store).approve(ids, call.writes, by)
    return {"approved": [*approved]}


async def reject(call: Call) -> JsonObject:
    """Forget pending records of `ids`, and nothing else: {rejected}, the ids of those that were pending."""
    ids = tuple(dict.fromkeys(call.params.required_ids()))
    if not ids:
        return {"rejected": []}
    receipt = await call.forget(Filter(call.writes, ids=ids, statuses=("pending",)))
    return {"rejected": [*receipt.ids]}
