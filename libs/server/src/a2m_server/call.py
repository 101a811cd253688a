"""One call: its parameters, whose records it sees, and what the server at hand can do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import (
    A2MError,
    JsonObject,
    already_forgotten,
    invalid_params,
    not_supported,
    scope_denied,
    unknown_tier,
)
from a2m_protocol.types import FIELDS, Capability, Draft, Record
from a2m_protocol.where import Where, parse_where
from a2m_retrieval.text import query_words
from a2m_server import events
from a2m_server.accesses import Accesses
from a2m_server.events import Events
from a2m_server.identity import Caller, Peer, Role
from a2m_server.params import Limits, Params
from a2m_server.quota import Quota
from a2m_server.redaction import Redactor
from a2m_server.store import MemoryStore, TierStore
from a2m_server.values import EVERYONE, POOLED, Filter, Forgotten, Scope, StoreInfo, Written

PRIVILEGED = frozenset({Role.ROUTER, Role.OPERATOR})
"""The roles that may use what is our own, unless a method says otherwise."""
SELECTORS = ("ids", "query", "tier", "where", "key_prefix")


@dataclass(frozen=True, slots=True)
class Server:
    """What every call to a dispatcher shares."""

    store: MemoryStore
    limits: Limits
    events: Events
    accesses: Accesses
    quota: Quota
    redactor: Redactor | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call as its method sees it; `capabilities` are those declared to this peer.

    `scope` is whose records it sees, and `writes` whose it may write, change and forget.
    """

    server: Server
    info: StoreInfo
    peer: Peer
    params: Params
    capabilities: frozenset[Capability]
    scope: Scope
    writes: Scope

    @property
    def store(self) -> MemoryStore:
        return self.server.store

    @property
    def privileged(self) -> bool:
        """Whether the caller may use our extensions, and not only those that are for everyone."""
        return not PRIVILEGED.isdisjoint(self.peer.caller.roles)

    def count_accesses(self, records: Iterable[Record]) -> None:
        """Count an access of each record that is recalled, of pooled ones and of those that it may write.

        A mere reader leaves no trace, for it might bring about that something is promoted.
        """
        if self.info.read_only or self.peer.caller.roles <= {Role.READER}:
            return
        ids = [r.id for r in records if r.owner is None or self.writes.sees(r.owner)]
        self.server.accesses.count(ids, format_ms(time.time_ns() // 1_000_000))

    async def forget(self, selected: Filter) -> Forgotten:
        """Forget what is selected; events and audit are told, also of a part where it failed midway."""
        try:
            receipt = await self.store.forget(selected)
        except A2MError as error:
            self._removed(Forgotten(already_forgotten(error)))
            raise
        self._removed(receipt)
        return receipt

    async def write(self, drafts: Sequence[Draft]) -> list[Written]:
        """Write what the caller may; raises -32006 for more than its owner may hold."""
        if self.server.redactor is not None:
            drafts = await self.server.redactor.redacted(drafts)
        async with self.server.quota.charged(self.store, self.peer.caller, drafts) as told:
            told += await self.store.write(drafts, self.writes)
        return told

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        """Take records in as they were, within what the caller's owner may hold.

        Into a federation that is an import, of which credentials are taken out; into a tier it is a move, of
        which nothing may change.
        """
        if self.server.redactor is not None and Capability.TIERS in self.info.capabilities:
            drafts = await self.server.redactor.redacted(drafts)
        async with self.server.quota.charged(self.store, self.peer.caller, drafts) as told:
            told += await cast("TierStore", self.store).transfer(drafts)
        return told

    def _removed(self, receipt: Forgotten) -> None:
        self.peer.removed += receipt.ids
        self.server.quota.forgot()
        if receipt.ids:
            owner = _owner_in(self.writes)
            self.server.events.add(events.forgotten({i: receipt.owners.get(i, owner) for i in receipt.ids}))

    def has(self, capability: Capability) -> bool:
        return capability in self.capabilities

    def require_extension(self, name: str) -> None:
        """Raise -32003 where the store lacks an extension, -32005 where the caller may not use it."""
        if name not in self.info.extensions:
            raise not_supported(f"this server does not have the extension {name!r}")
        if not self.privileged:
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
        return Filter(
            self.scope, self.where(), self.key_prefix(), statuses=self.params.statuses(), tier=self.tier()
        )

    def selected(self, scope: Scope | None = None) -> Filter:
        """The filter of a method that picks records by `SELECTORS`: what is given must not be empty.

        `ids: []` and a query without a word select nothing. Without a `scope`, of what the call sees.
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
            self.scope if scope is None else scope,
            self.where(),
            self.key_prefix(),
            ids=None if ids is None else tuple(dict.fromkeys(ids)),
            words=None if query is None else tuple(dict.fromkeys(query_words(query))),
            statuses=params.statuses(),
            tier=self.tier(),
        )

    def require_selector(self) -> None:
        if not any(self.params.raw(name) is not None for name in SELECTORS):
            raise invalid_params(f"at least one of {', '.join(SELECTORS)} is needed")


def _owner_in(scope: Scope) -> str | None:
    """The owner of a record of which the store did not say: known where there is but one."""
    match [*(scope.readable or ())]:
        case [owner]:
            return owner
        case _:
            return events.UNKNOWN


def declared(info: StoreInfo, peer: Peer) -> frozenset[Capability]:
    """The capabilities that a peer is shown: `scopes` only where it is known whose records it may see."""
    return info.capabilities if peer.caller.known else info.capabilities - {Capability.SCOPES}


@lru_cache(maxsize=64)
def record_fields(capabilities: frozenset[Capability]) -> frozenset[str]:
    """The names that `where` takes as record fields."""
    return frozenset(name for capability in capabilities for name in FIELDS.get(capability, ()))


def scopes_of(
    params: Params, caller: Caller, capabilities: frozenset[Capability], *, writes: bool
) -> tuple[Scope, Scope]:
    """Whose records a call sees, and whose it may write.

    A trusted caller's `owner` is believed: that one's records and pooled ones, or exactly those of `owners`.
    A principal's own scope is narrowed by an `owner` within it, and one beyond it raises -32005: beyond what
    it may write where the method `writes`. Everybody else has pooled records, whatever is named.
    """
    if caller.trusted:
        scope = _believed(params, capabilities)
        return scope, scope
    if caller.name is None:
        return POOLED, POOLED
    seen, written = Scope(caller.readable, caller.owner), Scope(caller.writable, caller.owner)
    if "owner" not in params:
        return seen, written
    owner = None if params.raw("owner") is None else params.name("owner")
    if not (written if writes else seen).sees(owner):
        raise scope_denied(_NOT_YOURS)
    return _narrowed(seen, owner), _narrowed(written, owner)


_NOT_YOURS = "owner: it is not one of which this caller may do that; leave it out for your own"


def check_owner(call: Call, owner: str | None, path: str) -> None:
    """Raise -32005 where the caller may not write records of an owner."""
    if not call.peer.caller.trusted and not call.writes.sees(owner):
        raise scope_denied(f"{path}.{_NOT_YOURS}")


def _believed(params: Params, capabilities: frozenset[Capability]) -> Scope:
    if Capability.SCOPES not in capabilities:
        return EVERYONE
    owners = params.owners("owners")
    if owners is not None:
        return Scope(owners, params.name("owner"))
    if "owner" not in params:
        return EVERYONE
    return POOLED if params.raw("owner") is None else Scope.of(params.name("owner"))


def _narrowed(scope: Scope, owner: str | None) -> Scope:
    """A scope's part that is of `owner`, and pooled."""
    both = frozenset({owner, None})
    return Scope(both if scope.readable is None else both & scope.readable, owner)


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
