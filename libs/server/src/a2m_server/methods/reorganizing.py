"""`memory/promote`, `memory/consolidate` and `memory/reembed`."""

from __future__ import annotations

from typing import cast

from a2m_protocol.errors import JsonObject
from a2m_server import events
from a2m_server.call import Call, check_tiers
from a2m_server.store import EmbeddingStore, TieredStore
from a2m_server.values import Consolidated


async def promote(call: Call) -> JsonObject:
    params = call.params
    tier = params.required("tier")
    ids = list(dict.fromkeys(params.required_ids()))
    salience = params.amount("salience", 0.0)
    if not ids:
        return {"promoted": 0}
    promoted = await cast("TieredStore", call.store).promote(ids, tier, salience, call.writes)
    if promoted:
        call.server.events.add(events.promoted(promoted, tier))
    return {"promoted": len(promoted)}


async def consolidate(call: Call) -> JsonObject:
    result = await cast("TieredStore", call.store).consolidate()
    call.server.events.add(events.consolidated(result))
    return await told(call, result)


async def reembed(call: Call) -> JsonObject:
    """Give some records that lack a vector of the federation's model one: {embedded, left, refused?}.

    One bounded step of a longer work: it is done when nothing is left.
    """
    check_tiers(call.params, ("tier",), call.info)
    done = await cast("EmbeddingStore", call.store).reembed(call.params.name("tier"))
    told: JsonObject = {"embedded": done.embedded, "left": done.left}
    return told | ({"refused": done.refused} if done.refused else {})


async def told(call: Call, result: Consolidated) -> JsonObject:
    """A reorganisation as its caller may see it: all figures are of the records in its scope."""
    figures = events.figures(events.tallies(result), call.scope)
    return {**figures, "counts": {**await call.store.counts(call.scope)}}
