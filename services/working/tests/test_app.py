"""The service as a person starts it."""

import json
import os
import subprocess
import sys
from typing import Any

from fastapi import FastAPI

from a2m_server.contract import name
from a2m_working.app import create
from a2m_working.settings import WorkingSettings


def test_a_process_on_stdio_keeps_a_transcript(valkey_url: str) -> None:
    session = name()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory/describe", {}),
        ("memory/remember", {"records": [{"content": c} for c in "ab"], "session": session}),
        ("memory/timeline", {"where": {"session": session}}),
        ("memory/recall", {"query": "b", "where": {"session": session}}),
        ("memory/forget", {"where": {"session": session}}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": n, "method": m, "params": p}) for n, (m, p) in enumerate(calls)
    ]
    finished = subprocess.run(
        [sys.executable, "-m", "a2m_working", "--stdio"],
        input="\n".join(lines) + "\n",
        env={**os.environ, "A2M_WORKING_URL": valkey_url, "A2M_WORKING_PREFIX": name("t") + ":"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    results = [json.loads(line)["result"] for line in finished.stdout.splitlines()]
    assert results[0]["name"] == "working"
    assert [r["content"] for r in results[2]["records"]] == ["a", "b"]
    assert [r["content"] for r in results[3]["records"]] == ["b"]
    assert results[4]["forgotten"] == 2


def test_an_application_is_made_without_a_server() -> None:
    assert isinstance(create(WorkingSettings(url="redis://127.0.0.1:1")), FastAPI)
