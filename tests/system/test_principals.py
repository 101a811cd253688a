"""`a2m up --auth`: agents with tokens of their own, over the router and its real tiers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.timeout(300)

TIERS = ("working", "episodic", "semantic", "procedural")
AGENTS = ("acme/ann", "acme/bob")
MARKS = {"acme/ann": "zebrafinch", "acme/bob": "marmalade", None: "lighthouse"}


class Federation:
    """One that asks for tokens."""

    def __init__(self, running: Any, http: httpx.Client) -> None:
        self.running, self.http = running, http

    def a2m(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command run beside the data folder, as it is after `a2m up`."""
        told = {name: value for name, value in os.environ.items() if not name.startswith("A2M_")}
        told |= {"A2M_URL": self.running.url, **environment}
        command = [sys.executable, "-m", "a2m_cli", *arguments]
        return subprocess.run(
            command, cwd=self.running.data.parent, env=told, capture_output=True, text=True, check=False
        )

    def token(self, command: str, *arguments: str) -> str:
        done = self.a2m("token", command, *arguments, "--data", str(self.running.data))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def post(self, token: str | None, method: str, url: str | None = None, **params: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        body = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return self.http.post(url or self.running.url, json=body, headers=headers)

    def ask(self, token: str, method: str, **params: Any) -> Any:
        answer = self.post(token, method, **params).json()
        assert "error" not in answer, answer
        return answer["result"]

    def code(self, token: str, method: str, **params: Any) -> int:
        return self.post(token, method, **params).json()["error"]["code"]


@pytest.fixture(scope="module")
def up(
    launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, http: httpx.Client
) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("auth")
    with launch(folder, "--auth") as running:
        (folder / ".a2m").symlink_to(running.data)
        yield Federation(running, http)


@pytest.fixture(scope="module")
def tokens(up: Federation) -> dict[str, str]:
    """A token for each agent, both with records in all tiers, beside pooled ones."""
    made = {name: up.token("create", name) for name in AGENTS}
    you = (up.running.data / "you.token").read_text().strip()
    for owner, mark in MARKS.items():
        token = you if owner is None else made[owner]
        extra: dict[str, Any] = {"owner": None} if owner is None else {}
        turns = [{"content": f"{mark} turn {n}", "session": "talk", "role": "user"} for n in range(26)]
        up.ask(token, "remember", records=turns, **extra)
        facts = [
            {"content": f"{mark} fact", "key": "shared/fact", "tier": "semantic"},
            {"content": f"{mark} steps", "key": "shared/steps", "tier": "procedural"},
            {"content": f"{mark} note", "tier": "episodic"},
        ]
        up.ask(token, "remember", records=facts, **extra)
    return made


def everything(up: Federation, token: str) -> str:
    """All that a caller is told, by every read."""
    context = {"query": "turn fact steps note", "session": "talk", "task": "steps"}
    answers = [
        up.ask(token, "timeline"),
        up.ask(token, "timeline", where={"owner": [*MARKS]}),
        up.ask(token, "timeline", key_prefix="shared"),
        up.ask(token, "events", cursor=""),
        up.ask(token, "session/list"),
        up.ask(token, "fetch", key="shared/fact"),
        up.ask(token, "fetch", key="shared/steps"),
        up.ask(token, "context", **context),
        up.ask(token, "describe"),
        *(up.ask(token, "recall", query=mark, limit=100, explain=True) for mark in MARKS.values()),
        *(up.ask(token, "recall", query="turn fact steps note", tier=tier, limit=100) for tier in TIERS),
    ]
    return json.dumps(answers)


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_sees_its_own_and_pooled_records_in_every_tier(
    up: Federation, tokens: dict[str, str], poll: Any, agent: str
) -> None:
    token = tokens[agent]
    [other] = [name for name in AGENTS if name != agent]
    described = up.ask(token, "describe")
    assert "scopes" in described["capabilities"]
    assert sum(tier["count"] for tier in described["tiers"]) == 2 * 29
    poll(
        "the spill",
        lambda: {t["name"]: t["count"] for t in up.ask(token, "describe")["tiers"]}["working"] == 40,
    )
    records = up.ask(token, "timeline")["records"]
    assert {record["tier"] for record in records} == {*TIERS}
    assert {record.get("owner") for record in records} == {agent, None}
    told = everything(up, token)
    assert MARKS[agent] in told
    assert "lighthouse" in told
    assert MARKS[other] not in told
    assert other not in told
    assert up.ask(token, "fetch", key="shared/fact")["record"]["owner"] == agent


@pytest.mark.slow
def test_what_is_anothers_can_be_neither_named_nor_changed(up: Federation, tokens: dict[str, str]) -> None:
    ann, bob = (tokens[name] for name in AGENTS)
    theirs = [record["id"] for record in up.ask(bob, "timeline")["records"]]
    before = up.ask(bob, "timeline")
    for method, params in {
        "timeline": {},
        "recall": {"query": "x"},
        "remember": {"records": [{"content": "x"}]},
        "forget": {"ids": theirs},
        "session/close": {"session": "talk"},
    }.items():
        assert up.code(ann, method, owner="acme/bob", **params) == -32005
    assert up.code(ann, "remember", records=[{"content": "x", "owner": "acme/bob"}]) == -32005
    assert up.code(ann, "remember", records=[{"content": "x"}], owner=None) == -32005
    assert up.code(ann, "remember", records=[{"content": "x", "id": theirs[0]}]) == -32005
    assert up.code(ann, "list", limit=10) == -32005
    own = {record["id"] for record in up.ask(ann, "timeline", where={"owner": "acme/ann"})["records"]}
    others = [record_id for record_id in theirs if record_id not in own]
    assert up.ask(ann, "forget", ids=others)["forgotten"] == 0
    assert up.ask(ann, "reinforce", ids=others)["reinforced"] == 0
    assert up.ask(ann, "promote", ids=others, tier="semantic")["promoted"] == 0
    assert up.ask(bob, "timeline") == before


@pytest.mark.slow
def test_nobody_passes_without_a_token_and_an_agents_opens_no_tier(
    up: Federation, tokens: dict[str, str]
) -> None:
    ann = tokens["acme/ann"]
    for token in (None, "wrong", ann[:-1] + "x"):
        assert up.post(token, "timeline").status_code == 401
        for path in ("/metrics", "/.well-known/a2m-server.json"):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            assert up.http.get(up.running.url + path, headers=headers).status_code == 401
    for url in (up.running.urls[tier] for tier in TIERS):
        for token in (None, ann):
            assert up.post(token, "timeline", url).status_code == 401
            assert up.post(token, "remember", url, records=[{"content": "slipped in"}]).status_code == 401
    metrics = up.http.get(up.running.url + "/metrics", headers={"Authorization": f"Bearer {ann}"})
    for secret in ("acme", *MARKS.values(), ann):
        assert str(secret) not in metrics.text
        assert str(secret) not in up.running.logs()


@pytest.mark.slow
def test_who_runs_it_needs_to_name_no_token_and_sees_everybodys(
    up: Federation, tokens: dict[str, str]
) -> None:
    done = up.a2m("recall", "zebrafinch", "--json")
    assert done.returncode == 0, done.stderr
    assert "zebrafinch" in done.stdout
    assert up.a2m("status").returncode == 0
    assert up.a2m("timeline", A2M_TOKEN_FILE=str(up.running.token_file)).returncode == 3
    assert "zebrafinch turn 3" in up.a2m("export", "-").stdout


@pytest.mark.slow
def test_a_token_is_rotated_and_revoked_while_it_runs(up: Federation, tokens: dict[str, str]) -> None:
    old = up.token("create", "short-lived")
    assert up.post(old, "timeline").status_code == 200
    fresh = up.token("rotate", "short-lived")
    assert (up.post(old, "timeline").status_code, up.post(fresh, "timeline").status_code) == (401, 200)
    up.token("revoke", "short-lived")
    assert up.post(fresh, "timeline").status_code == 401
    assert up.post(tokens["acme/ann"], "timeline").status_code == 200


@pytest.mark.slow
def test_a_reader_reads_what_it_was_given_and_a_curator_writes_for_all(
    up: Federation, tokens: dict[str, str]
) -> None:
    reader = up.token("create", "desk", "--role", "reader", "--read", "acme/ann", "--no-pooled")
    told = everything(up, reader)
    assert "zebrafinch" in told
    assert "lighthouse" not in told
    assert "marmalade" not in told
    assert up.code(reader, "remember", records=[{"content": "x"}]) == -32005
    curator = up.token("create", "editor", "--role", "curator")
    up.ask(curator, "remember", records=[{"content": "greenhouse for all", "owner": None}])
    assert "greenhouse" in json.dumps(up.ask(tokens["acme/bob"], "recall", query="greenhouse"))
