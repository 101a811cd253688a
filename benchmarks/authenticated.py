"""The hot path with authentication and without, by turns in one run; the goal is a difference within 10%.

Two federations run beside each other: one asks for tokens and keeps an audit log, as `a2m up --auth` has it,
with a quota of bytes, and an agent calls it with a token of its own. A turn writes two records and replays
the newest fifty of its session. Rounds alternate, and which federation is first does too, so that whatever
else the machine does meets both.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping

from federated import PORT_BASE, Running, federation

from a2m_protocol.client import Client
from a2m_server.principals import Principal, make_token
from a2m_server.register import editing

ROUNDS = 1_500
WARM = 100
PER_SESSION = 25
"""Turns of a session: two records each, so that fifty are replayed at its end."""
TEXT = "We could take the early train and be there before the market opens. " * 3
NO_VECTORS = {"A2M_ROUTER_EMBEDDING__KIND": "none"}
QUOTA = {"A2M_ROUTER_QUOTA": "10GB"}
PARTS = ("remember", "timeline")


def agent(running: Running) -> str:
    """The token of an agent that is new to a federation."""
    text, token = make_token(time.time_ns() // 1_000_000)
    with editing(running.data / "principals.json") as edit:
        edit.principals = edit.principals.with_(Principal(name="bench", tokens=(token,)))
    return text


async def turn(client: Client, at: int) -> tuple[float, float]:
    """The milliseconds of a write and of a replay."""
    session = f"bench-{at // PER_SESSION}"
    begun = time.perf_counter()
    await client.remember([{"content": TEXT, "role": "user"}] * 2, session=session)
    written = time.perf_counter()
    await client.timeline(where={"session": session}, limit=50)
    return (written - begun) * 1e3, (time.perf_counter() - written) * 1e3


async def measure(clients: Mapping[str, Client]) -> dict[str, list[tuple[float, float]]]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    for at in range(ROUNDS + WARM):
        for name in [*clients][:: 1 if at % 2 else -1]:
            taken[name].append(await turn(clients[name], at))
    return {name: figures[WARM:] for name, figures in taken.items()}


async def run(plain: Running, authenticated: Running) -> None:
    async with (
        Client.http(plain.url) as without,
        Client.http(authenticated.url, token=agent(authenticated)) as with_token,
    ):
        taken = await measure({"without": without, "with": with_token})
    medians: dict[tuple[str, str], float] = {}
    for of_turn, part in enumerate(PARTS):
        for name, figures in taken.items():
            one = [figure[of_turn] for figure in figures]
            medians[name, part] = statistics.median(one)
            p95 = statistics.quantiles(one, n=20)[-1]
            print(f"{part:9} {name:8} p50 {medians[name, part]:6.2f} ms   p95 {p95:6.2f} ms")
    for name, figures in taken.items():
        medians[name, "turn"] = statistics.median(map(sum, figures))
    for part in (*PARTS, "turn"):
        ratio = medians["with", part] / medians["without", part]
        print(f"{part:9} with authentication: {ratio:.3f} times as long as without")


def main() -> None:
    with (
        federation(**NO_VECTORS) as plain,
        federation(None, "--auth", port_base=PORT_BASE + 100, **NO_VECTORS, **QUOTA) as authenticated,
    ):
        asyncio.run(run(plain, authenticated))


if __name__ == "__main__":
    main()
