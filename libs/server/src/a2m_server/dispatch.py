"""The one dispatcher: JSON-RPC in and out, over any store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

from a2m_protocol import jsonrpc
from a2m_protocol.errors import (
    A2MError,
    Code,
    Json,
    JsonObject,
    invalid_params,
    not_supported,
    scope_denied,
)
from a2m_server.accesses import Accesses
from a2m_server.call import Call, Server, check_tiers, declared, scopes_of
from a2m_server.describe import describe
from a2m_server.events import EventLog, Events
from a2m_server.identity import Peer, Role
from a2m_server.methods import EXTENSIONS, METHODS, Extension, Method
from a2m_server.params import Limits, Params
from a2m_server.quota import Quota
from a2m_server.redaction import Redactor
from a2m_server.sizes import Measured, Size
from a2m_server.store import MemoryStore
from a2m_server.values import Degraded, StoreInfo

FRESH = 5.0
"""Seconds for which what a store says of itself is believed, so that a call need not ask it first."""

READ_ONLY = "this server is read only: write to the system that it reads from"


class Dispatcher:
    """Answers `memory/*` over one store: parameters, limits, scope, events and `describe`, alike for all.

    A federation that reorganises itself in the background is given the same `events`.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        limits: Limits | None = None,
        events: Events | None = None,
        quota: Quota | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._store = store
        self._accesses = Accesses(store)
        self._quota = quota or Quota()
        self._server = Server(
            store, limits or Limits(), events or EventLog(), self._accesses, self._quota, redactor
        )
        self._info: StoreInfo | None = None
        self._asked_at = 0.0

    async def open(self) -> None:
        await self._store.open()
        await self._quota.open()

    async def close(self) -> None:
        """Write the accesses still to be counted, then close the store."""
        await self._quota.close()
        await self._accesses.flush()
        await self._store.close()

    async def ready(self) -> Sequence[Degraded] | None:
        """Return when the store answers, else raise `A2MError`; of several tiers, name those that do not."""
        return await self._store.ready()

    async def size(self) -> Size | None:
        """How much the store holds, None where it does not know."""
        return await self._store.size() if isinstance(self._store, Measured) else None

    async def describe(self, peer: Peer, *, owner: str | None = None) -> JsonObject:
        """The describe document as `peer` may see it; `owner` scopes the counts."""
        params: JsonObject = {} if owner is None else {"owner": owner}
        return await self._call("memory/describe", params, peer)

    async def handle(self, message: object, peer: Peer) -> JsonObject | None:
        """The response to a parsed message, or None where it is a notification.

        A failure of the call is in the response. An exception that is no `A2MError` is a bug and passes.
        """
        notification = False
        number: Json = None
        try:
            request = _request(message)
            notification = "id" not in request
            number = request.get("id")
            response = jsonrpc.success(number, await self._call(*_target(request), peer))
        except A2MError as error:
            response = jsonrpc.failure(number, error)
        return None if notification else response

    async def _call(self, name: str, params: object, peer: Peer) -> JsonObject:
        method = METHODS.get(name)
        extension = EXTENSIONS.get(name)
        answering = method or extension
        if answering is None and name != "memory/describe":
            raise A2MError(
                Code.METHOD_NOT_FOUND, f"no method {name[:80]!r}: memory/describe lists those here"
            )
        info = await self._about(fresh=name == "memory/describe")
        capabilities = declared(info, peer)
        if method is not None:
            _check_offered(name, method, info)
        if extension is not None and extension.name not in info.extensions:
            raise not_supported(f"this server does not have the extension {extension.name!r}")
        _check_role(name, answering, peer)
        if not isinstance(params, dict):
            raise invalid_params("params: expected an object, of parameters by name")
        read = Params(cast("Mapping[str, object]", params))
        if method is not None:
            check_tiers(read, method.tiers, info)
        changes = answering is not None and Role.READER not in answering.roles
        seen, written = scopes_of(read, peer.caller, capabilities, writes=changes)
        call = Call(self._server, info, peer, read, capabilities, seen, written)
        return await (describe if answering is None else answering.answer)(call)

    async def _about(self, *, fresh: bool) -> StoreInfo:
        now = time.monotonic()
        if fresh or self._info is None or now - self._asked_at > FRESH:
            self._info = await self._store.info()
            self._asked_at = now
        return self._info


def _check_role(name: str, method: Method | Extension | None, peer: Peer) -> None:
    if method is not None and method.roles.isdisjoint(peer.caller.roles):
        allowed = ", ".join(role for role in Role if role in method.roles)
        raise scope_denied(f"{name} is for callers with one of the roles {allowed}")


def _check_offered(name: str, method: Method, info: StoreInfo) -> None:
    if method.capability not in info.capabilities:
        raise not_supported(f"{name} belongs to {method.capability}, which this server does not declare")
    if method.writes and info.read_only:
        raise A2MError(Code.READ_ONLY, READ_ONLY)


def _request(message: object) -> Mapping[str, Json]:
    """The message as a request or notification; raises -32600, which is answered with a null id."""
    if isinstance(message, list):
        raise _invalid("batches are not taken: send one request at a time")
    if not isinstance(message, dict):
        raise _invalid("expected an object")
    request = cast("JsonObject", message)
    if request.get("jsonrpc") != "2.0":
        raise _invalid('jsonrpc: expected "2.0"')
    if not isinstance(request.get("method"), str):
        raise _invalid("method: expected a string")
    if not jsonrpc.is_id(request.get("id")):
        raise _invalid("id: expected a string or a number")
    return request


def _target(request: Mapping[str, Json]) -> tuple[str, object]:
    return str(request["method"]), request.get("params", {})


def _invalid(why: str) -> A2MError:
    return A2MError(Code.INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {why}")
