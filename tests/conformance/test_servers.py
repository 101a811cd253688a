"""Every server of the project conforms, over every transport that it has."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import Status
from a2m_conformance.runner import Options, run
from a2m_conformance.stdio import StdioWire
from a2m_conformance.wire import Wire

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

SERVICES = ("working", "episodic", "semantic", "procedural")
CHECK_SECONDS = 60.0
"""What a check may take: far more than it needs, for machines that are busy with other things."""


async def conform(wire: Wire, add_row: Callable[..., None], *about: str) -> None:
    options = Options(timeout=CHECK_SECONDS, trusted="trusted" in about)
    try:
        finished = await run(wire, options)
    finally:
        await wire.close()
    counts = [finished.count(s) for s in (Status.passed, Status.failed, Status.warned, Status.skipped)]
    add_row(*about[:1], wire.transport, *about[1:], *counts, f"{finished.seconds:.1f}")
    failed = {o.requirement.id: o.detail for o in finished.outcomes if o.status == Status.failed}
    assert failed == {}
    assert finished.count(Status.passed) > finished.count(Status.skipped)


@pytest.mark.parametrize("server", SERVICES)
async def test_a_service_conforms_over_http_to_a_trusted_caller(
    server: str, federation: Any, add_row: Callable[..., None]
) -> None:
    wire = HttpWire(federation.urls[server], federation.token, timeout=CHECK_SECONDS)
    await conform(wire, add_row, server, "trusted")


@pytest.mark.parametrize("server", [*SERVICES, "router"])
async def test_a_server_conforms_over_http_to_anybody(
    server: str, federation: Any, add_row: Callable[..., None]
) -> None:
    await conform(HttpWire(federation.urls[server], timeout=CHECK_SECONDS), add_row, server, "anonymous")


async def test_the_server_in_memory_conforms_over_http(memory_url: str, add_row: Callable[..., None]) -> None:
    await conform(HttpWire(memory_url, timeout=CHECK_SECONDS), add_row, "memory", "anonymous")


@pytest.mark.parametrize("server", ["memory", *SERVICES, "router"])
async def test_a_server_conforms_over_stdio(
    server: str, request: pytest.FixtureRequest, tmp_path: Path, add_row: Callable[..., None]
) -> None:
    module = "a2m_server" if server == "memory" else f"a2m_{server}"
    command = shlex.join([sys.executable, "-m", module, "--stdio", "--log-level", "error"])
    wire = await StdioWire.start(command, environment(server, request, tmp_path))
    await conform(wire, add_row, server, "trusted")


def environment(server: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """The settings of a server over stdio: an engine or a folder of its own; for the router, our tiers."""
    match server:
        case "working":
            return {"A2M_WORKING_URL": request.getfixturevalue("valkey_url")}
        case "episodic":
            return {"A2M_EPISODIC_URL": request.getfixturevalue("postgres_url")}
        case "router":
            federation = request.getfixturevalue("federation")
            return {
                "A2M_ROUTER_CONFIG": str(federation.data / "federation.yaml"),
                "A2M_ROUTER_TIER_TOKEN_FILE": str(federation.token_file),
            }
        case _:
            return {f"A2M_{server.upper()}_PATH": str(folder / server)}


@pytest.fixture
def memory_url(tmp_path: Path, poll: Callable[..., Any], free_base: Callable[[], int]) -> Iterator[str]:
    """The in-memory server in a process of its own."""
    port = free_base()
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "a2m_server", "--port", str(port)], stdout=log, stderr=log
        )

    def serves() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return httpx.get(f"{url}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False

    try:
        poll("the in-memory server", serves, 60.0)
        yield url
    finally:
        process.terminate()
        process.wait(20.0)
