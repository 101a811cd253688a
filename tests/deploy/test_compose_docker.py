"""The compose file itself, where a Docker engine answers: built, up, asked, killed, upgraded and down.

The project has a name and a port of its own, and its volumes are removed at the end.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from compose_file import ROOT
from ports import free_ports
from writer import Writer

from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import Status
from a2m_conformance.runner import Options, run
from a2m_engines.containers import docker_answers

pytestmark = [
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not docker_answers(), reason="no Docker engine answers"),
]

SECONDS = 600.0
KILLED = ("working", "episodic", "semantic", "procedural", "router", "valkey", "postgres", "qdrant")


class Project:
    """`docker compose` with a project of this test's own."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{(port := free_ports()['router'])}"
        self._name = f"a2m-test-{uuid4().hex[:8]}"
        self._environment = {**os.environ, "A2M_PORT": str(port)}

    def __call__(self, *words: str) -> str:
        return self._docker("compose", "--project-name", self._name, *words)

    def _docker(self, *words: str) -> str:
        command = ["docker", *words]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
        return done.stdout

    def kill(self, service: str) -> None:
        """End its first process as a crash would: what `docker kill` ended is not started again."""
        pid = self._inspected(service, "{{.State.Pid}}")
        image = next(iter(self("config", "--images", "init").split()))
        options = ("--rm", "--privileged", "--pid", "host", "--user", "0", "--entrypoint", "python")
        self._docker("run", *options, image, "-c", f"import os; os.kill({pid}, 9)")

    def restarts(self, service: str) -> int:
        return int(self._inspected(service, "{{.RestartCount}}"))

    def _inspected(self, service: str, what: str) -> str:
        container = self("ps", "--all", "--quiet", service).strip()
        return self._docker("inspect", "--format", what, container).strip()

    def up(self) -> None:
        self("up", "--detach", "--build")
        self.wait("the router is ready", lambda: answers(f"{self.url}/readyz"))

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {SECONDS:g} s\n{self('ps', '--all')}"
            time.sleep(0.2)

    def healthy(self, service: str) -> bool:
        return "(healthy)" in self("ps", "--format", "{{.Status}}", service)


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    project = Project()
    try:
        project.up()
        yield project
    finally:
        project("down", "--volumes", "--timeout", "30")


@pytest.fixture
def token_file(project: Project, tmp_path: Path) -> Path:
    """The operator's token, read as the README says."""
    path = tmp_path / "you.token"
    path.write_text(project("run", "--rm", "--no-deps", "--entrypoint", "cat", "a2m", "/secrets/you/token"))
    return path


async def test_the_router_conforms_to_an_agent(project: Project) -> None:
    token = project("run", "--rm", "a2m", "token", "create", "agent").strip()
    wire = HttpWire(project.url, token, timeout=60.0)
    try:
        finished = await run(wire, Options(timeout=60.0, slow=False))
    finally:
        await wire.close()
    failed = {o.requirement.id: o.detail for o in finished.outcomes if o.status == Status.failed}
    assert failed == {}


def test_whatever_is_killed_comes_back_and_nothing_acknowledged_is_lost(
    project: Project, token_file: Path
) -> None:
    writer = Writer(project.url, token_file)
    writer.start()
    try:
        for name in KILLED:
            before = len(writer.acknowledged)
            restarts = project.restarts(name)
            project.kill(name)
            back = lambda name=name, restarts=restarts: project.restarts(name) > restarts  # noqa: E731
            project.wait(f"{name} is started again", back)
            project.wait(f"{name} is back", lambda name=name: project.healthy(name))
            project.wait("writes are taken", lambda before=before: len(writer.acknowledged) > before)
    finally:
        writer.stop()
    assert writer.lost() == []


def test_an_upgrade_and_down_and_up_again_lose_nothing(project: Project, token_file: Path) -> None:
    writer = Writer(project.url, token_file)
    writer.start()
    project.wait("some are written", lambda: len(writer.acknowledged) > 10)
    writer.stop()
    project("up", "--detach", "--force-recreate")
    project("down")
    project.up()
    assert writer.lost() == []
