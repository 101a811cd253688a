"""`memory/remember`, `memory/forget` and `memory/summarize`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from a2m_protocol.errors import Json, JsonObject, invalid_params
from a2m_protocol.ids import new_id
from a2m_protocol.types import Capability, Draft, Provenance
from a2m_server import events
from a2m_server.call import Call
from a2m_server.drafts import read_drafts, stamped
from a2m_server.methods import remnants
from a2m_server.methods.extensions import guard
from a2m_server.methods.reading import require_filter, silent
from a2m_server.origins import inherited, with_origins
from a2m_server.summarize import extract, newest
from a2m_server.values import ACTIVE, Filter, Page, Written


async def remember(call: Call) -> JsonObject:
    transfer = call.params.flag("transfer")
    if transfer:
        call.require_extension("transfer")
        drafts = read_drafts(call, transfer=True)
        # A receipt would tell of a record that the caller may not see.
        await guard(call, [draft.id for draft in drafts])
        written = await call.transfer(drafts)
    else:
        drafts = await with_origins(call, read_drafts(call))
        written = await call.write(drafts)
        for draft, wrote in zip(drafts, written, strict=True):
            _log(call, draft, wrote)
    result: JsonObject = {"ids": [wrote.id for wrote in written]}
    if any(wrote.pending for wrote in written):
        result["pending"] = [wrote.id for wrote in written if wrote.pending]
    if call.privileged:
        result["written"] = [_receipt(wrote) for wrote in written]
    return result


async def forget(call: Call) -> JsonObject:
    """Forget what is selected; with `erase` out of history too, and so also what named ids left there."""
    erase = call.params.flag("erase")
    if erase:
        call.require_extension("erase")
    call.require_selector()
    require_filter(call, "key_prefix", Capability.KEYS)
    selected = call.selected(call.writes)
    if selected.ids == () or selected.words == ():
        return {"forgotten": 0}
    named = list(selected.ids or ()) if erase and selected == Filter(call.writes, ids=selected.ids) else []
    if named:
        await remnants.check_named(call, named)
    receipt = await call.forget(selected)
    result: JsonObject = {"forgotten": len(receipt.ids)}
    if receipt.tiers:
        result["tiers"] = dict(receipt.tiers)
    if call.privileged:
        result["ids"] = [*receipt.ids]
    if erase:
        result |= await remnants.erase_forgotten(call, [*dict.fromkeys([*named, *receipt.ids])], receipt)
    elif receipt.history:
        result["history"] = dict(receipt.history)
    return result


async def summarize(call: Call) -> JsonObject:
    """Condense what is selected into one record; its sources stay.

    Of very long sources the newest text is read alone. It logs no event: `written` tells what a client
    remembered.
    """
    call.require_selector()
    require_filter(call, "key_prefix", Capability.KEYS)
    params = call.params
    selected = call.selected()
    # What may not be believed yet would be, once it were condensed.
    selected = replace(selected, statuses=selected.statuses or ACTIVE)
    into = call.tier("into")
    key = params.name("key") if call.has(Capability.KEYS) else None
    most = call.server.limits.max_recall_limit
    limit = min(params.limit() or most, most)
    if selected.ids == () or selected.words == ():
        return {"records": [], "read": 0, "written": 0}
    found = await call.store.timeline(Page(selected, limit))
    sources, unread = found.records, silent(found.degraded)
    if not sources:
        return {"records": [], "read": 0, "written": 0, **unread}
    texts = newest([record.content for record in sources])
    sources = sources[len(sources) - len(texts) :]
    content = await asyncio.to_thread(extract, texts)
    if not content:
        return {"records": [], "read": len(sources), "written": 0, **unread}
    owners = {record.owner for record in sources if record.owner is not None}
    if len(owners) > 1:
        raise invalid_params("owner: the selected records belong to several owners; name one of them")
    owner = call.writes.owner
    if call.scope.readable is None and owners and call.writes.sees(theirs := next(iter(owners))):
        owner = theirs
    told = Provenance(derived_from=[record.id for record in sources])
    draft = Draft(
        id=new_id(),
        chosen=False,
        content=content,
        role="memory",
        owner=owner,
        key=key,
        tier=into,
        provenance=inherited(stamped(call, "summarize", told), sources),
    )
    written = await call.write([draft])
    found = await call.store.timeline(Page(Filter(call.scope, ids=(written[0].id,))))
    records: list[Json] = [*call.wire(found.records)]
    return {"records": records, "read": len(sources), "written": len(written), **unread}


def _log(call: Call, draft: Draft, wrote: Written) -> None:
    if wrote.outcome not in ("created", "replaced"):
        return
    call.server.events.add(
        events.written(
            wrote.id,
            draft.owner,
            tier=wrote.tier if call.has(Capability.TIERS) else None,
            session=draft.session,
            # What is pending may be kept beside the fact that has its key.
            key=None if wrote.pending else draft.key,
            revision=wrote.revision,
        )
    )


def _receipt(wrote: Written) -> JsonObject:
    receipt: JsonObject = {"id": wrote.id, "outcome": wrote.outcome, "revision": wrote.revision}
    if wrote.etag:
        receipt["etag"] = wrote.etag
    if wrote.reason:
        receipt["reason"] = wrote.reason
    if wrote.elsewhere:
        receipt["elsewhere"] = True
    if wrote.tier is not None:
        receipt["tier"] = wrote.tier
    return receipt
