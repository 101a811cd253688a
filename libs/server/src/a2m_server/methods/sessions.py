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
from a2m_server.store import TieredStore
from a2m_server.values import Consolidated, Filter, Found, Page, SessionInfo


async def list_sessions(call: Call) -> JsonObject:
    found = await call.store.sessions(call.scope)
    return {"sessions": [_wire(call, info) for info in found.sessions], **silent(found.degraded)}


async def close_session(call: Call) -> JsonObject:
    session = call.params.required("session")
    owners, whole = await _owners(call, session)
    result = Consolidated()
    if call.has(Capability.TIERS) and (owners or not whole):
        result = await cast("TieredStore", call.store).close_session(session, call.writes)
        owners |= {*result.moved.values()}
        if owners:
            call.server.events.add(events.consolidated(result, owners))
    if owners:
        call.server.events.add(events.session_closed(session, owners))
    answer = await told(call, result)
    return {**answer, "closed": session, "flushed": answer["moved"]}


async def _owners(call: Call, session: str) -> tuple[set[str | None], bool]:
    """Who, of those whose sessions the caller may close, has this one; and whether every tier was asked."""
    if call.writes.readable is None:
        found = await call.store.sessions(call.writes)
        return {info.owner for info in found.sessions if info.session == session}, not found.degraded
    pages = {owner: await _newest(call, session, owner) for owner in call.writes.readable}
    return {o for o, page in pages.items() if page.records}, not any(p.degraded for p in pages.values())


async def _newest(call: Call, session: str, owner: str | None) -> Found:
    wanted = (("session", session), ("owner", owner))
    where = Where(tuple(Condition(field, False, Op.IN, (value,)) for field, value in wanted))
    return await call.store.timeline(Page(Filter(call.writes, where), limit=1))


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
