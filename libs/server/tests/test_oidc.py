"""JSON Web Tokens against keys of a real issuer: in a file, and behind a local HTTP server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.server
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from pydantic import ValidationError

from a2m_server.identity import Caller, Role, UnauthorizedError, UndecidedError
from a2m_server.jwks import MOST_BYTES, FetchedKeys, FileKeys, parse
from a2m_server.oidc import Issuer, OidcSettings
from a2m_server.settings import ServerSettings

ISSUER, AUDIENCE = "https://issuer.example", "a2m"


class Signer:
    """A private key of an issuer."""

    def __init__(self, kid: str, algorithm: str = "ES256") -> None:
        self.kid, self.algorithm = kid, algorithm
        if algorithm == "EdDSA":
            self.key: Any = ed25519.Ed25519PrivateKey.generate()
        elif algorithm.startswith("ES"):
            self.key = ec.generate_private_key(ec.SECP256R1())
        else:
            self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    @property
    def jwk(self) -> dict[str, Any]:
        made = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.key.public_key(), as_dict=True)
        return {**made, "kid": self.kid, "use": "sig"}

    def sign(self, *drop: str, header: dict[str, Any] | None = None, **claims: Any) -> bytes:
        now = int(time.time())
        given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "iat": now, **claims}
        for name in drop:
            del given[name]
        headers = {name: v for name, v in {"kid": self.kid, **(header or {})}.items() if v is not None}
        payload = json.dumps(given).encode()  # also what PyJWT would not sign
        return jwt.PyJWS().encode(payload, self.key, self.algorithm, headers=headers).encode()


def key_set(*signers: Signer) -> bytes:
    return json.dumps({"keys": [signer.jwk for signer in signers]}).encode()


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer("one")


@pytest.fixture(scope="module")
def rsa_signer() -> Signer:
    return Signer("rsa", "RS256")


@pytest.fixture
def jwks(tmp_path: Path, signer: Signer, rsa_signer: Signer) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(signer, rsa_signer))
    return path


def issuer(jwks: Path, **given: Any) -> Issuer:
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks), **given)
    return Issuer(settings, FileKeys(jwks))


async def known(verifier: Issuer, token: bytes) -> Caller:
    caller = await verifier.verify(token)
    assert caller is not None
    return caller


async def test_a_good_token_is_an_agent_of_its_subject(
    jwks: Path, signer: Signer, rsa_signer: Signer
) -> None:
    for one in (signer, rsa_signer):
        caller = await known(issuer(jwks), one.sign(sub="acme/support/agent-7"))
        assert (caller.owner, caller.trusted, caller.roles) == ("acme/support/agent-7", False, {Role.AGENT})
        assert caller.readable == {"acme/support/agent-7", None}
    assert await known(issuer(jwks), signer.sign(aud=["other", AUDIENCE]))


def b64(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> bytes:
    signed = b64(json.dumps(header).encode()) + b"." + b64(json.dumps(claims).encode())
    signature = b"" if secret is None else hmac.digest(secret, signed, hashlib.sha256)
    return signed + b"." + b64(signature)


def claims(**given: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 600, **given}


async def test_what_is_wrong_with_a_token_refuses_it(jwks: Path, signer: Signer, rsa_signer: Signer) -> None:
    now = int(time.time())
    pem = rsa_signer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    good = signer.sign()
    head, body, signature = good.split(b".")
    stranger = Signer("one")
    wrong = {
        "expired": signer.sign(exp=now - 60),
        "not yet valid": signer.sign(nbf=now + 120),
        "issued in the future": signer.sign(iat=now + 120),
        "wrong audience": signer.sign(aud="other"),
        "no audience": signer.sign("aud"),
        "wrong issuer": signer.sign(iss="https://evil.example"),
        "no issuer": signer.sign("iss"),
        "no expiry": signer.sign("exp"),
        "expiry is text": signer.sign(exp="soon"),
        "expiry is a list": signer.sign(exp=[]),
        "expiry is infinite": signer.sign(exp=float("inf")),
        "not before is infinite": signer.sign(nbf=float("inf")),
        "issuer is a number": signer.sign(iss=5),
        "audience is a number": signer.sign(aud=5),
        "audience is odd": signer.sign(aud=[{}]),
        "subject is a number": signer.sign(sub=5),
        "no subject": signer.sign("sub"),
        "empty subject": signer.sign(sub=""),
        "subject too long": signer.sign(sub="x" * 513),
        "unknown key": Signer("two").sign(),
        "another's key of the same id": stranger.sign(),
        "no key id, of several keys": signer.sign(header={"kid": None}),
        "key id of another": signer.sign(header={"kid": "rsa"}),
        "alg none": forged({"alg": "none", "kid": "one"}, claims(), None),
        "alg None": forged({"alg": "None", "kid": "one"}, claims(), None),
        "alg missing": forged({"kid": "one"}, claims(), None),
        "alg a list": forged({"alg": ["ES256"], "kid": "one"}, claims(), None),
        "HS256 with the public key": forged({"alg": "HS256", "kid": "rsa"}, claims(), pem),
        "HS256 of the key in JSON": forged(
            {"alg": "HS256", "kid": "rsa"}, claims(), json.dumps(rsa_signer.jwk).encode()
        ),
        "algorithm not asked for": Signer("rsa", "PS256").sign(),
        "algorithm of another key": forged({"alg": "RS256", "kid": "one"}, claims(), b"x"),
        "no signature": head + b"." + body + b".",
        "changed claims": head + b"." + b64(json.dumps(claims(sub="root")).encode()) + b"." + signature,
    }
    verifier = issuer(jwks)
    for what, token in wrong.items():
        with pytest.raises(UnauthorizedError) as raised:
            pytest.fail(f"{what}: {await verifier.verify(token)}")
        assert len(str(raised.value)) < 80
    assert await known(verifier, good)


async def test_what_is_no_json_web_token_is_left_to_others(jwks: Path, signer: Signer) -> None:
    critical = signer.sign(header={"crit": ["odd"], "odd": 1})
    others = (b"", b"opaque", b"a.b.c", b"\xff.\xff.\xff", b"." * 10_000, b"a2m_12345678_" + b"A" * 43)
    deep = b64(b"[" * 40_000) + b".e30.AAAA"
    deeper = b64(b'{"alg":' + b"[" * 40_000) + b".e30.AAAA"
    for other in (*others, critical, deep, deeper):
        assert await issuer(jwks).verify(other) is None


async def test_clocks_may_differ_by_the_leeway_alone(jwks: Path, signer: Signer) -> None:
    now = int(time.time())
    for claim in ({"exp": now - 5}, {"nbf": now + 5}, {"iat": now + 5}):
        assert await known(issuer(jwks, leeway=30), signer.sign(**claim))
        with pytest.raises(UnauthorizedError):
            await issuer(jwks, leeway=0).verify(signer.sign(**claim))


async def test_roles_and_readable_owners_come_from_the_claims_that_are_named(
    jwks: Path, signer: Signer
) -> None:
    verifier = issuer(
        jwks, owner_claim="tenant", roles_claim="realm_access.roles", reads_claim="https://x.y/reads"
    )
    given = {"tenant": "acme", "realm_access": {"roles": ["curator", "king"]}, "https://x.y/reads": "b c"}
    caller = await known(verifier, signer.sign(**given))
    assert (caller.owner, caller.roles) == ("acme", {Role.CURATOR})
    assert caller.readable == {"acme", "b", "c", None}
    # Of who was given no role that is known here, none is assumed.
    assert (await known(verifier, signer.sign(tenant="acme"))).roles == frozenset()
    everything = {**given, "https://x.y/reads": ["*"]}
    assert (await known(verifier, signer.sign(**everything))).readable is None
    everything["realm_access"] = {"roles": ["agent"]}
    assert (await known(verifier, signer.sign(**everything))).readable == {"acme", None}
    without = issuer(jwks, reads_claim="reads")
    assert (await known(without, signer.sign(roles=["operator"], reads="b"))).roles == {Role.AGENT}


async def test_every_asymmetric_algorithm_works_that_is_asked_for(tmp_path: Path) -> None:
    for algorithm in ("RS512", "PS256", "ES256", "EdDSA"):
        one = Signer("k", algorithm)
        path = tmp_path / f"{algorithm}.json"
        path.write_bytes(key_set(one))
        assert await known(issuer(path, algorithms=(algorithm,)), one.sign())
        with pytest.raises(UnauthorizedError):
            await issuer(path, algorithms=("RS256",)).verify(one.sign())


@pytest.mark.parametrize("bad", ["none", "HS256", "HS512", "", "RS256,none", "RS256,HS256"])
def test_an_algorithm_that_proves_nothing_is_refused_at_the_start(bad: str, monkeypatch: Any) -> None:
    with pytest.raises(ValidationError):
        OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks="x", algorithms=bad)  # pyright: ignore
    monkeypatch.setenv("A2M_SERVER_OIDC__ALGORITHMS", bad)
    with pytest.raises(ValidationError):
        ServerSettings()


@pytest.mark.parametrize("missing", ["issuer", "audience", "jwks"])
def test_issuer_audience_and_keys_are_needed_together(missing: str) -> None:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": "x"}
    with pytest.raises(ValidationError, match="needed together"):
        OidcSettings(**{**given, missing: None})  # pyright: ignore


@pytest.mark.parametrize(
    "jwks", ["http://issuer.example/jwks", "ftp://x/y", "http://127.0.0.1.evil.example/"]
)
def test_keys_are_not_fetched_over_an_open_network(jwks: str) -> None:
    with pytest.raises(ValidationError, match="https"):
        OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks=jwks)


def test_the_settings_come_from_the_environment(monkeypatch: Any) -> None:
    for name, value in {
        "ISSUER": ISSUER,
        "AUDIENCE": AUDIENCE,
        "JWKS": "https://issuer.example/jwks",
        "ALGORITHMS": "RS256, EdDSA",
        "ROLES_CLAIM": "roles",
    }.items():
        monkeypatch.setenv(f"A2M_SERVER_OIDC__{name}", value)
    settings = ServerSettings(host="0.0.0.0")
    assert settings.keeps_owners_apart
    assert settings.oidc.algorithms == ("RS256", "EdDSA")


def test_a_key_set_without_a_public_key_is_refused(tmp_path: Path, signer: Signer) -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}
    for text in (b"", b"[]", b'{"keys": []}', json.dumps({"keys": [secret]}).encode(), b"\xff"):
        path = tmp_path / "jwks.json"
        path.write_bytes(text)
        with pytest.raises(ValueError, match="key set"):
            FileKeys(path)
    with pytest.raises(ValueError, match="No such file"):
        FileKeys(tmp_path / "missing")
    # For encryption alone, or of a kind that is not known: left out.
    mixed = {"keys": [secret, {**signer.jwk, "use": "enc", "kid": "e"}, {"kty": "odd"}, 5, signer.jwk]}
    keys = parse(json.dumps(mixed).encode())
    assert [kid for kid in ("s", "e", "one", "") if kid in keys] == ["one"]


async def test_a_short_rsa_key_is_refused(tmp_path: Path) -> None:
    weak = Signer("weak", "RS256")
    weak.key = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(weak))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = weak.sign()
    with pytest.raises(UnauthorizedError):
        await issuer(path).verify(token)


def replace(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


async def test_a_key_set_that_changes_or_breaks_under_a_running_server(
    jwks: Path, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    verifier = issuer(jwks)
    late = Signer("two")
    replace(jwks, key_set(late))
    assert await known(verifier, late.sign())
    with pytest.raises(UnauthorizedError):
        await verifier.verify(signer.sign())
    replace(jwks, b"{")
    assert await known(verifier, late.sign())
    assert "stays in force" in caplog.text
    replace(jwks, None)
    for _ in range(3):
        assert await known(verifier, late.sign())
    assert caplog.text.count("stays in force") == 2


class Published:
    """An issuer's key set behind HTTP."""

    def __init__(self) -> None:
        self.body, self.status, self.asked = b"", 200, 0
        published = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                published.asked += 1
                self.send_response(published.status)
                self.send_header("Content-Length", str(len(published.body)))
                self.end_headers()
                self.wfile.write(published.body)

            def log_message(self, *_: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"


@pytest.fixture
def published() -> Iterator[Published]:
    made = Published()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class Fetching:
    """An issuer whose keys are fetched, and a clock."""

    def __init__(self, published: Published) -> None:
        self.now = 0.0
        keys = FetchedKeys(published.url, 30.0, lambda: self.now)
        self.issuer = Issuer(OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks=published.url), keys)


@pytest.fixture
def fetching(published: Published) -> Fetching:
    return Fetching(published)


async def test_keys_are_fetched_once_and_again_for_one_that_is_new(
    published: Published, fetching: Fetching, signer: Signer
) -> None:
    published.body = key_set(signer)
    for _ in range(3):
        assert await known(fetching.issuer, signer.sign())
    assert published.asked == 1
    fetching.now = 31.0
    late = Signer("two")
    published.body = key_set(late)
    assert await known(fetching.issuer, late.sign())
    with pytest.raises(UnauthorizedError):
        await fetching.issuer.verify(signer.sign())
    assert published.asked == 2


async def test_keys_that_nobody_has_do_not_make_us_ask_all_the_time(
    published: Published, fetching: Fetching, signer: Signer
) -> None:
    published.body = key_set(signer)
    assert await known(fetching.issuer, signer.sign())
    stranger = Signer("stranger")
    for now, asked in ((31.0, 2), (60.0, 2), (62.0, 3)):
        fetching.now = now
        for _ in range(20):
            with pytest.raises(UnauthorizedError):
                await fetching.issuer.verify(stranger.sign())
        assert published.asked == asked
        assert await known(fetching.issuer, signer.sign())


@pytest.mark.parametrize("trouble", ["status", "body", "size", "gone"])
async def test_a_fetch_that_fails_keeps_the_old_keys(
    published: Published, fetching: Fetching, signer: Signer, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    published.body = key_set(signer)
    assert await known(fetching.issuer, signer.sign())
    if trouble == "status":
        published.status = 500
    elif trouble == "gone":
        published.server.server_close()
    else:
        published.body = b"{" if trouble == "body" else b" " * (MOST_BYTES + 1) + key_set(signer)
    fetching.now = 31.0
    with caplog.at_level(logging.WARNING), pytest.raises(UnauthorizedError):
        await fetching.issuer.verify(Signer("two").sign())
    assert "cannot be fetched" in caplog.text
    assert await known(fetching.issuer, signer.sign())


async def test_while_no_keys_are_known_nothing_is_decided(
    published: Published, fetching: Fetching, signer: Signer
) -> None:
    published.status = 503
    for _ in range(5):
        with pytest.raises(UndecidedError):
            await fetching.issuer.verify(signer.sign())
    assert published.asked == 1
    published.status, published.body, fetching.now = 200, key_set(signer), 31.0
    assert await known(fetching.issuer, signer.sign())


async def test_a_key_that_was_withdrawn_goes_after_a_while(
    published: Published, fetching: Fetching, signer: Signer
) -> None:
    published.body = key_set(signer)
    assert await known(fetching.issuer, signer.sign())
    published.body = key_set(Signer("two"))
    fetching.now = 3_601.0
    # Looked for in the background: this one is not kept waiting.
    assert await known(fetching.issuer, signer.sign())
    deadline = time.monotonic() + 10
    while True:
        assert time.monotonic() < deadline
        try:
            await fetching.issuer.verify(signer.sign())
        except UnauthorizedError:
            break
        await asyncio.sleep(0.01)


async def test_a_token_that_was_checked_is_refused_when_it_expires_or_its_key_goes(
    jwks: Path, signer: Signer
) -> None:
    now = time.time()
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks), leeway=0)
    verifier = Issuer(settings, FileKeys(jwks), lambda: now)
    short, long = signer.sign(exp=int(now) + 1), signer.sign()
    assert (await known(verifier, short)) == (await known(verifier, short)) == (await known(verifier, long))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        now = time.time()
        try:
            await verifier.verify(short)
        except UnauthorizedError:
            break
        await asyncio.sleep(0.05)
    with pytest.raises(UnauthorizedError, match="expired"):
        await verifier.verify(short)
    assert await known(verifier, long)
    replace(jwks, key_set(Signer("one")))
    with pytest.raises(UnauthorizedError):
        await verifier.verify(long)


async def test_of_many_tokens_the_last_used_are_remembered_and_all_are_taken(
    jwks: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2m_server.oidc.REMEMBERED", 2)
    verifier = issuer(jwks)
    tokens = [signer.sign(sub=f"agent-{n}") for n in range(4)]
    for _ in range(2):
        assert [(await known(verifier, token)).owner for token in tokens] == [f"agent-{n}" for n in range(4)]
