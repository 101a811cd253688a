"""`memory/session/list` and `memory/session/close`."""

from __future__ import annotations

from typing import cast

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import Capability
from a2m_protocol.where import Condition, Op, Where
from a2m_server import events
from a2m_server.call import Call
from a2m_server.methods.reorganizing import told
from a2m_server.store import Consolidated, Filter, Page, SessionInfo, TieredStore

NEWEST = 100


async def list_sessions(call: Call) -> JsonObject:
    return {"sessions": [_wire(call, info) for info in await call.store.sessions(call.scope)]}


async def close_session(call: Call) -> JsonObject:
    session = call.params.required("session")
    owners = await _owners(call, session)
    result, flushed = Consolidated(), 0
    if owners:
        if call.has(Capability.TIERS):
            result, flushed = await cast("TieredStore", call.store).close_session(session, call.scope)
            call.server.events.add(events.consolidated(result, owners))
        call.server.events.add(events.session_closed(session, owners))
    return {**await told(call, result), "closed": session, "flushed": flushed}


async def _owners(call: Call, session: str) -> set[str | None]:
    """Whose session it is, by its newest records; none where there is no such session."""
    where = Where((Condition("session", False, Op.IN, (session,)),))
    newest = await call.store.timeline(Page(Filter(call.scope, where), limit=NEWEST))
    return {record.owner for record in newest.records}


def _wire(call: Call, info: SessionInfo) -> JsonObject:
    session: JsonObject = {
        "session": info.session,
        "records": info.records,
        "opened_at": info.opened_at,
        "touched_at": info.touched_at,
    }
    if call.has(Capability.SCOPES) and info.owner is not None:
        session["owner"] = info.owner
    if call.has(Capability.TIERS) and info.tiers:
        session["tiers"] = dict(info.tiers)
    return session
