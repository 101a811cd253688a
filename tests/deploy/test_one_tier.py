"""A tier that runs as its own manifest says, mounted in a router elsewhere: as in docs/kubernetes.md.

The pod is a process with the variables and the command of the manifest, its mounts being folders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from manifests import base, container, one
from ports import free_ports

from a2m_cli.provision import provision
from a2m_protocol.client import SyncClient

pytestmark = pytest.mark.timeout(180)

CONFIG = """\
name: mine
tiers:
  - name: working
    kind: working
    capacity: 20
    per_session: true
    spill_to: episodic
  - name: episodic
    kind: episodic
  - name: procedural
    kind: procedural
    url: {url}
"""


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    provision(tmp_path / "secrets")
    return tmp_path / "secrets"


@pytest.fixture
def tier(tmp_path: Path, secrets: Path, poll: Callable[..., Any]) -> Iterator[str]:
    """The URL of the procedural tier."""
    objects = base("procedural")
    own, data = container(objects), one(objects, "ConfigMap")["data"]
    (tmp_path / "data").mkdir()
    places = {"/secrets": str(secrets), "/data": str(tmp_path / "data")}
    mapped = dict(data)
    for target, place in places.items():
        mapped = {
            k: v.replace(target, place, 1) if v.startswith(target + "/") else v for k, v in mapped.items()
        }
    port = free_ports()["procedural"]
    mapped |= {"A2M_PROCEDURAL_HOST": "127.0.0.1", "A2M_PROCEDURAL_PORT": str(port)}
    command = [sys.executable, *own["command"][1:]]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], **mapped}, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return httpx.get(f"{url}{own['readinessProbe']['httpGet']['path']}").is_success
        except httpx.TransportError:
            return False

    try:
        poll("the tier", ready, 60.0)
        yield url
    finally:
        process.terminate()
        assert process.wait(20.0) == 0


def test_a_router_elsewhere_mounts_a_tier_that_stands_alone(
    tier: str, secrets: Path, tmp_path: Path, launch: Callable[..., Any]
) -> None:
    (tmp_path / "mine.yaml").write_text(CONFIG.format(url=tier))
    (tmp_path / "up/data").mkdir(parents=True)
    token = tmp_path / "up/data/token"
    token.write_bytes((secrets / "service/token").read_bytes())
    token.chmod(0o600)
    with (
        launch(tmp_path / "up", "--config", str(tmp_path / "mine.yaml")) as running,
        SyncClient.http(running.url) as memory,
    ):
        assert [t["name"] for t in memory.describe()["tiers"]] == ["working", "episodic", "procedural"]
        written = memory.remember([{"content": "Open the vent", "key": "vent", "tier": "procedural"}])["ids"]
        assert memory.recall("vent")["records"][0]["tier"] == "procedural"
        with SyncClient.http(tier, token_file=secrets / "service/token") as direct:
            assert [r["id"] for r in direct.timeline(limit=5)["records"]] == written
    assert httpx.post(tier, json={"jsonrpc": "2.0", "id": 1, "method": "memory/describe"}).status_code == 401
