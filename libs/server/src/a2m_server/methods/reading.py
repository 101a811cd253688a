"""`memory/recall` and `memory/timeline`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from a2m_protocol.errors import Json, JsonObject, invalid_params, not_supported
from a2m_protocol.types import Capability, Record
from a2m_protocol.where import Where
from a2m_server import prompt
from a2m_server.call import Call
from a2m_server.params import DEFAULT_RECALL
from a2m_server.records import in_order_of_keys
from a2m_server.values import ACTIVE, KEYED, Degraded, Filter, Found, Page, Search

ORDERS = ("seq", "key")
"""The orders of a timeline; the first is that of writing, and the default."""


async def recall(call: Call) -> JsonObject:
    params = call.params
    _require_filters(call)
    query = params.words("query")
    if params.statuses() not in (None, ACTIVE):
        raise invalid_params("status: a recall finds what is active; list what is not by memory/timeline")
    limit = _recall_limit(call)
    min_score = params.number("min_score")
    rendering = _rendering(call)
    embedding = params.vector("embedding")
    touch = params.flag("touch", default=True) or not call.privileged
    candidates = (params.limit("candidates") or 0) if call.privileged else 0
    search = Search(
        filter=call.matching(),
        limit=max(limit, min(candidates, call.server.limits.max_recall_limit)),
        text=query,
        embedding=embedding,
        embedding_model=params.name("embedding_model") if call.privileged and embedding is not None else None,
        vectors=call.vectors,
        features=params.flag("features") and call.privileged,
        explain=params.flag("explain"),
    )
    await call.server.accesses.settle()
    found = await call.store.search(search)
    if candidates:
        found = replace(found, records=_carried(found.records, limit))
    if min_score is not None:
        found = replace(found, records=[r for r in found.records if (r.score or 0.0) >= min_score])
    if touch:
        call.count_accesses(found.records)
    result = _answer(call, found, features=search.features)
    if found.ranked_by is not None:
        result["ranked_by"] = found.ranked_by
    if search.explain:
        result |= _explained(call, found)
    if rendering is not None:
        result |= rendering.render(found.records, newest_first=False)
    return result


async def timeline(call: Call) -> JsonObject:
    _require_filters(call)
    rendering = _rendering(call)
    page = Page(_believed(call.matching()), call.params.limit(), vectors=call.vectors)
    by_key = _ordered_by_key(call)
    if by_key:
        facts = replace(page.filter, where=Where((*page.filter.where.conditions, KEYED)))
        page = replace(page, filter=facts)
    found = await call.store.timeline(page)
    if by_key:
        found = replace(found, records=in_order_of_keys(found.records))
    result = _answer(call, found)
    if found.elsewhere:
        result["elsewhere"] = True
    if rendering is not None:
        result |= rendering.render(found.records, newest_first=not by_key)
    return result


def _believed(selected: Filter) -> Filter:
    """What a timeline shows that is not asked for a status: of a named session all, else what is active."""
    if selected.statuses is not None or selected.where.only("session") is not None:
        return selected
    return replace(selected, statuses=ACTIVE)


MOST_CARRIED = 2_000_000
"""Characters of records beyond a recall's limit that are sent to a router to choose from."""


def _carried(records: Sequence[Record], limit: int) -> list[Record]:
    """The first `limit`, and of the others as many as do not weigh too much."""
    kept = [*records[:limit]]
    weight = 0
    for record in records[limit:]:
        weight += len(record.content) + len(record.features or "")
        if weight > MOST_CARRIED:
            break
        kept.append(record)
    return kept


def require_filter(call: Call, name: str, capability: Capability) -> None:
    """Raise -32003 for a filter whose capability is not declared: dropping it would select more."""
    if not call.has(capability) and call.params.raw(name) is not None:
        raise not_supported(f"this server does not declare {capability}: leave `{name}` out")


def _ordered_by_key(call: Call) -> bool:
    """Whether a timeline is to be of facts, by key; no store has the first of them by an index."""
    order = call.params.text("order") or ORDERS[0]
    if order not in ORDERS:
        raise invalid_params(f"order: {order[:40]!r} is not known; expected one of {', '.join(ORDERS)}")
    if order != "key":
        return False
    require_filter(call, "order", Capability.KEYS)
    if call.params.limit() is not None:
        raise invalid_params("limit: cannot be given with order: key; narrow with key_prefix, tier or where")
    return True


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


def _answer(call: Call, found: Found, *, features: bool = False) -> JsonObject:
    records: list[Json] = [*call.wire(found.records, features=features)]
    return {"records": records, **silent(found.degraded)}


def _explained(call: Call, found: Found) -> JsonObject:
    """How each record came to its place; of a store that only tells of scores, its rank and score."""
    explained: dict[str, Json] = {}
    for at, record in enumerate(found.records):
        told: JsonObject = {"tier": record.tier or call.info.name, "rank": at + 1, "score": record.score}
        explained[record.id] = found.explained.get(record.id, told)
    took: JsonObject = {part: round(seconds, 6) for part, seconds in found.took.items()}
    return {"explained": explained, "suppressed": [*found.suppressed], "took": took}


def silent(degraded: Sequence[Degraded]) -> JsonObject:
    """What an answer says of the tiers that had no part in it; nothing where all answered."""
    return {"degraded": [{"tier": d.tier, "reason": d.reason} for d in degraded]} if degraded else {}
