"""`memory/promote`, `memory/consolidate`, `memory/reembed` and `memory/relocate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from a2m_protocol.errors import JsonObject, invalid_params
from a2m_server import events
from a2m_server.call import Call, check_tiers
from a2m_server.store import EmbeddingStore, RelocatingStore, TieredStore
from a2m_server.values import Consolidated

PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds for which writes to a tier wait at most while it is switched to another service."""


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


async def relocate(call: Call) -> JsonObject:
    """Work on bringing a tier to another service: {state, tier, from, to, records, verified, ...}.

    One bounded step of a longer work: it is done when `state` is `switched`.
    """
    check_tiers(call.params, ("tier",), call.info)
    tier, url = call.params.required("tier"), call.params.required("url")
    pause = call.params.amount("pause", PAUSE)
    if not 0 < pause <= LONGEST_PAUSE:
        raise invalid_params(f"pause: expected seconds above 0, at most {LONGEST_PAUSE:g}")
    store = cast("RelocatingStore", call.store)
    done = asdict(await store.relocate(tier, url, pause=pause, dry=call.params.flag("dry")))
    fields: JsonObject = {name: value for name, value in done.items() if value is not None}
    return {"from": fields.pop("source"), "to": fields.pop("target")} | fields


async def told(call: Call, result: Consolidated) -> JsonObject:
    """A reorganisation as its caller may see it: all figures are of the records in its scope."""
    figures = events.figures(events.tallies(result), call.scope)
    return {**figures, "counts": {**await call.store.counts(call.scope)}}
