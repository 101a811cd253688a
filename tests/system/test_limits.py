"""Quotas and redaction in a whole federation: as an agent meets them, over all tiers and by import."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

STRIPE = f"sk_live_{secrets.token_hex(12)}"


class Caller:
    def __init__(self, running: Any, http: httpx.Client, folder: Path) -> None:
        self._running, self._http, self._folder = running, http, folder

    def a2m(self, *arguments: str) -> str:
        told = {name: value for name, value in os.environ.items() if not name.startswith("A2M_")}
        command = [sys.executable, "-m", "a2m_cli", *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=told, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, token: str, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return self._http.post(
            self._running.url, json=body, headers={"Authorization": f"Bearer {token}"}
        ).json()

    def ok(self, token: str, method: str, **params: Any) -> Any:
        answer = self.ask(token, method, **params)
        assert "error" not in answer, answer
        return answer["result"]


def test_an_agent_holds_no_more_than_its_quota_and_no_credential_is_kept(
    launch: Callable[..., Any], tmp_path: Path, http: httpx.Client
) -> None:
    with launch(tmp_path, "--auth", "--redact") as running:
        here = Caller(running, http, tmp_path)
        data = ("--data", str(running.data))
        agent = here.a2m("token", "create", "agent", "--quota", "20kB", *data).strip()
        about = here.ok(agent, "describe")
        assert (about["redaction"], about["limits"]["max_bytes_held"]) == ("credentials", 20_000)

        said = {"id": "turn", "content": f"my key is {STRIPE}", "session": "s", "metadata": {"raw": STRIPE}}
        here.ok(agent, "remember", records=[said])
        here.ok(agent, "remember", records=[said])
        for tier in ("episodic", "semantic", "procedural"):
            fact = {"content": f"{tier} {STRIPE} {'x' * 4_000}", "key": f"in/{tier}", "tier": tier}
            here.ok(agent, "remember", records=[fact])
        held = here.ok(agent, "held")
        assert all(held["tiers"][tier] > 0 for tier in ("working", "episodic", "semantic", "procedural"))
        assert 12_000 < held["bytes"] < 16_000
        refused = here.ask(agent, "remember", records=[{"content": "y" * 6_000}, {"content": "z" * 6_000}])
        assert refused["error"]["code"] == -32006
        here.ok(agent, "session/close", session="s")
        moved = here.ok(agent, "held")
        assert (moved["tiers"]["working"], abs(moved["bytes"] - held["bytes"]) < 300) == (0, True)
        here.ok(agent, "forget", key_prefix="in/semantic")
        here.ok(agent, "remember", records=[{"content": "y" * 6_000, "session": "t"}])

        lines = [{"id": f"old{n}", "content": f"{n}: {STRIPE}", "owner": "agent"} for n in range(2)]
        (tmp_path / "old.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        own = ("--url", running.url, "--token-file", str(running.data / "you.token"))
        here.a2m("import", "old.jsonl", *own)
        everything = json.dumps(here.ok(agent, "timeline")) + here.a2m("export", "-", *own)
        assert everything.count("[redacted: Stripe Credentials]") > 6
        assert STRIPE not in everything
        logs = "".join(path.read_text() for path in running.data.rglob("*.log"))
        assert STRIPE not in logs + (running.data / "audit.jsonl").read_text()
