"""A federation as a cluster runs it: replicas of what can have them behind one address each.

Three routers, two of working over one Valkey, two of episodic over one Postgres; semantic and procedural keep
their data in the process and are one each.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import httpx
import psutil
import pytest
from balancer import HOST, Balancer

from a2m_cli.federation import is_free
from a2m_engines.postgres import Postgres
from a2m_engines.process import is_running, owned
from a2m_engines.valkey import Valkey

TOKEN = "a-token-for-tests"
TIERS = ("working", "episodic", "semantic", "procedural")
REPLICAS = {"working": 2, "episodic": 2, "semantic": 1, "procedural": 1, "router": 3}

_POLICY: Mapping[str, Mapping[str, Any]] = {
    "working": {"capacity": 32, "per_session": True, "spill_to": "episodic"},
    "episodic": {"promote_to": "semantic", "promote_after": 3},
}
_PORTS = range(12_000, 30_000)
"""Below the ephemeral ports of Linux and macOS, so that no client of ours takes one meanwhile."""
_SECONDS = 60.0
_LOOK = 0.05


class Starter(Protocol):
    """What starts a process of ours and tells its pid; its output is appended to `log`."""

    def start(self, program: str, environment: Mapping[str, str], log: Path) -> int: ...


class Programs:
    """Starts them as an operator would, by `python -m`; use as a context manager."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def start(self, program: str, environment: Mapping[str, str], log: Path) -> int:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("A2M_")}
        with log.open("ab") as out:
            process = subprocess.Popen(
                owned([sys.executable, "-m", program]),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=inherited | environment,
            )
        self._processes.append(process)
        return process.pid


@dataclass
class Replica:
    """One process: a tier or a router."""

    name: str
    kind: str
    port: int
    log: Path
    pid: int = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


class Deployment:
    """Engines, replicas and their addresses over `folder`; an async context manager of the main thread.

    `drain` is the replicas' `DRAIN_SECONDS`.
    """

    def __init__(self, folder: Path, starter: Starter, *, drain: float) -> None:
        self._folder = folder
        self._starter = starter
        self._drain = drain
        self._valkey = Valkey(folder / "valkey")
        self._postgres = Postgres(folder / "postgres", durable=False)
        self._stack = AsyncExitStack()
        ports = free_ports(sum(REPLICAS.values()) + len(REPLICAS))
        self.replicas = [
            Replica(f"{kind}-{number}", kind, ports.pop(), folder / f"{kind}-{number}.log")
            for kind, most in REPLICAS.items()
            for number in range(1, most + 1)
        ]
        self._balancers = {
            kind: Balancer(ports.pop(), [one.port for one in self.replicas if one.kind == kind])
            for kind, most in REPLICAS.items()
            if most > 1
        }

    @property
    def url(self) -> str:
        """The one address of the routers."""
        return self.address("router")

    def address(self, kind: str) -> str:
        """Where a kind is reached: a single process at its own port."""
        balancer = self._balancers.get(kind)
        return balancer.url if balancer else next(one.url for one in self.replicas if one.kind == kind)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "token").write_text(TOKEN)
            (self._folder / "federation.yaml").write_text(json.dumps(self._config()))
            for engine in (self._valkey, self._postgres):
                stack.enter_context(engine)
            stack.callback(self._kill)
            # All at once: whoever comes first brings the schema up to date, and tiers may come after routers.
            for one in self.replicas:
                self._start(one)
            self._http = await stack.enter_async_context(httpx.AsyncClient(timeout=5.0, trust_env=False))
            for balancer in self._balancers.values():
                await stack.enter_async_context(balancer)
            for one in self.replicas:
                await self.ready(one)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def restart(self, one: Replica) -> None:
        """Ask a process to end as an orchestrator does, wait until it has, and start it anew."""
        process = psutil.Process(one.pid)
        process.send_signal(signal.SIGTERM)
        await eventually(f"the end of {one.name}", lambda: not is_running(process))
        self._start(one)
        await self.ready(one)

    async def ready(self, one: Replica) -> None:
        """Wait until a process says that it is ready; fails with its log."""

        async def is_ready() -> bool:
            if not is_running(process):
                pytest.fail(f"{one.name} ended by itself:\n{one.log.read_text()[-3_000:]}", pytrace=False)
            try:
                return (await self._http.get(f"{one.url}/readyz")).is_success
            except httpx.HTTPError:
                return False

        process = psutil.Process(one.pid)
        deadline = time.monotonic() + _SECONDS
        while not await is_ready():
            if time.monotonic() > deadline:
                pytest.fail(f"{one.name} is not ready:\n{one.log.read_text()[-3_000:]}", pytrace=False)
            await asyncio.sleep(_LOOK)

    def _start(self, one: Replica) -> None:
        one.pid = self._starter.start(f"a2m_{one.kind}", self._environment(one), one.log)

    def _kill(self) -> None:
        for one in self.replicas:
            if psutil.pid_exists(one.pid):
                os.kill(one.pid, signal.SIGKILL)

    def _environment(self, one: Replica) -> dict[str, str]:
        token = str(self._folder / "token")
        values = {"HOST": HOST, "PORT": str(one.port), "TOKEN_FILE": token, "DRAIN_SECONDS": str(self._drain)}
        values["LOG_LEVEL"] = "warning"
        match one.kind:
            case "working":
                values["URL"] = self._valkey.url
            case "episodic":
                values["URL"] = self._postgres.url
            case "router":
                values["TIER_TOKEN_FILE"] = token
                values["CONFIG"] = str(self._folder / "federation.yaml")
                values["COORDINATION_URL"] = self._valkey.url
                values["EMBEDDING__KIND"] = "none"
            case kind:
                values["PATH"] = str(self._folder / kind)
        return {f"A2M_{one.kind.upper()}_{name}": value for name, value in values.items()}

    def _config(self) -> dict[str, Any]:
        tiers = [
            {"name": tier, "kind": tier, "url": self.address(tier), **_POLICY.get(tier, {})} for tier in TIERS
        ]
        return {"name": "scaled", "tiers": tiers}


async def eventually(what: str, condition: Callable[[], bool], seconds: float = _SECONDS) -> None:
    """Look until it is so; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s", pytrace=False)
        await asyncio.sleep(_LOOK)


def free_ports(number: int) -> list[int]:
    """Ports that are free now, at random, so that parallel workers look in different places."""
    chosen: list[int] = []
    while len(chosen) < number:
        port = random.choice(_PORTS)
        if port not in chosen and is_free(port):
            chosen.append(port)
    return chosen
