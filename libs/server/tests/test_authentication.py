"""Who is let in over HTTP, and what is told to whom: principals, an issuer's tokens and the service token."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError

from a2m_server.identity import Gate, UnauthorizedError
from a2m_server.principals import Principal, make_token, revoked
from a2m_server.register import editing
from a2m_server.settings import ServerSettings

CALL = b'{"jsonrpc":"2.0","id":1,"method":"memory/echo"}'
DOCUMENTS = ("/.well-known/a2m-server.json", "/metrics")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def principals(tmp_path: Path) -> Path:
    path = tmp_path / "principals.json"
    with editing(path):
        pass
    path.write_text('{"principals": []}')
    return path


def add(path: Path, name: str, lifetime_ms: int | None = None) -> str:
    text, token = make_token(now_ms(), lifetime_ms)
    with editing(path) as edit:
        edit.principals = edit.principals.with_(Principal(name=name, tokens=(token,)))
    return text


def revoke(path: Path, name: str) -> None:
    with editing(path) as edit:
        whose = edit.principals.named(name)
        assert whose is not None
        edit.principals = edit.principals.with_(revoked(whose, [t.id for t in whose.tokens], now_ms()))


def check_refused(served: Any, headers: dict[str, str], said: str, challenge: str) -> None:
    """Refused on every path, and what is sent is not even looked at."""
    before = len(served.handler.seen)
    for response in (
        *(served.client.get(path, headers=headers) for path in DOCUMENTS),
        served.post(b"{ no JSON", **headers),
        served.post(CALL, **headers, Content_Type="text/plain"),
        served.post(CALL, **headers, A2M_Protocol_Version="a2m/9.9"),
    ):
        assert response.status_code == 401
        assert said in response.json()["error"]
        assert response.headers["www-authenticate"] == challenge
    # A body that is promised and never sent is not waited for.
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}"
    answer = served.raw(head.encode() + b"Content-Length: 1000\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 401")
    assert len(served.handler.seen) == before


def test_without_a_valid_token_it_is_401_before_anything_is_read(serve: Any, principals: Path) -> None:
    good = add(principals, "ann")
    gone = add(principals, "bob")
    ended = add(principals, "eve", -1)
    revoke(principals, "bob")
    plain, invalid = 'Bearer realm="a2m"', 'Bearer realm="a2m", error="invalid_token"'
    with serve(principals_file=principals) as served:
        check_refused(served, {}, "asks for a bearer token", plain)
        check_refused(served, bearer("wrong"), "not valid here", invalid)
        check_refused(served, bearer(good[:-1]), "not valid here", invalid)
        check_refused(served, bearer(gone), "revoked", invalid)
        check_refused(served, bearer(ended), "expired", invalid)
        check_refused(served, {"Authorization": f"Basic {good}"}, "exactly one", invalid)
        assert served.call("memory/echo", **bearer(good))["result"]["roles"] == ["agent"]
        assert served.client.get("/metrics", headers=bearer(good)).status_code == 200


def test_health_and_readiness_need_no_token_and_tell_nothing_of_anybody(serve: Any, principals: Path) -> None:
    token = add(principals, "ann")
    with serve(principals_file=principals) as served:
        served.call("memory/echo", **bearer(token))
        for path in ("/healthz", "/readyz"):
            assert served.client.get(path).json() == {"status": "ok"}


def test_a_token_is_revoked_and_another_made_under_a_running_server(serve: Any, principals: Path) -> None:
    token = add(principals, "ann")
    with serve(principals_file=principals) as served:
        assert served.post(CALL, **bearer(token)).status_code == 200
        revoke(principals, "ann")
        assert served.post(CALL, **bearer(token)).status_code == 401
        assert served.post(CALL, **bearer(add(principals, "bob"))).status_code == 200


def test_the_service_token_is_believed_beside_principals(
    serve: Any, principals: Path, token_file: Path
) -> None:
    token = add(principals, "ann")
    with serve(principals_file=principals, token_file=token_file) as served:
        assert served.call("memory/echo", **bearer("first-token"))["result"]["trusted"] is True
        assert served.call("memory/echo", **bearer(token))["result"]["trusted"] is False
        assert served.post(CALL).status_code == 401


def test_neither_tokens_nor_names_are_logged_or_counted(
    serve: Any, principals: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = add(principals, "ann-of-acme")
    gone = add(principals, "bob-of-acme")
    revoke(principals, "bob-of-acme")
    with caplog.at_level(logging.DEBUG), serve(principals_file=principals) as served:
        for token in (good, gone, "guessed-token"):
            served.post(CALL, **bearer(token))
        served.call("memory/crash", **bearer(good))
        counted = served.client.get("/metrics", headers=bearer(good)).text
    for secret in (good, gone, "guessed-token", "of-acme", good[4:12]):
        assert secret not in caplog.text
        assert secret not in counted


def test_a_principals_file_that_is_wrong_is_no_start(serve: Any, principals: Path) -> None:
    principals.write_text("{}x")
    with pytest.raises(ValueError, match="principals file"), serve(principals_file=principals):
        pytest.fail("it serves")


@pytest.fixture
def issued(tmp_path: Path) -> Any:
    """Settings of an issuer, and a maker of its tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    jwk: Any = jwt.get_algorithm_by_name("ES256").to_jwk(key.public_key(), as_dict=True)
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [{**jwk, "kid": "k"}]}))
    oidc = {"issuer": "https://i.example", "audience": "a2m", "jwks": str(path), "roles_claim": "roles"}

    def sign(**claims: Any) -> str:
        given = {"iss": "https://i.example", "aud": "a2m", "sub": "ann", "exp": time.time() + 60, **claims}
        return jwt.encode(given, key, "ES256", headers={"kid": "k"})

    return oidc, sign


def test_tokens_of_an_issuer_are_taken_beside_those_of_principals(
    serve: Any, principals: Path, issued: Any
) -> None:
    oidc, sign = issued
    ours = add(principals, "bob")
    with serve(principals_file=principals, oidc=oidc) as served:
        assert served.call("memory/echo", **bearer(sign(roles=["reader"])))["result"]["roles"] == ["reader"]
        assert served.call("memory/echo", **bearer(ours))["result"]["roles"] == ["agent"]
        for wrong in (sign(aud="other"), sign(exp=1), sign(sub=""), sign()[:-4], sign() + "." + sign()):
            response = served.post(b"{", **bearer(wrong))
            assert (response.status_code, len(served.handler.seen)) == (401, 2)
        assert served.post(CALL).status_code == 401


def test_while_the_issuers_keys_cannot_be_had_it_is_503(serve: Any, issued: Any) -> None:
    oidc, sign = issued
    with serve(oidc={**oidc, "jwks": "http://127.0.0.1:1/jwks"}) as served:
        response = served.post(CALL, **bearer(sign()))
        assert response.status_code == 503
        assert response.headers["retry-after"]
        assert served.post(CALL, **bearer("opaque")).status_code == 401


def test_beyond_loopback_principals_or_an_issuer_are_enough(principals: Path, issued: Any) -> None:
    oidc, _ = issued
    assert ServerSettings(host="0.0.0.0", principals_file=principals)
    assert ServerSettings(host="0.0.0.0", oidc=oidc)
    with pytest.raises(ValueError, match=r"PRINCIPALS_FILE.*OIDC__ISSUER.*reads, changes and deletes"):
        ServerSettings(host="0.0.0.0")


def test_allowing_the_network_without_authentication_does_not_switch_principals_off(
    serve: Any, principals: Path
) -> None:
    with serve(principals_file=principals, allow_unauthenticated_remote=True) as served:
        assert served.post(CALL).status_code == 401


def test_an_issuer_that_is_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ISSUER", "AUDIENCE", "JWKS"):
        monkeypatch.setenv(f"A2M_SERVER_OIDC__{name}", "")
    with pytest.raises(ValidationError, match="refusing to listen"):
        ServerSettings(host="0.0.0.0")
    assert not ServerSettings().keeps_owners_apart


async def test_a_gate_without_verifiers_that_asks_for_a_token_lets_nobody_in() -> None:
    gate = Gate(required=True)
    for headers in ([], [b"Bearer x"]):
        with pytest.raises(UnauthorizedError):
            await gate.admit(headers)


def test_with_a_service_token_alone_nobody_else_is_let_in_where_it_is_required(
    serve: Any, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first-token\n")
    with serve(token_file=token_file, require_token=True) as served:
        assert served.post(CALL).status_code == 401
        assert served.call("memory/echo", **bearer("first-token"))["result"]["trusted"] is True
    with pytest.raises(ValidationError, match="require_token needs"):
        ServerSettings(require_token=True)
