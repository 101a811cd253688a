"""Over a federation on real engines, no caller is told anything of those whose records it may not see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from asked import TABLE, Ask
from credentials import REFUSED, issuer, make_tokens
from marks import AGENT, EVERYTHING, GONE, KNOWN, MARKS, OWNERS, READS, TIERS, Who, leaks, may_call

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

DENIED = -32005
EACH = 12
"""About how many asks of a method each caller makes, beyond one a tier."""
LONG = "3600"
"""Seconds between two sweeps: what moves by itself would change the figures."""


@dataclass
class Server:
    running: Any
    http: httpx.Client
    tokens: dict[str, str]

    def post(self, name: str, method: str, params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return self.http.post(self.running.url, json=body, headers=self.headers(name))

    def ask(self, name: str, method: str, **params: Any) -> Any:
        told = self.post(name, method, params).json()
        assert "error" not in told, told
        return told["result"]

    def headers(self, name: str) -> dict[str, str]:
        token = self.tokens.get(name)
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def held(self) -> dict[str, Any]:
        """All records as an operator sees them, but for what a recall counts."""
        told = self.ask("root", "timeline", embeddings=True)["records"]
        counted = ("access_count", "accessed_at", "etag")
        return {r["id"]: {k: v for k, v in r.items() if k not in counted} for r in told}


@pytest.fixture(scope="module")
def server(
    launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, http: httpx.Client
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("strangers")
    oidc = {f"A2M_ROUTER_OIDC__{name.upper()}": value for name, value in issuer(folder).items()}
    make_tokens(folder, folder / "unused.json")
    settings = {"A2M_ROUTER_EMBEDDING__KIND": "none", "A2M_ROUTER_SWEEP_INTERVAL": LONG, **oidc}
    with launch(folder, "--auth", **settings) as running:
        made = Server(running, http, make_tokens(folder, running.data / "principals.json"))
        made.ask("root", "remember", records=EVERYTHING, transfer=True)
        for owner in OWNERS:
            made.ask("root", "remember", records=[{"content": "x", "id": GONE[owner]}], owner=owner)
            made.ask("root", "forget", ids=[GONE[owner]])
        yield made


def chosen(method: str) -> list[Ask]:
    """One ask a tier, and some of all the others."""
    asks = [*TABLE[method]()]
    by_tier = {ask.params.get("tier"): ask for ask in reversed(asks) if ask.keep is not None}
    return [*by_tier.values(), *asks[:: max(1, len(asks) // EACH)]]


def harmless(who: Who, ask: Ask) -> bool:
    """Whether an ask names what is of strangers, and nothing that the caller may change."""
    said = json.dumps(ask.params)
    if any(record_id in said for record_id in GONE.values()):
        return False  # what is forgotten may be written by anybody
    if "records" in ask.params and '"id"' not in said:
        return False  # whoever writes may call a session, a key and a source what they like
    theirs = any(MARKS[owner] in said for owner in who.strangers())
    own = any(MARKS[owner] in said for owner in OWNERS if who.may_see(owner))
    changed = ask.keep is not None and any(ask.keep(r) and who.may_write(r.get("owner")) for r in EVERYTHING)
    return theirs and not own and not changed


@pytest.mark.parametrize("who", KNOWN, ids=lambda who: who.name)
def test_every_read_tells_a_caller_of_its_own_alone(server: Server, who: Who) -> None:
    described = server.http.get(
        server.running.url + "/.well-known/a2m-server.json", headers=server.headers(who.name)
    )
    assert leaks(who.strangers(), described.text) == []
    assert {t["name"]: t["count"] for t in described.json()["tiers"]} == Counter(
        record["tier"] for record in who.seen()
    )
    for method in TABLE:
        reads = method in READS or (method in ("list", "read") and who.role == "operator")
        for ask in chosen(method) if reads else ():
            answer = server.post(who.name, method, ask.params)
            assert leaks(who.strangers(), answer.text, ask.params) == [], (method, ask.params, answer.text)
            told = answer.json()
            assert told.get("error", {}).get("code") != -32603, (method, ask.params, told)
            wanted = sorted(r["id"] for r in who.seen() if ask.keep is not None and ask.keep(r))
            if "result" in told and ask.keep is not None and method in ("timeline", "recall", "list"):
                found = told["result"].get("records", told["result"].get("entries"))
                assert sorted(r["id"] for r in found) == wanted, (method, ask.params)
            if "result" in told and method == "session/list" and not ask.params:
                assert {s.get("owner") for s in told["result"]["sessions"]} <= {
                    r.get("owner") for r in who.seen()
                }


@pytest.mark.parametrize("who", [who for who in KNOWN if who.role != "operator"], ids=lambda who: who.name)
def test_no_method_changes_what_is_of_strangers_or_tells_whether_it_is_there(
    server: Server, who: Who
) -> None:
    before = server.held()
    for method in TABLE.keys() - READS:
        allowed = may_call(who, method)
        asks = [ask for ask in TABLE[method]() if harmless(who, ask)] if allowed else chosen(method)
        for ask in asks[:: max(1, len(asks) // EACH)]:
            answer = server.post(who.name, method, ask.params)
            told = answer.json()
            assert leaks(who.strangers(), answer.text, ask.params) == [], (method, ask.params, answer.text)
            if not allowed:
                assert told["error"]["code"] in (DENIED, -32003), (method, told)
            elif method in ("forget", "promote", "reinforce", "summarize", "purge"):
                figures = told.get("result", {})
                assert all(not value for value in figures.values()), (method, ask.params, told)
    polled = [server.post(other.name, "events", {"cursor": ""}) for other in KNOWN]
    for other, answer in zip(KNOWN, polled, strict=True):
        assert leaks(other.strangers(), answer.text) == []
    after = server.held()
    assert after == before


def test_without_a_valid_credential_every_method_is_401(server: Server) -> None:
    before = server.held()
    for name in REFUSED:
        for method in TABLE:
            answer = server.post(name, method, next(TABLE[method]()).params)
            assert answer.status_code == 401, (name, method)
            assert not leaks(OWNERS, answer.text)
        for path in ("/metrics", "/.well-known/a2m-server.json"):
            assert server.http.get(server.running.url + path, headers=server.headers(name)).status_code == 401
    assert server.held() == before
    records = server.ask("issued", "timeline")["records"]
    assert sorted(r["id"] for r in records) == sorted(r["id"] for r in AGENT.seen())


def test_logs_and_metrics_name_nobody_and_nothing(server: Server) -> None:
    said = {
        path.name: path.read_text(errors="replace") for path in (server.running.data / "logs").glob("*.log")
    }
    for service, url in server.running.urls.items():
        token = server.tokens["agent-a"] if service == "router" else server.running.token
        answer = server.http.get(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        said[f"metrics of {service}"] = answer.text
    assert len(said) > len(TIERS)
    for name, text in said.items():
        assert not leaks(OWNERS, text), name
        assert not [token for token in server.tokens.values() if token in text], name
