"""Principals: who may use a server, by which tokens, and what may be changed about that; pure.

A token is `a2m_`, its id, `_` and a secret of 256 random bits. Of it a hash alone is kept, and a plain one: a
slow hash is for what people choose, and nobody guesses such a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from a2m_protocol.clock import format_ms, parse_ms
from a2m_protocol.types import Name
from a2m_server.identity import EVERY_OWNER, Caller, Role, UnauthorizedError, may_read_all, principal

_TOKEN = re.compile(rb"a2m_([0-9a-z]{8})_[A-Za-z0-9_-]{43}")
_ID_BYTES, _SECRET_BYTES = 4, 32


def _check_moment(text: str) -> str:
    parse_ms(text)
    return text


Moment = Annotated[str, AfterValidator(_check_moment)]


class _Model(BaseModel):
    """What is in the file: unknown members are refused, since a misspelt one would be a restriction lost."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Token(_Model):
    """A token that was given out; times are in UTC. It is good until it expires or is revoked."""

    id: Annotated[str, Field(pattern=r"^[0-9a-z]{8}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: Moment
    expires: Moment | None = None
    revoked: Moment | None = None

    def state(self, now_ms: int) -> str:
        """`valid`, `expired` or `revoked`."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and parse_ms(self.expires) <= now_ms else "valid"

    @property
    def lifetime_ms(self) -> int | None:
        """From when it was made to when it expires."""
        return None if self.expires is None else parse_ms(self.expires) - parse_ms(self.created)


def _check_shown(name: str) -> str:
    if name != name.strip() or not name.isprintable():
        raise ValueError("must not begin or end with a space, nor hold a line end or control character")
    return name


Shown = Annotated[Name, AfterValidator(_check_shown)]


def _name(read: dict[str, Any]) -> str:
    return str(read.get("name", ""))


class Principal(_Model):
    """Who calls: its own `owner` (the name, where none is given), its roles, and whose records else it reads.

    `reads` are owners by their exact names, or `*` for all, which takes a role beyond agent. `quota` is how
    many bytes its owner may hold for it to write, instead of what the server says of its roles.
    """

    name: Shown
    owner: Annotated[Shown, Field(default_factory=_name)]
    roles: Annotated[tuple[Role, ...], Field(min_length=1)] = (Role.AGENT,)
    reads: tuple[Name, ...] = ()
    pooled: bool = True
    quota: Annotated[int, Field(ge=0)] | None = None
    tokens: tuple[Token, ...] = ()

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.owner == EVERY_OWNER:
            raise ValueError(f"no owner can be called {EVERY_OWNER!r}")
        if EVERY_OWNER in self.reads and not may_read_all(frozenset(self.roles)):
            raise ValueError(
                f"to read every owner's records ({EVERY_OWNER!r}) takes the role reader, curator or operator"
            )
        return self

    @property
    def caller(self) -> Caller:
        return principal(
            self.name, self.owner, frozenset(self.roles), self.reads, pooled=self.pooled, quota=self.quota
        )


class Principals(_Model):
    """All principals, of which names and ids of tokens are unique."""

    principals: tuple[Principal, ...] = ()

    @model_validator(mode="after")
    def _unique(self) -> Self:
        _refuse_repeated("name", (p.name for p in self.principals))
        _refuse_repeated("token id", (t.id for p in self.principals for t in p.tokens))
        return self

    def named(self, name: str) -> Principal | None:
        return next((p for p in self.principals if p.name == name), None)

    def with_(self, changed: Principal) -> Principals:
        """The same with one principal changed, or added at the end."""
        others = self.principals
        if self.named(changed.name) is None:
            return Principals(principals=(*others, changed))
        return Principals(principals=tuple(changed if p.name == changed.name else p for p in others))

    def by_token(self) -> dict[str, tuple[Caller, Token]]:
        """Each token by its id, with whose it is."""
        return {token.id: (p.caller, token) for p in self.principals for token in p.tokens}


def make_token(now_ms: int, lifetime_ms: int | None = None) -> tuple[str, Token]:
    """A new token, to be shown once, and what is kept of it."""
    token_id = secrets.token_hex(_ID_BYTES)
    text = f"a2m_{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    expires = None if lifetime_ms is None else format_ms(now_ms + lifetime_ms)
    return text, Token(id=token_id, sha256=_hash(text.encode()), created=format_ms(now_ms), expires=expires)


def rotated(principal: Principal, fresh: Token, now_ms: int, grace_ms: int = 0) -> Principal:
    """With a new token, and those that are valid now ending after `grace_ms`, if not before."""
    end = now_ms + grace_ms
    tokens = [_ending(token, end) if token.state(now_ms) == "valid" else token for token in principal.tokens]
    return principal.model_copy(update={"tokens": (*tokens, fresh)})


def revoked(principal: Principal, ids: Iterable[str], now_ms: int) -> Principal:
    """Without the use of some of its tokens; they stay listed."""
    named = frozenset(ids)
    stamp = {"revoked": format_ms(now_ms)}
    tokens = [
        token.model_copy(update=stamp) if token.id in named and token.revoked is None else token
        for token in principal.tokens
    ]
    return principal.model_copy(update={"tokens": tuple(tokens)})


def verify(tokens: dict[str, tuple[Caller, Token]], credential: bytes, now_ms: int) -> Caller | None:
    """Whose token this is, or None where there is no such token.

    Raises `UnauthorizedError` for one that is no longer valid, which is told to its holder alone.
    """
    shape = _TOKEN.fullmatch(credential)
    known = None if shape is None else tokens.get(shape[1].decode())
    if known is None or not hmac.compare_digest(_hash(credential), known[1].sha256):
        return None
    caller, token = known
    state = token.state(now_ms)
    if state != "valid":
        raise UnauthorizedError(f"the bearer token is {state}")
    return caller


def _ending(token: Token, end_ms: int) -> Token:
    if token.expires is not None and parse_ms(token.expires) <= end_ms:
        return token
    return token.model_copy(update={"expires": format_ms(end_ms)})


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def _refuse_repeated(what: str, values: Iterable[str]) -> None:
    seen: Sequence[str] = sorted(values)
    for one, next_one in itertools.pairwise(seen):
        if one == next_one:
            raise ValueError(f"the {what} {one!r} stands there twice")
