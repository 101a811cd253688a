"""`memory/promote` and `memory/consolidate`."""

from __future__ import annotations

from typing import cast

from a2m_protocol.errors import JsonObject
from a2m_server import events
from a2m_server.call import Call
from a2m_server.store import Consolidated, Filter, Page, TieredStore


async def promote(call: Call) -> JsonObject:
    params = call.params
    tier = params.required("tier")
    ids = list(dict.fromkeys(params.required_ids()))
    salience = params.amount("salience", 0.0)
    if not ids:
        return {"promoted": 0}
    before = await call.store.timeline(Page(Filter(call.scope, ids=tuple(ids))))
    moving = {record.id: record.owner for record in before.records if record.tier != tier}
    promoted = await cast("TieredStore", call.store).promote(ids, tier, salience, call.scope)
    if promoted and moving:
        call.server.events.add(events.promoted(moving, tier))
    return {"promoted": promoted}


async def consolidate(call: Call) -> JsonObject:
    result = await cast("TieredStore", call.store).consolidate()
    call.server.events.add(events.consolidated(result))
    return await told(call, result)


async def told(call: Call, result: Consolidated) -> JsonObject:
    """A reorganisation as its caller may see it: the counts are of the records in its scope."""
    scoped = call.scope.readable is not None
    counts = await call.store.counts(call.scope) if scoped or not result.counts else result.counts
    return {**events.figures(result), "counts": dict(counts)}
