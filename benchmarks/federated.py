"""A federation for a benchmark: `a2m up` in a folder of its own, and its processes' memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

START_SECONDS = 90
PORT_BASE = int(os.environ.get("A2M_BENCH_PORT_BASE", "18778"))


@dataclass(frozen=True)
class Running:
    """`urls` are by service; `data` is the folder, where the engines have their sockets."""

    urls: dict[str, str]
    pids: dict[str, int]
    data: Path

    @property
    def url(self) -> str:
        return self.urls["router"]

    def memory(self) -> dict[str, float]:
        """The peak resident memory of each process and its children, in MB (shared pages count in each)."""
        return {name: round(_peak(pid) / 1e6, 1) for name, pid in self.pids.items()}


@contextmanager
def federation(
    config: str | None = None, *options: str, port_base: int = PORT_BASE, **environment: str
) -> Iterator[Running]:
    """A running federation that is gone afterwards; `config` is a federation.yaml of its own.

    `options` are further ones of `a2m up`.
    """
    folder = Path(tempfile.mkdtemp(prefix="a2m-bench-"))
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "a2m_cli", "up", "--quiet", "--data", str(folder / "data")]
    command += ["--ready-file", str(ready), "--port-base", str(port_base), *options]
    if config is not None:
        (folder / "federation.yaml").write_text(config)
        command += ["--config", str(folder / "federation.yaml")]
    process = subprocess.Popen(command, env=os.environ | environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the federation did not start")
            time.sleep(0.05)
        told = json.loads(ready.read_text())
        yield Running(told["urls"], told["pids"], folder / "data")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder)


def _peak(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(high_water(p) for p in [process, *process.children(recursive=True)])


def high_water(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    return float(process.memory_info().rss)
