"""One call: its parameters, whose records it sees, and what the server at hand can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from a2m_protocol.errors import JsonObject, invalid_params, not_supported, scope_denied, unknown_tier
from a2m_protocol.types import FIELDS, Capability, Record
from a2m_protocol.where import Where, parse_where
from a2m_retrieval.text import query_words
from a2m_server.accesses import Accesses
from a2m_server.events import Events
from a2m_server.identity import Peer, Role
from a2m_server.params import Limits, Params
from a2m_server.store import MemoryStore
from a2m_server.values import EVERYONE, POOLED, Filter, Scope, StoreInfo

PRIVILEGED = frozenset({Role.ROUTER, Role.OPERATOR})
OPEN = frozenset({"context"})
"""Extensions for every caller, which sees through them what it could see anyway."""
SELECTORS = ("ids", "query", "tier", "where", "key_prefix")


@dataclass(frozen=True, slots=True)
class Server:
    """What every call to a dispatcher shares."""

    store: MemoryStore
    limits: Limits
    events: Events
    accesses: Accesses


@dataclass(frozen=True, slots=True)
class Call:
    """A call as its method sees it; `capabilities` are those declared to this peer."""

    server: Server
    info: StoreInfo
    peer: Peer
    params: Params
    capabilities: frozenset[Capability]
    scope: Scope

    @property
    def store(self) -> MemoryStore:
        return self.server.store

    @property
    def privileged(self) -> bool:
        """Whether the caller may use our extensions, and not only those that are for everyone."""
        return is_privileged(self.peer)

    def has(self, capability: Capability) -> bool:
        return capability in self.capabilities

    def may_use(self, extension: str) -> bool:
        """Whether the caller may use an extension that the store has."""
        return extension in OPEN or self.privileged

    def require_extension(self, name: str) -> None:
        """Raise -32003 where the store lacks an extension, -32005 where the caller may not use it."""
        if name not in self.info.extensions:
            raise not_supported(f"this server does not have the extension {name!r}")
        if not self.may_use(name):
            raise scope_denied(f"the extension {name!r} is for callers with the role router or operator")

    def wire(
        self, records: Sequence[Record], *, private: bool = False, features: bool = False
    ) -> list[JsonObject]:
        embeddings = private or (self.has(Capability.EMBEDDINGS) and self.params.flag("embeddings"))
        told = [r.wire(self.capabilities, embeddings=embeddings, private=private) for r in records]
        if features:
            for fields, record in zip(told, records, strict=True):
                if record.features is not None:
                    fields["features"] = record.features
        return told

    @property
    def vectors(self) -> bool:
        """Whether the call asks for embeddings."""
        return self.has(Capability.EMBEDDINGS) and self.params.flag("embeddings")

    def where(self) -> Where:
        value = self.params.raw("where")
        return Where() if value is None else parse_where(value, record_fields(self.capabilities))

    def key_prefix(self) -> str | None:
        if not self.has(Capability.KEYS):
            return None
        prefix = self.params.text("key_prefix")
        if prefix is None:
            return None
        stripped = prefix.rstrip("/")
        if not stripped:
            raise invalid_params("key_prefix: expected a prefix with more to it than slashes")
        return stripped

    def tier(self, name: str = "tier") -> str | None:
        return self.params.name(name) if self.has(Capability.TIERS) else None

    def matching(self) -> Filter:
        """The filter of a read."""
        return Filter(self.scope, self.where(), self.key_prefix(), tier=self.tier())

    def selected(self) -> Filter:
        """The filter of a method that picks records by `SELECTORS`: what is given must not be empty.

        `ids: []` and a query without a word select nothing.
        """
        params = self.params
        given = [name for name in SELECTORS if name in params]
        for name in given:
            value = params.raw(name)
            if value is None or (name != "ids" and value in ("", {})):
                raise invalid_params(f"{name}: must not be empty; leave it out to select without it")
        query = params.text("query")
        if query is not None and not query.strip():
            raise invalid_params("query: must not be blank; leave it out to select without it")
        most = self.server.limits.max_content_length
        if query is not None and len(query) > most:
            raise invalid_params(f"query: expected at most {most} characters, as no content is longer")
        ids = params.ids()
        return Filter(
            self.scope,
            self.where(),
            self.key_prefix(),
            ids=None if ids is None else tuple(dict.fromkeys(ids)),
            words=None if query is None else tuple(dict.fromkeys(query_words(query))),
            tier=self.tier(),
        )

    def require_selector(self) -> None:
        if not any(self.params.raw(name) is not None for name in SELECTORS):
            raise invalid_params(f"at least one of {', '.join(SELECTORS)} is needed")


def is_privileged(peer: Peer) -> bool:
    return not PRIVILEGED.isdisjoint(peer.caller.roles)


def declared(info: StoreInfo, peer: Peer) -> frozenset[Capability]:
    """The capabilities that a peer is shown: `scopes` where its `owner` is believed alone."""
    return info.capabilities if peer.caller.trusted else info.capabilities - {Capability.SCOPES}


@lru_cache(maxsize=64)
def record_fields(capabilities: frozenset[Capability]) -> frozenset[str]:
    """The names that `where` takes as record fields."""
    return frozenset(name for capability in capabilities for name in FIELDS.get(capability, ()))


def scope_of(params: Params, peer: Peer, capabilities: frozenset[Capability]) -> Scope:
    """Whose records a call sees: of a trusted caller its `owner`'s and pooled ones, else pooled ones."""
    if not peer.caller.trusted:
        return POOLED
    if Capability.SCOPES not in capabilities or "owner" not in params:
        return EVERYONE
    if params.raw("owner") is None:
        return POOLED
    return Scope.of(params.name("owner"))


def check_tiers(params: Params, names: Sequence[str], info: StoreInfo) -> None:
    """Raise -32002 for an unknown tier in the parameters `names` or, named `records`, in a record.

    Where the server has no tiers, a given one is -32003. A value that is no name is left to its reader.
    """
    wanted: list[object] = []
    for name in names:
        value = params.raw(name)
        if name == "records" and isinstance(value, list):
            records = cast("list[object]", value)
            wanted += [cast("JsonObject", r)["tier"] for r in records if isinstance(r, dict) and "tier" in r]
        elif name != "records":
            wanted.append(value)
    given = [tier for tier in wanted if tier is not None]
    if not given:
        return
    if Capability.TIERS not in info.capabilities:
        raise not_supported("this server has no tiers to choose between: leave `tier` out")
    known = [tier.name for tier in info.tiers]
    for tier in given:
        if isinstance(tier, str) and tier and tier not in known:
            raise unknown_tier(tier[:80], known)
