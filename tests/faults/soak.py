"""Ten minutes of fifty conversations while a process is killed every 20 s: `make soak`.

`SOAK_SECONDS` is for how long. It prints the memory of every process at the start, in the middle and at the
end, and fails when the most that one had in the second half is `GROWTH_MB` above that of the first half.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from harness import Federation
from nursery import Nursery
from talk import Talker

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SESSIONS = 50
OWNERS = ("ana", "bob")
ROUTERS = 2
KILL_SECONDS = 20.0
OUTAGE_SECONDS = 1.0
PAUSE_SECONDS = 1.0
TIER_TIMEOUT = 5.0
GROWTH_MB = 32.0

Figures = Mapping[str, float]

pytestmark = pytest.mark.timeout(SECONDS + 300.0)


def test_fifty_conversations_outlive_a_death_every_twenty_seconds(nursery: Nursery, tmp_path: Path) -> None:
    with Federation(tmp_path, nursery, routers=ROUTERS, capacity=20, tier_timeout=TIER_TIMEOUT) as federation:
        talkers = [
            Talker(f"talk-{n}", OWNERS[n % 2], federation.routers[n // 2 % ROUTERS], seed=n)
            for n in range(SESSIONS)
        ]
        over = threading.Event()
        talking = [federation.later(talker.talk, over, PAUSE_SECONDS) for talker in talkers]
        try:
            measured = _kill_for(SECONDS, federation, talkers)
        finally:
            over.set()
            for talk in talking:
                talk.exception()
        calls = sum((talker.calls for talker in talkers), Counter[str]())
        failures = sum(talker.failures for talker in talkers)
        _print(measured, calls, failures)
        assert _problems(federation, talkers) == []
        federation.settle()
        for talker in talkers:
            talker.check()
        assert _problems(federation, talkers) == []
        _check_places(federation, talkers)
        assert _grown(measured) == {}


def _kill_for(seconds: float, federation: Federation, talkers: list[Talker]) -> list[Figures]:
    """Kill a process now and then, each in its turn; the memory before each death and at the end."""
    end = time.monotonic() + seconds
    chooser = random.Random(1)
    victims: list[str] = []
    measured: list[Figures] = []
    while time.monotonic() < end and not any(talker.problems for talker in talkers):
        time.sleep(max(0.0, min(KILL_SECONDS, end - time.monotonic()) - OUTAGE_SECONDS))
        measured.append(_memory(federation))
        victims = victims or chooser.sample(federation.names, len(federation.names))
        victim = victims.pop()
        federation.kill(victim)
        time.sleep(OUTAGE_SECONDS)
        federation.start(victim)
    return [*measured, _memory(federation)]


def _problems(federation: Federation, talkers: list[Talker]) -> list[str]:
    problems = [problem for talker in talkers for problem in talker.problems]
    if problems:
        print(*(f"{name}:\n{federation.log(name)}" for name in federation.services), sep="\n")
    return problems


def _grown(measured: list[Figures]) -> Figures:
    """By how much the most that a process had in the second half is above that of the first, if by much."""
    middle = (len(measured) + 1) // 2
    first, second = (
        {name: max(figures[name] for figures in part) for name in measured[0]}
        for part in (measured[:middle], measured[middle:])
    )
    return {name: second[name] - first[name] for name in first if second[name] - first[name] > GROWTH_MB}


def _memory(federation: Federation) -> Figures:
    """The megabytes that each process holds of its own, its children included.

    Files that it maps are left out where that can be told: how much of them is in memory is for the system to
    say, and the semantic engine maps its log.
    """
    figures: dict[str, float] = {}
    for name in federation.names:
        parent = psutil.Process(federation.pid(name))
        total = 0
        for process in (parent, *parent.children(recursive=True)):
            try:
                total += _own(process)
            except (psutil.NoSuchProcess, FileNotFoundError):
                continue  # a connection's process that has just ended
        figures[name] = total / 2**20
    return figures


def _own(process: psutil.Process) -> int:
    """The bytes of a process that no file is behind; on other systems than Linux, those that it alone has."""
    if not psutil.LINUX:
        return process.memory_full_info().uss
    status = Path(f"/proc/{process.pid}/status").read_text()
    kilobytes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")]
    return sum(kilobytes) * 1_024


def _check_places(federation: Federation, talkers: list[Talker]) -> None:
    """Each record is in exactly one tier, and nothing that was forgotten is in any."""
    sessions = {session.name: session for talker in talkers for session in talker.sessions}
    tiers: Counter[str] = Counter()
    groups: dict[str, set[str]] = {}
    for tier, entries in federation.held().items():
        for entry in entries:
            tiers[entry["id"]] += 1
            if entry.get("group"):
                groups.setdefault(entry["group"], set()).add(tier)
    kept = {i for session in sessions.values() for i in session.kept}
    assert {i: count for i, count in tiers.items() if count != 1} == {}
    assert tiers.keys() - kept == set()
    assert kept - tiers.keys() == set()
    assert {group: at for group, at in groups.items() if len(at) != 1} == {}


def _print(measured: list[Figures], calls: Counter[str], failures: int) -> None:
    print(f"\n{calls.total()} calls, {failures} failed and were tried again: {dict(calls)}")
    print(f"{'memory in MB':14}" + "".join(f"{when:>9}" for when in ("start", "middle", "end", "most")))
    shown = (measured[0], measured[len(measured) // 2], measured[-1])
    for name in measured[0]:
        figures = [*(each[name] for each in shown), max(each[name] for each in measured)]
        print(f"{name:14}" + "".join(f"{figure:9.1f}" for figure in figures))
