"""`memory/remnants` and `memory/erase`: what a forget left, and what history keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from a2m_protocol.errors import A2MError, JsonObject, invalid_params, scope_denied
from a2m_server.call import Call
from a2m_server.methods.extensions import MAX_ENTRIES, guard, tier_of
from a2m_server.store import HistoryStore
from a2m_server.values import Erased, Forgotten, Remnant

NAMED = 20
"""Ids that a message lists."""


async def remnants(call: Call) -> JsonObject:
    """The places in which something of `ids` is still found, and what could not be looked through."""
    ids = await _ids(call)
    if not ids:
        return {"remnants": [], "checked": []}
    found = await tier_of(call).remnants(ids)
    result: JsonObject = {
        "remnants": [_remnant(remnant) for remnant in found.remnants],
        "checked": [*found.checked],
    }
    if found.unverified:
        result["unverified"] = [{"tier": d.tier, "reason": d.reason} for d in found.unverified]
    return result


async def erase(call: Call) -> JsonObject:
    """Take what was forgotten out of history as well; a `dry` run says what would be taken."""
    ids = await _ids(call)
    erased = await _erase(call, ids, dry=call.params.flag("dry")) if ids else Erased({})
    return {"outcomes": dict(erased.outcomes), "tiers": dict(erased.tiers), **_remotes(erased)}


async def erase_forgotten(call: Call, ids: Sequence[str], receipt: Forgotten) -> JsonObject:
    """What a forget's answer says of history once `ids` are erased from it.

    A failure says that the forget itself was done, and of which records.
    """
    try:
        erased = await _erase(call, ids)
    except A2MError as error:
        listed = ", ".join(ids[:NAMED]) + (", ..." if len(ids) > NAMED else "")
        raise A2MError(
            error.code,
            f"forgotten, but not erased from history: {error.message}; erase these ids: {listed}",
            {"forgotten": len(receipt.ids), "ids": [*ids], "retryable": error.retryable},
        ) from error
    result: JsonObject = {"erased": dict(erased.tiers), **_remotes(erased)}
    live = [record_id for record_id, outcome in erased.outcomes.items() if outcome == "live"]
    return {**result, "live": [*live]} if live else result


async def check_named(call: Call, ids: Sequence[str]) -> None:
    """Raise -32005 for an id of a record, live or deleted, that the caller may not see."""
    await guard(call, ids)
    if call.scope.readable is not None and "tombstones" in call.info.extensions:
        graves = await tier_of(call).tombstones(ids)
        if any(not call.scope.sees(grave.owner) for grave in graves):
            raise scope_denied("an id is of a record that this caller may not name")


async def _erase(call: Call, ids: Sequence[str], *, dry: bool = False) -> Erased:
    return await cast("HistoryStore", call.store).erase(list(dict.fromkeys(ids)), dry=dry)


async def _ids(call: Call) -> list[str]:
    """The ids of a call, each once."""
    ids = list(dict.fromkeys(call.params.required_ids()))
    if len(ids) > MAX_ENTRIES:
        raise invalid_params(f"ids: {len(ids)} are more than the {MAX_ENTRIES} of a call")
    await check_named(call, ids)
    return ids


def _remnant(remnant: Remnant) -> JsonObject:
    fields: JsonObject = {"id": remnant.id, "place": remnant.place}
    if remnant.tier is not None:
        fields["tier"] = remnant.tier
    if remnant.history:
        fields["history"] = True
    return fields


def _remotes(erased: Erased) -> JsonObject:
    return {"remotes": {tier: [*names] for tier, names in erased.remotes.items()}} if erased.remotes else {}
