"""The methods of `memory/*`, by name: what each needs to be declared, and who answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import Capability
from a2m_server.call import Call
from a2m_server.methods import (
    context,
    eventing,
    extensions,
    facts,
    reading,
    remnants,
    reorganizing,
    sessions,
    writing,
)

Answer = Callable[[Call], Awaitable[JsonObject]]


@dataclass(frozen=True, slots=True)
class Method:
    """`tiers` are the parameters that may name a tier; `writes` whether a read-only server refuses it."""

    capability: Capability
    answer: Answer
    tiers: tuple[str, ...] = ()
    writes: bool = False


METHODS: Mapping[str, Method] = {
    "memory/remember": Method(Capability.CORE, writing.remember, ("records",), writes=True),
    "memory/recall": Method(Capability.CORE, reading.recall, ("tier",)),
    "memory/timeline": Method(Capability.CORE, reading.timeline, ("tier",)),
    "memory/forget": Method(Capability.CORE, writing.forget, ("tier",), writes=True),
    "memory/promote": Method(Capability.TIERS, reorganizing.promote, ("tier",), writes=True),
    "memory/consolidate": Method(Capability.TIERS, reorganizing.consolidate, writes=True),
    "memory/reinforce": Method(Capability.SALIENCE, facts.reinforce, writes=True),
    "memory/fetch": Method(Capability.KEYS, facts.fetch),
    "memory/session/list": Method(Capability.SESSIONS, sessions.list_sessions),
    "memory/session/close": Method(Capability.SESSIONS, sessions.close_session),
    "memory/events": Method(Capability.EVENTS, eventing.poll),
    "memory/events/subscribe": Method(Capability.EVENTS, eventing.subscribe),
    "memory/events/unsubscribe": Method(Capability.EVENTS, eventing.unsubscribe),
    "memory/summarize": Method(Capability.SUMMARIZE, writing.summarize, ("tier", "into"), writes=True),
}
"""What A2M defines, but for `memory/describe`."""

EXTENSIONS: Mapping[str, tuple[str, Answer]] = {
    "memory/forget_if": ("forget_if", extensions.forget_if),
    "memory/tombstones": ("tombstones", extensions.tombstones),
    "memory/list": ("list", extensions.list_entries),
    "memory/read": ("list", extensions.read),
    "memory/touch": ("touch", extensions.touch),
    "memory/embed": ("embed", extensions.embed),
    "memory/reembed": ("reembed", reorganizing.reembed),
    "memory/settle": ("arrivals", extensions.settle),
    "memory/remnants": ("verify", remnants.remnants),
    "memory/erase": ("erase", remnants.erase),
    "memory/context": ("context", context.context),
}
"""Methods of our own, each with the extension that it belongs to."""
