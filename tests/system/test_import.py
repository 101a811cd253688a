"""Conversations come in through the router, and every turn is in one place and in its order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(240)


def run_import(url: str, files: list[Any]) -> dict[str, Any]:
    """`a2m import` of files: what it reports."""
    command = [sys.executable, "-m", "a2m_cli", "import", "--json", "--url", url, *files]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.parametrize("source", ["shipped", "shared"])
def test_an_import_puts_every_turn_into_one_tier_in_order_and_a_second_one_changes_nothing(
    source: str, federation: Any, audit: Any, make_conversations: Callable[[str], Any]
) -> None:
    given = make_conversations(source)
    first = run_import(federation.url, given.files)
    assert (first["read"], first["written"], first["refused"]) == (given.turns, given.turns, [])
    audit.check(given)

    before = audit.settle(list(given.sessions))
    second = run_import(federation.url, given.files)
    assert (second["read"], second["written"], second["already_there"]) == (given.turns, 0, given.turns)
    assert audit.settle(list(given.sessions)) == before
    audit.check(given)


def test_a_closed_session_leaves_working_at_once_and_keeps_its_order(
    federation: Any, router: Any, tiers: Any, audit: Any, make_conversations: Callable[[str], Any]
) -> None:
    given = make_conversations("shipped")
    run_import(federation.url, given.files)
    session = max(given.sessions, key=lambda name: len(given.sessions[name]))
    audit.settle([session])
    held = len(tiers["working"].entries(where={"session": session}))

    closed = router.call("session/close", session=session)
    assert closed["flushed"] == held > 0
    assert tiers["working"].entries(where={"session": session}) == []
    records = router.call("timeline", where={"session": session})["records"]
    assert [record["content"] for record in records] == [turn.content for turn in given.sessions[session]]
    audit.check(given)
