"""`memory/fetch` and `memory/reinforce`."""

from __future__ import annotations

from a2m_protocol.errors import JsonObject
from a2m_server.call import Call


async def fetch(call: Call) -> JsonObject:
    key = call.params.required("key")
    vectors = call.vectors
    await call.server.accesses.settle()
    record = await call.store.fetch(key, call.scope, vectors=vectors)
    return {"record": None if record is None else call.wire([record])[0]}


async def reinforce(call: Call) -> JsonObject:
    ids = call.params.required_ids()
    amount = call.params.amount("amount", 1.0)
    if not ids:
        return {"reinforced": 0}
    return {"reinforced": await call.store.reinforce(list(dict.fromkeys(ids)), amount, call.scope)}
