"""Imports all the conversations at hand through the router, checks the result, and imports them again.

Reads the folder in A2M_TEST_DATA, else ../shared/data beside the checkout, else the shipped demo. Prints the
rate of the first and the second import, what the check found, and each process's peak memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from federated import Running, federation

import a2m_cli
from a2m_protocol.client import Client
from a2m_protocol.errors import JsonObject

SETTLE_SECONDS = 120


def files() -> list[Path]:
    root = Path(os.environ.get("A2M_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    found = [*sorted(root.glob("locomo/*.turns.jsonl")), *sorted(root.glob("agent-transcripts/*.jsonl"))]
    return found or sorted((Path(a2m_cli.__file__).parent / "data").glob("*.jsonl"))


def bring(running: Running, paths: list[Path]) -> tuple[float, str]:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "a2m_cli", "import", "--url", running.url, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - begun, done.stdout


async def settled(running: Running) -> Counter[str]:
    """Wait until no session is over capacity; the records of each tier."""
    async with Client.http(running.url) as router:
        for _ in range(SETTLE_SECONDS):
            sessions = (await router.sessions())["sessions"]
            assert isinstance(sessions, list)
            tiers = [s.get("tiers", {}) for s in sessions if isinstance(s, dict)]
            if all(isinstance(t, dict) and int(str(t.get("working", 0))) <= 20 for t in tiers):
                break
            await asyncio.sleep(1)
        described = await router.describe()
    held = described["tiers"]
    assert isinstance(held, list)
    return Counter({str(t["name"]): int(str(t["count"])) for t in held if isinstance(t, dict)})


async def audit(running: Running) -> str:
    """Whether each record is in exactly one tier, no group is parted, and sessions replay in order."""
    token = (running.data / "token").read_text().strip()
    places: dict[str, list[str]] = {}
    groups: dict[str, set[str]] = {}
    for tier in ("working", "episodic", "semantic", "procedural"):
        async with Client.http(running.urls[tier], token=token) as client:
            after: JsonObject = {}
            while True:
                page = await client.call("memory/list", {"limit": 1_000, **after})
                entries = page["entries"]
                assert isinstance(entries, list)
                for entry in entries:
                    assert isinstance(entry, dict)
                    places.setdefault(str(entry["id"]), []).append(tier)
                    if entry.get("group"):
                        groups.setdefault(str(entry["group"]), set()).add(tier)
                if not page["more"]:
                    break
                last = entries[-1]
                assert isinstance(last, dict)
                after = {"after": [last["seq"], last["id"]]}
    doubled = sum(len(tiers) > 1 for tiers in places.values())
    parted = sum(len(tiers) > 1 for tiers in groups.values())
    return f"{len(places)} records, {doubled} in two tiers; {len(groups)} groups, {parted} parted"


def main() -> None:
    paths = files()
    turns = sum(
        len(json.loads(line).get("messages", [None]))
        for path in paths
        for line in path.read_text().splitlines()
    )
    with federation() as running:
        for run in ("first", "second"):
            seconds, told = bring(running, paths)
            print(f"{run} import: {turns} turns in {seconds:.1f} s, {turns / seconds:.0f} a second")
            print("  " + " · ".join(" ".join(line.split()) for line in told.splitlines()[:4]))
            begun = time.perf_counter()
            counts = asyncio.run(settled(running))
            later = time.perf_counter() - begun
            print(f"  spilled {later:.1f} s later: {dict(counts)}, {counts.total()} in all")
            print("  " + asyncio.run(audit(running)))
        print("peak memory, MB:", running.memory())


if __name__ == "__main__":
    main()
