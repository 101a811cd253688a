"""What a running router counts is there to be scraped."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx


def test_a_router_shows_moves_circuits_and_requests(
    federation: Any, router: Any, poll: Callable[..., Any]
) -> None:
    session = "metrics/one"
    router.call("remember", records=[{"content": "counted", "session": session}])
    router.call("session/close", session=session)

    def scraped() -> dict[str, float]:
        text = httpx.get(f"{federation.url}/metrics").text
        return {name: float(value) for name, value in re.findall(r"^(a2m_\S+) (\S+)$", text, re.MULTILINE)}

    figures = scraped()
    assert figures['a2m_moved_records_total{source="working",target="episodic",why="session"}'] >= 1
    assert figures['a2m_requests_total{code="0",method="memory/session/close"}'] >= 1
    assert figures['a2m_request_seconds_count{method="memory/remember"}'] >= 1
    for tier in ("working", "episodic", "semantic", "procedural"):
        poll(f"{tier}'s circuit", lambda t=tier: scraped()[f'a2m_circuit_open{{tier="{t}"}}'] == 0)
    assert "a2m_spills_waiting" in figures
