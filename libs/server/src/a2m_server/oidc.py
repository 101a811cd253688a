"""JSON Web Tokens of an OpenID Connect issuer: which are taken, and whose they are."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self, cast
from urllib.parse import urlsplit

import jwt
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from a2m_protocol.types import Name
from a2m_server.identity import Caller, Role, UnauthorizedError, principal
from a2m_server.jwks import KeySet

ALGORITHMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""Those that can be asked for, each with the type of its keys: who can check a signature cannot make one."""

_Names = TypeAdapter(tuple[Name, ...])
_Owner = TypeAdapter(Name)
REMEMBERED = 1_024
"""Tokens whose signature was checked."""
_PARTS = 3
_INVALID = "the bearer token is not valid here"


class OidcSettings(BaseModel):
    """Whose tokens are taken: those that `issuer` signed for `audience` with a key of `jwks`.

    `jwks` is a file or a URL (https, or http on loopback). `owner_claim` holds the owner, `roles_claim` roles
    (without it everybody is an agent) and `reads_claim` further owners to read: arrays, or words between
    spaces. A claim within claims is named with dots. Times are seconds: `leeway` is how far clocks may
    differ, `refresh` the pause between two looks at the URL for a key that is not known.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    issuer: str | None = None
    audience: str | None = None
    jwks: str | None = None
    algorithms: Annotated[tuple[str, ...], NoDecode] = ("RS256", "ES256")
    owner_claim: Annotated[str, Field(min_length=1)] = "sub"
    roles_claim: str | None = None
    reads_claim: str | None = None
    leeway: Annotated[float, Field(ge=0, le=300)] = 30.0
    refresh: Annotated[float, Field(gt=0, le=86_400)] = 30.0

    @field_validator("issuer", "audience", "jwks", "roles_claim", "reads_claim", mode="before")
    @classmethod
    def _unset(cls, value: object) -> object:
        """An empty variable is one that was not set."""
        return None if value == "" else value

    @field_validator("algorithms", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(word.strip() for word in value.split(",") if word.strip())
        return value

    @field_validator("algorithms")
    @classmethod
    def _asymmetric(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in ALGORITHMS:
                raise ValueError(f"{name[:20]!r} is none of {', '.join(ALGORITHMS)}")
        if not value:
            raise ValueError("at least one algorithm is needed")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = [value for value in (self.issuer, self.audience, self.jwks) if value is not None]
        if given and len(given) < _PARTS:
            raise ValueError("issuer, audience and jwks are needed together")
        if self.jwks is not None and not _is_safe(self.jwks):
            raise ValueError("jwks: expected a file, an https URL, or an http URL on loopback")
        return self

    @property
    def configured(self) -> bool:
        """Whether there is an issuer: the three that name it are given together."""
        return self.issuer is not None


@dataclass(frozen=True, slots=True)
class _Known:
    """Whose a token is that was checked with a key, and until when it is good."""

    caller: Caller
    key: jwt.PyJWK
    until: float


class Issuer:
    """Knows principals by tokens of an issuer; `clock` gives seconds since 1970.

    A signature takes a tenth of a turn to check, so whose a token is is remembered, until it expires or its
    key changes.
    """

    def __init__(self, settings: OidcSettings, keys: KeySet, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def verify(self, credential: bytes) -> Caller | None:
        try:
            header = jwt.get_unverified_header(credential)
        except (jwt.PyJWTError, RecursionError):
            return None  # no JSON Web Token at all
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise UnauthorizedError(_INVALID)
        key = await self._keys.find(kid if isinstance(kid, str) else None, str(algorithm))
        if key is None:
            raise UnauthorizedError(_INVALID)
        digest = hashlib.sha256(credential).digest()
        known = self._known.get(digest)
        if known is None or known.key is not key or known.until <= self._clock():
            claims = self._claims(credential, key)
            until = float(cast("int", claims["exp"])) + self._settings.leeway
            known = self._known[digest] = _Known(self._caller(claims), key, until)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(digest)
        return known.caller

    def _claims(self, credential: bytes, key: jwt.PyJWK) -> Mapping[str, object]:
        settings = self._settings
        try:
            return jwt.decode(
                credential,
                key,
                algorithms=[*settings.algorithms],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": True,
                    "verify_nbf": True,
                    "verify_iat": True,
                    "enforce_minimum_key_length": True,
                },
            )
        except jwt.ExpiredSignatureError:
            # Told of a token that the issuer did sign: the signature is looked at first.
            raise UnauthorizedError("the bearer token is expired") from None
        except (jwt.PyJWTError, TypeError, OverflowError, RecursionError):
            # The last three: claims that are no numbers, or no end of them.
            raise UnauthorizedError(_INVALID) from None

    def _caller(self, claims: Mapping[str, object]) -> Caller:
        settings = self._settings
        try:
            owner = _Owner.validate_python(claim(claims, settings.owner_claim), strict=True)
            reads = _Names.validate_python(_words(claims, settings.reads_claim))
        except ValidationError:
            raise UnauthorizedError("the bearer token names no owner that is known here") from None
        given = _words(claims, settings.roles_claim)
        roles = frozenset(role for role in Role if role in given)
        if settings.roles_claim is None:
            roles = frozenset({Role.AGENT})
        return principal(owner, owner, roles, reads, pooled=True)


def claim(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name or, where none is called so, by its path with dots; None where there is none."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = cast("Mapping[str, object]", found).get(part) if isinstance(found, dict) else None
    return found


def _words(claims: Mapping[str, object], name: str | None) -> tuple[str, ...]:
    value = None if name is None else claim(claims, name)
    if isinstance(value, str):
        return tuple(value.split())
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))


def _is_safe(jwks: str) -> bool:
    if "://" not in jwks:
        return True
    parts = urlsplit(jwks)
    return parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    )
