"""The methods of `memory/*`, by name: what each needs to be declared, who may call it and who answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from a2m_protocol.errors import JsonObject
from a2m_protocol.types import Capability
from a2m_server.call import PRIVILEGED, Call
from a2m_server.identity import Role
from a2m_server.methods import (
    context,
    eventing,
    extensions,
    facts,
    lineage,
    reading,
    remnants,
    reorganizing,
    review,
    sessions,
    writing,
)

Answer = Callable[[Call], Awaitable[JsonObject]]
Roles = frozenset[Role]

EVERYBODY: Roles = frozenset(Role)
WRITERS: Roles = EVERYBODY - {Role.READER}
CURATORS: Roles = WRITERS - {Role.AGENT}
OPERATORS: Roles = frozenset({Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class Method:
    """`tiers` are the parameters that may name a tier; `writes` whether a read-only server refuses it.

    Who has one of `roles` may call it: on what records is decided by whose they are.
    """

    capability: Capability
    answer: Answer
    roles: Roles
    tiers: tuple[str, ...] = ()
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Extension:
    """A method of our own; `name` is that of the extension, `writes` says whether it changes records."""

    name: str
    answer: Answer
    roles: Roles
    writes: bool


METHODS: Mapping[str, Method] = {
    "memory/remember": Method(Capability.CORE, writing.remember, WRITERS, ("records",), writes=True),
    "memory/recall": Method(Capability.CORE, reading.recall, EVERYBODY, ("tier",)),
    "memory/timeline": Method(Capability.CORE, reading.timeline, EVERYBODY, ("tier",)),
    "memory/forget": Method(Capability.CORE, writing.forget, WRITERS, ("tier",), writes=True),
    "memory/promote": Method(Capability.TIERS, reorganizing.promote, WRITERS, ("tier",), writes=True),
    "memory/consolidate": Method(Capability.TIERS, reorganizing.consolidate, WRITERS, writes=True),
    "memory/reinforce": Method(Capability.SALIENCE, facts.reinforce, WRITERS, writes=True),
    "memory/fetch": Method(Capability.KEYS, facts.fetch, EVERYBODY),
    "memory/session/list": Method(Capability.SESSIONS, sessions.list_sessions, EVERYBODY),
    "memory/session/close": Method(Capability.SESSIONS, sessions.close_session, WRITERS),
    "memory/events": Method(Capability.EVENTS, eventing.poll, EVERYBODY),
    "memory/events/subscribe": Method(Capability.EVENTS, eventing.subscribe, EVERYBODY),
    "memory/events/unsubscribe": Method(Capability.EVENTS, eventing.unsubscribe, EVERYBODY),
    "memory/summarize": Method(
        Capability.SUMMARIZE, writing.summarize, WRITERS, ("tier", "into"), writes=True
    ),
}
"""What A2M defines, but for `memory/describe`, which everybody may call."""

EXTENSIONS: Mapping[str, Extension] = {
    "memory/forget_if": Extension("forget_if", extensions.forget_if, PRIVILEGED, writes=True),
    "memory/tombstones": Extension("tombstones", extensions.tombstones, PRIVILEGED, writes=True),
    "memory/list": Extension("list", extensions.list_entries, PRIVILEGED, writes=False),
    "memory/read": Extension("list", extensions.read, PRIVILEGED, writes=False),
    "memory/touch": Extension("touch", extensions.touch, PRIVILEGED, writes=False),
    "memory/embed": Extension("embed", extensions.embed, PRIVILEGED, writes=True),
    "memory/reembed": Extension("reembed", reorganizing.reembed, PRIVILEGED, writes=True),
    "memory/relocate": Extension("relocate", reorganizing.relocate, OPERATORS, writes=True),
    "memory/settle": Extension("arrivals", extensions.settle, PRIVILEGED, writes=True),
    "memory/judge": Extension("judge", extensions.judge, PRIVILEGED, writes=True),
    "memory/remnants": Extension("verify", remnants.remnants, PRIVILEGED, writes=False),
    "memory/erase": Extension("erase", remnants.erase, PRIVILEGED, writes=True),
    "memory/held": Extension("held", extensions.held, EVERYBODY, writes=False),
    "memory/context": Extension("context", context.context, EVERYBODY, writes=False),
    "memory/trace": Extension("trace", lineage.trace, EVERYBODY, writes=False),
    "memory/pending": Extension("pending", review.pending, EVERYBODY, writes=False),
    "memory/approve": Extension("approve", review.approve, CURATORS, writes=True),
    "memory/reject": Extension("reject", review.reject, CURATORS, writes=True),
    "memory/purge": Extension("purge", lineage.purge, CURATORS, writes=True),
}
"""Methods of our own."""


def may_call(roles: Roles, name: str) -> bool:
    """Whether one of `roles` may call a method that is known."""
    method = METHODS.get(name) or EXTENSIONS.get(name)
    return method is None or not method.roles.isdisjoint(roles)
