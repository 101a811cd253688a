"""`memory/recall` and `memory/timeline`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import Json, JsonObject, invalid_params, not_supported
from a2m_protocol.types import Capability
from a2m_server import prompt
from a2m_server.call import Call
from a2m_server.params import DEFAULT_RECALL
from a2m_server.store import Degraded, Found, Page, Search


async def recall(call: Call) -> JsonObject:
    params = call.params
    _require_filters(call)
    query = params.text("query")
    limit = _recall_limit(call)
    min_score = params.number("min_score")
    rendering = _rendering(call)
    embedding = params.vector("embedding")
    touch = params.flag("touch", default=True) or not call.privileged
    search = Search(
        filter=call.matching(),
        limit=limit,
        text=query if query and query.strip() else None,
        embedding=embedding,
        embedding_model=params.name("embedding_model") if call.privileged and embedding is not None else None,
        vectors=call.vectors,
    )
    await call.server.accesses.settle()
    found = await call.store.search(search)
    if min_score is not None:
        found = replace(found, records=[r for r in found.records if (r.score or 0.0) >= min_score])
    if touch and not call.info.read_only:
        call.server.accesses.count([r.id for r in found.records], format_ms(time.time_ns() // 1_000_000))
    result = _answer(call, found)
    if rendering is not None:
        result |= rendering.render(found.records, newest_first=False)
    return result


async def timeline(call: Call) -> JsonObject:
    _require_filters(call)
    rendering = _rendering(call)
    page = Page(call.matching(), call.params.limit(), vectors=call.vectors)
    found = await call.store.timeline(page)
    result = _answer(call, found)
    if found.elsewhere:
        result["elsewhere"] = True
    if rendering is not None:
        result |= rendering.render(found.records, newest_first=True)
    return result


def require_filter(call: Call, name: str, capability: Capability) -> None:
    """Raise -32003 for a filter whose capability is not declared: dropping it would select more."""
    if not call.has(capability) and call.params.raw(name) is not None:
        raise not_supported(f"this server does not declare {capability}: leave `{name}` out")


def _require_filters(call: Call) -> None:
    require_filter(call, "key_prefix", Capability.KEYS)
    require_filter(call, "embedding", Capability.EMBEDDINGS)


def _recall_limit(call: Call) -> int:
    most = call.server.limits.max_recall_limit
    limit = call.params.integer("limit")
    if limit is None:
        return min(DEFAULT_RECALL, most)
    if limit > most:
        raise invalid_params(f"limit: {limit} is above this server's max_recall_limit of {most}")
    return limit or most


def _rendering(call: Call) -> prompt.Rendering | None:
    if not call.has(Capability.PROMPT):
        return None
    return prompt.parse(call.params.raw("prompt"))


def _answer(call: Call, found: Found) -> JsonObject:
    records: list[Json] = [*call.wire(found.records)]
    return {"records": records, **silent(found.degraded)}


def silent(degraded: Sequence[Degraded]) -> JsonObject:
    """What an answer says of the tiers that had no part in it; nothing where all answered."""
    return {"degraded": [{"tier": d.tier, "reason": d.reason} for d in degraded]} if degraded else {}
