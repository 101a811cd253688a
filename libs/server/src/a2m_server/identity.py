"""Who calls: what a connection may claim, and how a bearer token decides it."""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import JsonObject

OUTBOX = 4_096
"""Notifications kept for a connection that does not read them; what is dropped stays in the event log."""


class Role(StrEnum):
    """What a caller may do; `methods` says it of each method.

    An agent reads what it may and writes its own records, a reader writes nothing, a curator also writes
    pooled records and those of the other owners that it may read, an operator may do anything to any owner's.
    A router is believed in which owner it names.
    """

    AGENT = "agent"
    READER = "reader"
    CURATOR = "curator"
    OPERATOR = "operator"
    ROUTER = "router"


AUTHORITY = (Role.OPERATOR, Role.CURATOR, Role.ROUTER, Role.AGENT, Role.READER)
"""Roles, the greatest first."""

Owners = frozenset[str | None] | None
"""A set of owners, in which None stands for pooled records; instead of a set, None stands for every owner."""

POOLED_ALONE: Owners = frozenset({None})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end.

    `trusted`: whatever `owner` is named in parameters is believed. Of others, `readable` are the owners whose
    records are seen. A principal has a `name`, and an `owner` whose records it writes; it may have a `quota`
    of its own, of bytes that the owner holds.
    """

    trusted: bool
    roles: frozenset[Role]
    name: str | None = None
    owner: str | None = None
    readable: Owners = POOLED_ALONE
    quota: int | None = None

    @property
    def known(self) -> bool:
        """Whether it is known whose records this caller may see: only then there are scopes."""
        return self.trusted or self.name is not None

    @property
    def authority(self) -> Role | None:
        """The greatest role of a principal; None of who is none."""
        return None if self.name is None else next((r for r in AUTHORITY if r in self.roles), None)

    @property
    def writable(self) -> Owners:
        """The owners whose records a caller that is not trusted may write, change and forget."""
        if self.name is None:
            return POOLED_ALONE
        if Role.OPERATOR in self.roles:
            return None
        return self.readable if Role.CURATOR in self.roles else frozenset({self.owner})


_SERVICE_ROLES = frozenset({Role.ROUTER, Role.OPERATOR})

LOCAL = Caller(trusted=True, roles=frozenset(Role))
"""stdio and in process."""

LOOPBACK = Caller(trusted=False, roles=_SERVICE_ROLES)
"""HTTP on a server without authentication."""

SERVICE = Caller(trusted=True, roles=_SERVICE_ROLES)
"""HTTP with the service token."""

ANONYMOUS = Caller(trusted=False, roles=frozenset({Role.AGENT}))
"""HTTP without a credential on a server that has a service token alone."""

EVERY_OWNER = "*"
"""Stands for all owners among those that a principal may read."""

_OVER_ALL = frozenset({Role.READER, Role.CURATOR, Role.OPERATOR})


def may_read_all(roles: frozenset[Role]) -> bool:
    """Whether one of these roles can be given every owner's records to read."""
    return not _OVER_ALL.isdisjoint(roles)


def principal(
    name: str,
    owner: str,
    roles: frozenset[Role],
    reads: Sequence[str],
    *,
    pooled: bool,
    quota: int | None = None,
) -> Caller:
    """An authenticated caller: it sees its own records, those of `reads` and, where `pooled`, pooled ones.

    `EVERY_OWNER` among the owners counts only for roles that may read all. An operator sees everything, and
    who has the role router is trusted.
    """
    everything = EVERY_OWNER in reads and may_read_all(roles)
    seen: set[str | None] = {owner}
    seen.update(one for one in reads if one != EVERY_OWNER)
    if pooled:
        seen.add(None)
    return Caller(
        trusted=Role.ROUTER in roles,
        roles=roles,
        name=name,
        owner=owner,
        readable=None if everything or Role.OPERATOR in roles else frozenset(seen),
        quota=quota,
    )


@dataclass(eq=False, slots=True)
class Peer:
    """One connection, and what is pushed on it.

    `push` says whether the transport can carry notifications. `subscription` belongs to the dispatcher.
    `outbox` holds notifications in order; the transport writes them before the next response at the latest,
    and at once when `woken` is set and they were put there by `notify`. `client` is what the program at the
    other end calls itself. `removed` are the ids that the call under way has forgotten so far, for the audit.
    """

    caller: Caller
    push: bool = False
    client: str | None = None
    removed: list[str] = field(default_factory=list[str])
    outbox: deque[JsonObject] = field(default_factory=lambda: deque(maxlen=OUTBOX))
    subscription: object | None = None
    woken: Callable[[], None] | None = None

    def notify(self, message: JsonObject) -> None:
        """Queue one notification and wake the transport."""
        self.outbox.append(message)
        if self.woken is not None:
            self.woken()


class UnauthorizedError(Exception):
    """A credential that is missing or not valid here: HTTP 401. `shown` says whether there was one."""

    def __init__(self, message: str, *, shown: bool = True) -> None:
        super().__init__(message)
        self.shown = shown


class UndecidedError(Exception):
    """Whether a credential is valid cannot be told at present: HTTP 503."""


class Verifier(Protocol):
    """One kind of credential."""

    async def verify(self, credential: bytes) -> Caller | None:
        """Whose bearer token this is, None where it is of no kind that is known here.

        Raises `UnauthorizedError` for one that is known and not valid, and `UndecidedError`.
        """
        ...


class ServiceToken:
    """The one token of the router, or of an application that keeps owners apart itself."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens

    async def verify(self, credential: bytes) -> Caller | None:
        return SERVICE if hmac.compare_digest(credential, self._tokens.token) else None


class Gate:
    """Tells who calls by the Authorization headers of a request, asking its verifiers in their order.

    Without verifiers everybody is `LOOPBACK`. With some, who shows nothing is `ANONYMOUS`, or refused where
    `required`.
    """

    def __init__(self, verifiers: Sequence[Verifier] = (), *, required: bool = False) -> None:
        self._verifiers = tuple(verifiers)
        self._required = required

    async def admit(self, headers: Sequence[bytes]) -> Caller:
        """The caller, by all values of the header; raises `UnauthorizedError` and `UndecidedError`."""
        if not self._verifiers and not self._required:
            return LOOPBACK
        if not headers:
            if self._required:
                raise UnauthorizedError("this server asks for a bearer token", shown=False)
            return ANONYMOUS
        scheme, _, credential = headers[0].partition(b" ")
        if len(headers) != 1 or scheme.lower() != b"bearer":
            raise UnauthorizedError("exactly one bearer token is expected")
        for verifier in self._verifiers:
            caller = await verifier.verify(credential.strip())
            if caller is not None:
                return caller
        raise UnauthorizedError("the bearer token is not valid here")
