"""A federation for the tests of the whole: brought up as its users do, by `a2m up`, once a worker."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from a2m_cli.blueprint import Blueprint
from a2m_cli.federation import is_free
from a2m_engines.lock import FolderLock
from a2m_engines.process import is_running

TIERS = ("working", "episodic", "semantic", "procedural")
ENGINES = ("valkey", "postgres")
NO_VECTORS = {"A2M_ROUTER_EMBEDDING__KIND": "none"}
"""What most tests are about needs none."""

_START_SECONDS = 90.0
_STOP_SECONDS = 40.0
_POLL_SECONDS = 0.05
_ATTEMPTS = 5
_PORTS = range(12_000, 30_000)
"""Below the ephemeral ports of Linux and macOS, so that no client of ours takes one meanwhile."""


def poll(what: str, condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Ask until the answer is true, and return it; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s", pytrace=False)
        time.sleep(_POLL_SECONDS)
    return answer


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many fault points there were: a test names its own by the property `fault point`."""
    points = Counter(
        report.outcome
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        if any(name == "fault point" for name, _ in report.user_properties)
    )
    if points:
        terminalreporter.write_line(f"fault points: {points['passed']} of {points.total()} passed")


@pytest.fixture(scope="session", name="poll")
def _poll() -> Callable[..., Any]:
    return poll


@pytest.fixture(scope="session")
def free_base() -> Callable[[], int]:
    """Finds seven free ports in a row."""
    return _free_base


@dataclass(frozen=True)
class Running:
    """A federation that `a2m up` serves; `urls` are by service, the router's is also `url`."""

    process: subprocess.Popen[bytes]
    data: Path
    ready_file: Path
    url: str
    urls: dict[str, str]

    @property
    def token_file(self) -> Path:
        return self.data / "token"

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    @property
    def pids(self) -> dict[str, int | None]:
        """The processes as of now: a child that was started again has another pid."""
        return json.loads(self.ready_file.read_text())["pids"]

    def kill(self, name: str) -> int:
        """End a child as a crash would, and return the pid that it had."""
        pid = self.pids[name]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid

    def serves(self) -> bool:
        """Whether the router and all tiers are ready."""
        try:
            return all(httpx.get(f"{url}/readyz", timeout=5.0).is_success for url in self.urls.values())
        except httpx.HTTPError:
            return False

    def logs(self) -> str:
        """The end of each child's log."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-2_000:]}"
            for path in sorted((self.data / "logs").glob("*.log"))
        )


@contextmanager
def launched(folder: Path, *options: str, **settings: str) -> Iterator[Running]:
    """A federation that `a2m up` serves; at the end nothing of it may be left running or locked."""
    running = _start(folder, options, settings)
    try:
        yield running
    except BaseException:
        running.process.terminate()
        running.process.wait(_STOP_SECONDS)
        raise
    descendants = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(signal.SIGTERM)
    try:
        status = running.process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        running.process.kill()
        running.process.wait()
        pytest.fail(f"a2m up did not stop within {_STOP_SECONDS:g} s\n{running.logs()}", pytrace=False)
    assert status == 0, running.logs()
    assert [process for process in descendants if is_running(process)] == []
    assert _of(running.data) == []
    assert not running.ready_file.exists()
    for locked in (running.data, *(running.data / engine for engine in ENGINES)):
        assert not (locked / "lock").exists()
        lock = FolderLock(locked)
        lock.acquire()
        lock.release()


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A federation of this worker's own, without vectors of its own making."""
    with launched(tmp_path_factory.mktemp("federation")) as running:
        yield running


@pytest.fixture(scope="session")
def launch() -> Callable[..., AbstractContextManager[Running]]:
    """Serves another federation, with options and settings of its own, over a folder."""
    return launched


def _start(folder: Path, options: Sequence[str], settings: Mapping[str, str]) -> Running:
    """Run `a2m up` at free ports; when others take one of them meanwhile, at other ports."""
    data, ready_file, output = folder / "data", folder / "ready.json", folder / "output"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("A2M_")}
    environment |= settings or NO_VECTORS
    for _ in range(_ATTEMPTS):
        base = _free_base()
        command = [sys.executable, "-m", "a2m_cli", "up", "--quiet", "--data", data, "--port-base", str(base)]
        with output.open("wb") as out:
            process = subprocess.Popen(
                [*command, *options, "--ready-file", ready_file], stdout=out, stderr=out, env=environment
            )
        poll("a2m up", lambda p=process: ready_file.exists() or p.poll() is not None, _START_SECONDS)
        if process.poll() is None:
            ready = json.loads(ready_file.read_text())
            return Running(process, data, ready_file, ready["url"], ready["urls"])
        if "already in use" not in output.read_text():
            break
    pytest.fail(f"a2m up did not start:\n{output.read_text()}", pytrace=False)


def _free_base() -> int:
    """A base of ports that are all free now, at random, so that parallel workers look in different places."""
    while True:
        base = random.choice(_PORTS)
        if all(is_free(port) for port in Blueprint(Path(), base).ports.values()):
            return base


def _of(data: Path) -> list[psutil.Process]:
    """Processes that name a folder on their command line, in their environment or as where they work."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            said = [process.cwd(), *process.cmdline(), *process.environ().values()]
            if any(str(data) in text for text in said) and is_running(process):
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or not ours to look into
            continue
    return found
