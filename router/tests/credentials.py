"""A token for each caller that is known, and one of every kind that must be refused."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from marks import ANN, KNOWN

from a2m_server.identity import Role
from a2m_server.principals import Principal, make_token, revoked
from a2m_server.register import editing

REFUSED = (
    "none",
    "revoked",
    "expired",
    "made up",
    "of another audience",
    "of no algorithm",
    "signed by another",
    "signed with what is public",
    "issued and expired",
    "of another issuer",
)


def issuer(folder: Path) -> dict[str, str]:
    """The settings of whose tokens are taken."""
    return {"issuer": "https://i.example", "audience": "a2m", "jwks": str(folder / "jwks.json")}


def make_tokens(folder: Path, principals: Path) -> dict[str, str]:
    """Tokens by the name of a caller, of `issued` or of what is `REFUSED`; of none there is none.

    They are put in a file of principals, which may exist, and the issuer's keys in `folder`.
    """
    now = time.time_ns() // 1_000_000
    tokens: dict[str, str] = {}
    with editing(principals) as edit:
        for who in KNOWN:
            tokens[who.name], kept = make_token(now)
            made = Principal(
                name=who.name,
                owner=str(who.owner),
                roles=(Role(who.role),),
                reads=who.lists,
                pooled=who.pooled,
                tokens=(kept,),
            )
            edit.principals = edit.principals.with_(made)
        for name, lifetime in (("revoked", None), ("expired", -1_000)):
            tokens[name], kept = make_token(now - 5_000, lifetime)
            whose = Principal(name=name, owner=ANN, tokens=(kept,))
            edit.principals = edit.principals.with_(
                revoked(whose, [kept.id], now) if name == "revoked" else whose
            )
    tokens["made up"], _ = make_token(now)
    return tokens | _issued(folder)


def _issued(folder: Path) -> dict[str, str]:
    key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    jwk: Any = jwt.get_algorithm_by_name("ES256").to_jwk(key.public_key(), as_dict=True)
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**jwk, "kid": "k"}]}))
    claims = {"iss": "https://i.example", "aud": "a2m", "sub": ANN, "exp": int(time.time()) + 3_600}

    def sign(by: Any = key, algorithm: str | None = "ES256", **changed: Any) -> str:
        return jwt.encode({**claims, **changed}, by, algorithm, headers={"kid": "k"})

    return {
        "issued": sign(),
        "of another audience": sign(aud="other"),
        "of no algorithm": sign(None, "none"),
        "signed by another": sign(other),
        "signed with what is public": _forge(sign(), json.dumps(jwk).encode()),
        "issued and expired": sign(exp=int(time.time()) - 3_600),
        "of another issuer": sign(iss="https://j.example"),
    }


def _forge(token: str, public: bytes) -> str:
    """A token whose signature who knows the public key alone can make, if HS256 is taken with it."""
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"k"}').rstrip(b"=")
    signed = head + b"." + token.split(".")[1].encode()
    signature = urlsafe_b64encode(hmac.digest(public, signed, "sha256")).rstrip(b"=")
    return (signed + b"." + signature).decode()
