"""`memory/events`, `memory/events/subscribe` and `memory/events/unsubscribe`."""

from __future__ import annotations

from a2m_protocol import jsonrpc
from a2m_protocol.errors import Json, JsonObject, invalid_params, not_supported
from a2m_server.call import Call
from a2m_server.events import Kind, Subscription
from a2m_server.identity import Peer


async def poll(call: Call) -> JsonObject:
    params = call.params
    polled = await call.server.events.poll(params.text("cursor"), params.limit(), _kinds(call), call.scope)
    events: list[Json] = [*polled.events]
    result: JsonObject = {"events": events, "cursor": polled.cursor}
    if polled.more:
        result["more"] = True
    if polled.reset:
        result["reset"] = True
    return result


async def subscribe(call: Call) -> JsonObject:
    """Push from now on; a second subscription of a connection takes the place of the first."""
    peer = call.peer
    if not peer.push:
        raise not_supported("this transport carries no notifications: poll memory/events instead")
    subscription = Subscription(call.scope, _kinds(call), _pusher(peer))
    _drop(call)
    peer.subscription = subscription
    call.server.events.subscribe(subscription)
    return {"subscribed": True}


async def unsubscribe(call: Call) -> JsonObject:
    _drop(call)
    return {"subscribed": False}


def _pusher(peer: Peer):
    def push(event: JsonObject) -> None:
        peer.notify(jsonrpc.notification("memory/event", event))

    return push


def _drop(call: Call) -> None:
    if isinstance(call.peer.subscription, Subscription):
        call.server.events.unsubscribe(call.peer.subscription)
    call.peer.subscription = None


def _kinds(call: Call) -> frozenset[Kind] | None:
    names = call.params.ids("kinds")
    if names is None:
        return None
    try:
        return frozenset(map(Kind, names))
    except ValueError:
        raise invalid_params(f"kinds: expected kinds among {', '.join(Kind)}") from None
