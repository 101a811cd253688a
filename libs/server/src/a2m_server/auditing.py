"""What of a call is for the audit log: its method, its ids and how it ended, and nothing of its contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from a2m_protocol.errors import Code, JsonObject
from a2m_protocol.types import MAX_NAME
from a2m_server.audit import MAX_IDS
from a2m_server.identity import Peer, Role
from a2m_server.methods import EXTENSIONS, METHODS

AUDITED = frozenset(name for name, method in METHODS.items() if Role.READER not in method.roles) | {
    name for name, extension in EXTENSIONS.items() if extension.writes
}
"""Methods that write or remove; of all others, only what was denied is noted."""
FIGURES = ("forgotten", "promoted", "reinforced", "moved", "dropped", "flushed", "written", "derived")
NAMES = ("source", "since", "tier", "session")
"""Parameters that say what was removed or moved, where they are text."""
NAMING = ("ids", "id", "records", "tombstones")
"""Parameters that name records."""
HARMLESS = frozenset(Code) - {Code.INTERNAL}
"""Failures after which nothing is done, unless the error says so; of an internal one, nobody knows."""


def entry_of(message: object, response: JsonObject | None, peer: Peer) -> JsonObject | None:
    """The line of a call and its response (None to a notification), or None where there is none."""
    if not isinstance(message, dict):
        return None
    request = cast("Mapping[str, object]", message)
    method = request.get("method")
    if not isinstance(method, str):
        return None
    outcome = _outcome(response)
    params, result = _object(request.get("params")), _object((response or {}).get("result"))
    if outcome != Code.SCOPE_DENIED:
        changed = bool(peer.removed) or bool(_stays(response)) or bool(_uncertain(response))
        if method not in AUDITED or (outcome in HARMLESS and not changed):
            return None
        if method == "memory/tombstones" and "tombstones" not in params:
            return None  # it only reads them
    entry: JsonObject = {
        "principal": peer.caller.name,
        "roles": [*sorted(peer.caller.roles)],
        "method": method[:80],
        "outcome": outcome,
    }
    if peer.client is not None:
        entry["client"] = peer.client
    told = peer.removed or _stays(response) or _ids(result.get("ids")) or _ids(result.get("records"))
    ids = told or _named(params)
    if ids:
        entry |= {"ids": [*ids[:MAX_IDS]], "count": len(ids)}
    if uncertain := _uncertain(response):
        entry["uncertain"] = [*uncertain[:MAX_IDS]]
    if params.get("dry") is True:
        entry["dry"] = True
    entry |= {name: value[:MAX_NAME] for name in NAMES if isinstance(value := params.get(name), str)}
    entry |= {name: value for name in FIGURES if isinstance(value := result.get(name), int)}
    return entry


def denied() -> JsonObject:
    """The line of a request without a credential that is valid here; all are alike, so that many are one."""
    return {"principal": None, "method": "HTTP", "outcome": 401}


def _outcome(response: JsonObject | None) -> str | int:
    """`ok`, the code of the failure, or `not told` of a notification."""
    if response is None:
        return "not told"
    code = _object(response.get("error")).get("code")
    return code if isinstance(code, int) else "ok"


def _stays(response: JsonObject | None) -> list[str]:
    """What a write that failed has changed all the same."""
    return _named_by_error(response, "stays")


def _uncertain(response: JsonObject | None) -> list[str]:
    """What a forget that failed was about to remove."""
    return _named_by_error(response, "uncertain")


def _named_by_error(response: JsonObject | None, name: str) -> list[str]:
    error = _object(None if response is None else response.get("error"))
    return _ids(_object(error.get("data")).get(name))


def _named(params: Mapping[str, object]) -> list[str]:
    found = (_ids(params.get(name)) for name in NAMING)
    return next((ids for ids in found if ids), list[str]())


def _ids(value: object) -> list[str]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    named = (one if isinstance(one, str) else _object(one).get("id") for one in values)
    return [one[:MAX_NAME] for one in named if isinstance(one, str)]


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
