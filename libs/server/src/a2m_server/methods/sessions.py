"""`memory/session/list` and `memory/session/close`."""

from __future__ import annotations

from typing import cast

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import Capability
from a2m_protocol.where import Condition, Op, Where
from a2m_server import events
from a2m_server.call import Call
from a2m_server.methods.reading import silent
from a2m_server.methods.reorganizing import told
from a2m_server.store import Consolidated, Filter, Page, SessionInfo, TieredStore


async def list_sessions(call: Call) -> JsonObject:
    found = await call.store.sessions(call.scope)
    return {"sessions": [_wire(call, info) for info in found.sessions], **silent(found.degraded)}


async def close_session(call: Call) -> JsonObject:
    session = call.params.required("session")
    owners = await _owners(call, session)
    result = Consolidated()
    if owners:
        if call.has(Capability.TIERS):
            result = await cast("TieredStore", call.store).close_session(session, call.scope)
            call.server.events.add(events.consolidated(result, owners))
        call.server.events.add(events.session_closed(session, owners))
    answer = await told(call, result)
    return {**answer, "closed": session, "flushed": answer["moved"]}


async def _owners(call: Call, session: str) -> set[str | None]:
    """Whose session it is; none where there is no such session."""
    if call.scope.readable is None:
        found = (await call.store.sessions(call.scope)).sessions
        return {info.owner for info in found if info.session == session}
    return {owner for owner in call.scope.readable if await _is_of(call, session, owner)}


async def _is_of(call: Call, session: str, owner: str | None) -> bool:
    wanted = (("session", session), ("owner", owner))
    where = Where(tuple(Condition(field, False, Op.IN, (value,)) for field, value in wanted))
    return bool((await call.store.timeline(Page(Filter(call.scope, where), limit=1))).records)


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
