"""Who calls: what a connection may claim, and how a bearer token decides it."""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import JsonObject

OUTBOX = 4_096
"""Notifications kept for a connection that does not read them; what is dropped stays in the event log."""


class Role(StrEnum):
    AGENT = "agent"
    READER = "reader"
    CURATOR = "curator"
    OPERATOR = "operator"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end. `trusted`: the `owner` in parameters is believed, and `scopes` is shown."""

    trusted: bool
    roles: frozenset[Role]


_SERVICE_ROLES = frozenset({Role.ROUTER, Role.OPERATOR})

LOCAL = Caller(trusted=True, roles=frozenset(Role))
"""stdio and in process."""

LOOPBACK = Caller(trusted=False, roles=_SERVICE_ROLES)
"""HTTP on a server without authentication."""

SERVICE = Caller(trusted=True, roles=_SERVICE_ROLES)
"""HTTP with the service token."""

ANONYMOUS = Caller(trusted=False, roles=frozenset())
"""HTTP without a credential on a server that has a service token."""


@dataclass(eq=False, slots=True)
class Peer:
    """One connection, and what is pushed on it.

    `push` says whether the transport can carry notifications. `subscription` belongs to the dispatcher.
    `outbox` holds notifications in order; the transport writes them before the next response at the latest,
    and at once when `woken` is set and they were put there by `notify`.
    """

    caller: Caller
    push: bool = False
    outbox: deque[JsonObject] = field(default_factory=lambda: deque(maxlen=OUTBOX))
    subscription: object | None = None
    woken: Callable[[], None] | None = None

    def notify(self, message: JsonObject) -> None:
        """Queue one notification and wake the transport."""
        self.outbox.append(message)
        if self.woken is not None:
            self.woken()


class UnauthorizedError(Exception):
    """A credential that is not valid here: HTTP 401."""


class Gate:
    """Tells who calls by the Authorization headers of a request.

    Without a token file everybody is `LOOPBACK`. With one, its bearer is `SERVICE`, and who shows nothing is
    `ANONYMOUS`, or refused where `required`.
    """

    def __init__(self, tokens: TokenFile | None, *, required: bool = False) -> None:
        self._tokens = tokens
        self._required = required

    def admit(self, headers: Sequence[bytes]) -> Caller:
        """The caller, by all values of the header; raises `UnauthorizedError`."""
        if self._tokens is None:
            return LOOPBACK
        if not headers:
            if self._required:
                raise UnauthorizedError("this server asks for a bearer token")
            return ANONYMOUS
        scheme, _, credential = headers[0].partition(b" ")
        if len(headers) == 1 and scheme.lower() == b"bearer":
            if hmac.compare_digest(credential.strip(), self._tokens.token):
                return SERVICE
            raise UnauthorizedError("the bearer token is not valid here")
        raise UnauthorizedError("exactly one bearer token is expected")
