"""The `memory/describe` document."""

from __future__ import annotations

import re

from a2m_protocol.errors import A2MError, Code, Json, JsonObject
from a2m_protocol.types import PROTOCOL, Capability
from a2m_server import prompt
from a2m_server.call import Call
from a2m_server.methods import EXTENSIONS, METHODS, may_call
from a2m_server.methods.reading import silent
from a2m_server.values import Degraded, StoreInfo, TierInfo

OWNERS = "owners"
"""The extension by which a trusted caller names exactly whose records a call sees."""
UNCOUNTED = "it did not answer: its count is not known"
_VERSION = re.compile(r"a2m/(\d{1,9})\.(\d{1,9})(?:\.\d{1,9})?", re.ASCII)


async def describe(call: Call) -> JsonObject:
    """What this server is to this caller; the counts are of the records in its scope.

    Raises `A2MError` (-32007) for a protocol that is not spoken here. Of the limits announced, more records a
    call and a greater recall limit are -32602, longer content is -32006.
    """
    check_protocol(call.params.text("protocol"))
    info = call.info
    counts = await call.store.counts(call.scope)
    document: JsonObject = {
        "protocol": PROTOCOL,
        "name": info.name,
        "capabilities": [str(c) for c in Capability if call.has(c)],
        "methods": [*methods(call)],
        "limits": _limits(call),
    }
    if info.tiers or call.has(Capability.TIERS):
        document["tiers"] = [_tier(tier, counts.get(tier.name, 0)) for tier in info.tiers]
        unknown = [tier.name for tier in info.tiers if tier.name not in counts]
        document |= silent([Degraded(name, UNCOUNTED) for name in unknown])
    else:
        document["count"] = sum(counts.values())
    if info.kind is not None:
        document["kind"] = info.kind
    if info.read_only:
        document["read_only"] = True
    if call.server.redactor is not None:
        document["redaction"] = "credentials"
    document |= _details(call)
    believed = call.peer.caller.trusted and call.has(Capability.SCOPES)
    extensions = info.extensions | {OWNERS} if believed else info.extensions
    if extensions:
        document["extensions"] = [*sorted(extensions)]
    return document


def check_protocol(wanted: str | None) -> None:
    """Raise -32007 unless `wanted` is what is spoken here; while the major version is 0, minors differ."""
    if wanted is None:
        return
    match, ours = _VERSION.fullmatch(wanted), _VERSION.fullmatch(PROTOCOL)
    if match is None or ours is None or match.groups() != ours.groups():
        raise A2MError(
            Code.PROTOCOL_NOT_SUPPORTED,
            f"protocol {wanted[:40]!r} is not spoken here: use {PROTOCOL}",
            {"supported": [PROTOCOL]},
        )


def methods(call: Call) -> list[str]:
    """Every method that this caller may call, sorted."""
    roles = call.peer.caller.roles
    names = {"memory/describe"}
    names |= {name for name, method in METHODS.items() if call.has(method.capability)}
    names |= {name for name, method in EXTENSIONS.items() if method.name in call.info.extensions}
    return sorted(name for name in names if may_call(roles, name))


def _details(call: Call) -> JsonObject:
    info, details = call.info, JsonObject()
    if call.has(Capability.EMBEDDINGS):
        details["embeddings"] = _embeddings(info)
    if call.has(Capability.EVENTS):
        details["events"] = {"push": call.peer.push, "retained": call.server.events.retained}
    if call.has(Capability.SUMMARIZE):
        details["summarize"] = {"model": None}
    if call.has(Capability.PROMPT):
        details["prompt"] = {"styles": [*prompt.STYLES], "methods": [*prompt.METHODS], "model": None}
    return details


def _embeddings(info: StoreInfo) -> JsonObject:
    told: JsonObject = {
        "dimensions": info.dimensions,
        "metric": info.metric,
        "metrics": [*info.metrics],
        "model": info.embedding_model,
    }
    if info.reembed:
        told["reembed"] = [{"tier": due.tier, "reason": due.reason} for due in info.reembed]
    return told


def _limits(call: Call) -> JsonObject:
    limits = call.server.limits
    told: JsonObject = {
        "max_records_per_call": limits.max_records_per_call,
        "max_recall_limit": limits.max_recall_limit,
        "max_content_length": limits.max_content_length,
    }
    quota = call.server.quota.limit_of(call.peer.caller)
    return told if quota is None else {**told, "max_bytes_held": quota}


def _tier(tier: TierInfo, count: int) -> JsonObject:
    entry: JsonObject = {"name": tier.name, "count": count, "capacity": tier.capacity}
    optional: dict[str, Json] = {
        "kind": tier.kind,
        "spill_to": tier.spill_to,
        "promote_to": tier.promote_to,
        "promote_after": tier.promote_after,
        "half_life": tier.half_life,
    }
    entry |= {name: value for name, value in optional.items() if value is not None}
    if tier.per_session:
        entry["per_session"] = True
    return entry
