"""A turn through the router against the bare engine, in one run.

A turn writes two records and replays the newest fifty. Bare: the same bytes pushed to a list on the same
Valkey (append-only file synced at every write) and read back. Prints medians and ratios, and where the time
goes: the working tier asked directly, and the router's `/healthz` as the price of one HTTP exchange.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import httpx
import redis.asyncio
from federated import Running, federation

from a2m_protocol.client import Client

ROUNDS = 300
WARM = 30
TEXT = "We could take the early train and be there before the market opens. " * 3


async def timed(work: Callable[[int], Awaitable[object]]) -> list[float]:
    """Milliseconds a round, after a warm-up."""
    taken: list[float] = []
    for at in range(ROUNDS + WARM):
        begun = time.perf_counter()
        await work(at)
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken[WARM:]


async def measure(running: Running) -> dict[str, list[float]]:
    socket = next((running.data / "valkey").rglob("*.sock"), None)
    if socket is None:
        raise SystemExit("Valkey's socket was not found")
    bare = redis.asyncio.Redis.from_url(f"unix://{quote(str(socket))}")
    line = json.dumps({"content": TEXT, "role": "user", "session": "bench"})
    token = (running.data / "token").read_text().strip()
    figures: dict[str, list[float]] = {}
    async with (
        Client.http(running.url) as router,
        Client.http(running.urls["working"], token=token) as working,
        httpx.AsyncClient() as plain,
    ):

        async def bare_write(_: int) -> None:
            await bare.rpush("bench:list", line, line)

        async def bare_read(_: int) -> None:
            await bare.lrange("bench:list", -50, -1)

        def write(client: Client, session: str) -> Callable[[int], Awaitable[object]]:
            return lambda _: client.remember([{"content": TEXT, "role": "user"}] * 2, session=session)

        def read(client: Client, session: str) -> Callable[[int], Awaitable[object]]:
            return lambda _: client.timeline(where={"session": session}, limit=50)

        for session, client in (("bench-direct", working), ("bench-router", router)):
            await client.remember([{"content": TEXT, "role": "user"}] * 20, session=session)
        figures["bare write"] = await timed(bare_write)
        figures["bare read"] = await timed(bare_read)
        figures["http exchange"] = await timed(lambda _: plain.get(running.url + "/healthz"))
        figures["working write"] = await timed(write(working, "bench-direct"))
        figures["working read"] = await timed(read(working, "bench-direct"))
        figures["router read, all in working"] = await timed(read(router, "bench-router"))
        figures["router write"] = await timed(write(router, "bench-router"))
        figures["router read, spilled"] = await timed(read(router, "bench-router"))
    await bare.aclose()
    return figures


def main() -> None:
    with federation() as running:
        figures = asyncio.run(measure(running))
        for name, taken in figures.items():
            p95 = statistics.quantiles(taken, n=20)[-1]
            print(f"{name:28} p50 {statistics.median(taken):7.2f} ms   p95 {p95:7.2f} ms")
        median = {name: statistics.median(taken) for name, taken in figures.items()}
        bare = median["bare write"] + median["bare read"]
        direct = median["working write"] + median["working read"]
        routed = median["router write"] + median["router read, all in working"]
        print(f"a turn: bare {bare:.2f} ms, working {direct:.2f} ms ({direct / bare:.1f} times), ", end="")
        print(f"router {routed:.2f} ms ({routed / bare:.1f} times; {routed / direct:.1f} times working)")
        print("peak memory, MB:", running.memory())


if __name__ == "__main__":
    main()
