"""Every process is replaced, one at a time, and who uses our client with its defaults sees no failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nursery import Nursery
from replicas import Deployment, Programs, Replica
from traffic import Figures, Traffic, audit

_PAST_IDLE = 4.0
"""Seconds of drain: longer than our client keeps a connection that it does not use."""


async def _rolled(deployment: Deployment, traffic: Traffic, seconds: float) -> list[str]:
    """Restart all replicas in turn under traffic, for `seconds` at least; how long each was away."""
    begun = time.monotonic()
    running = asyncio.create_task(traffic.run())
    try:
        told = [await _restarted(deployment, one) for one in deployment.replicas]
        await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))
    finally:
        traffic.stop()
        await running
    return told


async def _restarted(deployment: Deployment, one: Replica) -> str:
    begun, pid = time.monotonic(), one.pid
    await deployment.restart(one)
    assert one.pid != pid
    return f"{one.name} {time.monotonic() - begun:.1f} s"


def _check(deployment: Deployment, figures: Figures) -> None:
    assert figures.failures == []
    assert figures.wrong == []
    for one in deployment.replicas:
        # It was not the limit of the shutdown that ended what was under way.
        assert "graceful shutdown exceeded" not in one.log.read_text(), one.name


@pytest.mark.timeout(180)
async def test_a_rolling_restart_is_seen_by_nobody(tmp_path: Path) -> None:
    with Nursery() as nursery:
        async with Deployment(tmp_path, nursery, drain=1.0) as deployment:
            traffic = Traffic(deployment.url, rate=40, agents=10)
            await _rolled(deployment, traffic, 0)
            _check(deployment, traffic.figures)
            assert set(traffic.figures.degraded) <= {"semantic", "procedural"}
            await audit(deployment, traffic.conversations)


@pytest.mark.faults
@pytest.mark.timeout(600)
async def test_a_rolling_restart_under_200_requests_a_second(
    tmp_path: Path, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with Programs() as programs:
        async with Deployment(tmp_path, programs, drain=_PAST_IDLE) as deployment:
            traffic = Traffic(deployment.url, rate=200, agents=40)
            restarts = await _rolled(deployment, traffic, 120)
            with capsys.disabled():
                print(f"\nrolling restart: {traffic.figures}\n{', '.join(restarts)}")
            record_property("rolling restart", str(traffic.figures))
            _check(deployment, traffic.figures)
            await audit(deployment, traffic.conversations)
