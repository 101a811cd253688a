"""What a command is about to do something to, in words and in number."""

from __future__ import annotations

import json

from a2m_cli.rendering import counted, objects, safe
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, Json, JsonObject

_PAGE = 1_000
_MOST = 100_000


def words(selected: JsonObject) -> str:
    """The selectors of a call as a person would say them, such as `of session 'trip' in tier working`."""
    where = dict(held) if isinstance(held := selected.get("where"), dict) else {}
    parts: list[str] = []
    if "session" in where:
        parts.append(f"of session {_quoted(where.pop('session'))}")
    if "owner" in selected:
        parts.append(f"of owner {_quoted(selected['owner'])}")
    if "tier" in selected:
        parts.append(f"in tier {safe(selected['tier'])}")
    if "key_prefix" in selected:
        parts.append(f"with keys at or beneath {_quoted(selected['key_prefix'])}")
    if "query" in selected:
        parts.append(f"that hold every word of {_quoted(selected['query'])}")
    if where:
        parts.append(f"where {safe(json.dumps(where, ensure_ascii=False))}")
    if isinstance(ids := selected.get("ids"), list):
        parts.append(f"among the {counted(len(ids), 'id')} given")
    return ", ".join(parts)


async def count(client: Client, selected: JsonObject) -> str:
    """How many records match now: `12 records`, or without a number where a server does not list them."""
    found: set[Json] = set()  # a record that is being moved is listed by both of its tiers
    after: list[Json] | None = None
    while len(found) < _MOST:
        params: JsonObject = {**selected, "limit": _PAGE}
        if after is not None:
            params["after"] = after
        try:
            page = await client.call("memory/list", params)
        except A2MError as error:
            if error.code in _UNLISTED:
                return "all records (this server does not say how many)"
            raise
        entries = objects(page.get("entries"))
        found.update(entry["id"] for entry in entries)
        if page.get("more") is not True or not entries:
            return counted(len(found), "record")
        after = [entries[-1]["seq"], entries[-1]["id"]]
    return f"more than {_MOST} records"


_UNLISTED = frozenset({-32601, -32003, -32005})


def _quoted(value: Json) -> str:
    return f"'{safe(value)}'"
