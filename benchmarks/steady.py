"""Twenty turns a second for a minute, without a model and with the packaged one: what a turn feels of it.

A turn writes two records of a session and replays its newest fifty; sessions spill as they grow, so that
with a model everything that leaves working is embedded meanwhile. Prints the times of turns, how many records
still wait for a vector when the last turn is over, and the processor time and peak memory of the router and
of the process that embeds for it. A2M_BENCH_SECONDS makes it shorter.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time

import httpx
import psutil
from federated import Running, federation, high_water

from a2m_protocol.client import Client

RATE = 20.0
SECONDS = float(os.environ.get("A2M_BENCH_SECONDS", "60"))
SESSIONS = 10
TEXT = "Turn {at}: we could take the early train and be there before the market opens on Saturday."


async def turns(running: Running) -> list[float]:
    """Milliseconds of each turn; one that is late does not keep the next one back."""
    taken: list[float] = []
    async with Client.http(running.url, timeout=30) as client:

        async def turn(at: int) -> None:
            session = f"steady-{at % SESSIONS}"
            begun = time.perf_counter()
            said = {"content": TEXT.format(at=at), "role": "user"}
            await client.remember([said, said | {"role": "assistant"}], session=session)
            await client.timeline(where={"session": session}, limit=50)
            taken.append((time.perf_counter() - begun) * 1e3)

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for at in range(int(RATE * SECONDS)):
                await asyncio.sleep(max(0.0, begun + at / RATE - time.perf_counter()))
                tasks.create_task(turn(at))
    return taken


async def counted(running: Running) -> dict[str, float]:
    async with httpx.AsyncClient() as client:
        lines = (await client.get(f"{running.url}/metrics")).text.splitlines()
    values = [line.rsplit(" ", 1) for line in lines if line.startswith("a2m_")]
    return {name: float(value) for name, value in values}


def share(process: psutil.Process) -> str:
    spent = process.cpu_times()
    return f"{(spent.user + spent.system) / SECONDS:.0%} of a core, {high_water(process) / 1e6:.0f} MB"


def main() -> None:
    figures: dict[str, float] = {}
    for kind in ("none", "local", "none", "local"):
        with federation(A2M_ROUTER_EMBEDDING__KIND=kind) as running:
            taken = asyncio.run(turns(running))
            counts = asyncio.run(counted(running))
            router = psutil.Process(running.pids["router"])
            shares = " + ".join(share(process) for process in [router, *router.children()])
        p95 = statistics.quantiles(taken, n=20)[-1]
        figures[kind] = min(p95, figures.get(kind, p95))
        waiting = sum(value for name, value in counts.items() if name.startswith("a2m_embedding_waiting"))
        embedded = counts.get('a2m_embedded_texts_total{kind="document"}', 0.0)
        moved = sum(value for name, value in counts.items() if name.startswith("a2m_moved_records_total"))
        print(
            f"{kind:6} p50 {statistics.median(taken):6.1f} ms   p95 {p95:6.1f} ms   {len(taken)} turns,"
            f" {moved:.0f} records moved, {embedded:.0f} embedded, {waiting:.0f} wait,"
            f" {counts['a2m_spills_waiting']:.0f} sessions wait;"
            f" router {shares}"
        )
    print(f"p95 with the model is {figures['local'] / figures['none']:.2f} times that without")


if __name__ == "__main__":
    main()
