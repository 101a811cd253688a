"""`memory/fetch` and `memory/reinforce`."""

from __future__ import annotations

from a2m_protocol.errors import JsonObject
from a2m_server.call import Call
from a2m_server.methods.reading import silent


async def fetch(call: Call) -> JsonObject:
    key = call.params.required("key")
    vectors = call.vectors
    await call.server.accesses.settle()
    found = await call.store.fetch(key, call.scope, vectors=vectors)
    record = None if found.record is None else call.wire([found.record])[0]
    return {"record": record, **silent(found.degraded)}


async def reinforce(call: Call) -> JsonObject:
    ids = call.params.required_ids()
    amount = call.params.amount("amount", 1.0)
    if not ids:
        return {"reinforced": 0}
    return {"reinforced": await call.store.reinforce(list(dict.fromkeys(ids)), amount, call.writes)}
