"""Federations on real engines that come and go in this process, with a token, so that owners are believed."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from a2m_cli import exporting
from a2m_cli.connection import Server as Target
from a2m_episodic.app import create as episodic
from a2m_episodic.settings import EpisodicSettings
from a2m_procedural.app import create_store as procedural_store
from a2m_procedural.settings import Settings as ProceduralSettings
from a2m_protocol.client import SyncClient
from a2m_protocol.errors import JsonObject
from a2m_router.app import create as router
from a2m_router.settings import RouterSettings
from a2m_semantic.app import create_store as semantic_store
from a2m_semantic.settings import SemanticSettings
from a2m_server.http import create_app
from a2m_server.listen import Server, bind, url_of
from a2m_server.settings import ServerSettings
from a2m_working.app import create as working
from a2m_working.settings import WorkingSettings

CAPACITY = 6
TIERS = ("working", "episodic", "semantic", "procedural")


@dataclass(frozen=True)
class Federation:
    """A router's URL, those of its tiers, and the token of all of them."""

    url: str
    tiers: dict[str, str]
    token_file: Path
    client: SyncClient

    def target(self, tier: str | None = None) -> Target:
        return Target(self.url if tier is None else self.tiers[tier], self.token_file, retries=5)

    def client_of(self, tier: str) -> SyncClient:
        return SyncClient.http(self.tiers[tier], token_file=self.token_file)

    def held(self, tier: str | None = None) -> list[JsonObject]:
        """Every record with all that belongs to it, as a backup has it, oldest first."""

        async def read(client: Any) -> list[JsonObject]:
            return [record async for record in exporting.records(client)]

        return self.target(tier).run(read)

    def forgotten(self, tier: str | None = None) -> dict[str, int]:
        """What is known to be forgotten: the `seq` of each deletion, by id."""

        async def read(client: Any) -> list[JsonObject]:
            return [grave async for grave in exporting.tombstones(client)]

        return {str(grave["id"]): int(str(grave["seq"])) for grave in self.target(tier).run(read)}

    def places(self) -> dict[str, list[str]]:
        """In which tiers each id is, asked of the tiers themselves."""
        found: dict[str, list[str]] = {}
        for tier in self.tiers:
            for record in self.held(tier):
                found.setdefault(str(record["id"]), []).append(tier)
        return found

    def settle(self, poll: Callable[..., Any]) -> None:
        """Wait until nothing moves by itself any more."""

        def still() -> bool:
            told = self.client.call("memory/consolidate")
            return not any(told[name] for name in ("moved", "promoted", "dropped"))

        poll("quiescence", still)

    def cli(self, *arguments: str | Path, status: int = 0) -> str:
        """What a command line of `a2m` over it prints."""
        finished = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        assert finished.returncode == status, finished.stderr
        return finished.stdout + finished.stderr

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self.cli(*arguments, "--json"))

    def command(self, *arguments: str | Path) -> list[str]:
        rest = ["--url", self.url, "--token-file", str(self.token_file)]
        return [sys.executable, "-m", "a2m_cli", *map(str, arguments), *rest]


@dataclass
class Maker:
    """Makes federations, each on empty databases of its own; all end with the test."""

    folder: Path
    valkey_url: str
    postgres_database: Callable[[], str]
    empty_edge: Path
    stack: ExitStack
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __call__(self) -> Federation:
        folder = self.folder / str(next(self.numbers))
        folder.mkdir()
        token_file = folder / "token"
        token_file.write_text("secret")
        token_file.chmod(0o600)
        shared: Any = {"port": 0, "token_file": token_file}
        procedural = ProceduralSettings(path=folder / "skills", **shared)
        postgres = SecretStr(self.postgres_database())
        settings: dict[str, tuple[Any, ServerSettings]] = {
            "working": (
                working,
                WorkingSettings(url=self.valkey_url, prefix=f"t-{uuid4().hex[:8]}:", **shared),
            ),
            "episodic": (episodic, EpisodicSettings(url=postgres, **shared)),
            "semantic": (
                lambda given: create_app(semantic_store(given), given),
                SemanticSettings(path=shutil.copytree(self.empty_edge, folder / "semantic"), **shared),
            ),
            "procedural": (lambda given: create_app(procedural_store(given), given), procedural),
        }
        tiers = {
            name: self.stack.enter_context(_served(make, given)) for name, (make, given) in settings.items()
        }
        config = folder / "federation.yaml"
        config.write_text(_config(tiers))
        given = RouterSettings(config=config, tier_token_file=token_file, sweep_interval=3_600, **shared)
        url = self.stack.enter_context(_served(router, given))
        client = self.stack.enter_context(SyncClient.http(url, token_file=token_file, timeout=60.0))
        return Federation(url, tiers, token_file, client)


@pytest.fixture(scope="session")
def empty_edge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store of the embedded Qdrant, to be copied: making one syncs the disk many times."""
    folder = tmp_path_factory.mktemp("edge") / "semantic"

    async def make() -> None:
        store = semantic_store(SemanticSettings(path=folder))
        await store.open()
        await store.close()

    asyncio.run(make())
    return folder


@pytest.fixture
def make_federation(
    tmp_path: Path, valkey_url: str, postgres_database: Callable[[], str], empty_edge: Path
) -> Iterator[Maker]:
    with ExitStack() as stack:
        yield Maker(tmp_path, valkey_url, postgres_database, empty_edge, stack)


@contextmanager
def _served(make: Callable[[Any], Any], settings: ServerSettings) -> Generator[str]:
    """Serve an application from a thread; its URL."""
    with bind(settings) as listener:
        server = Server(make(settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join()


def _config(tiers: dict[str, str]) -> str:
    lines = ["name: a2m", "tiers:"]
    policy = {
        "working": [f"capacity: {CAPACITY}", "per_session: true", "spill_to: episodic"],
        "episodic": ["promote_to: semantic", "promote_after: 3"],
    }
    for name, url in tiers.items():
        lines += [f"  - name: {name}", f"    kind: {name}", f"    url: {url}"]
        lines += [f"    {line}" for line in policy.get(name, [])]
    return "\n".join(lines) + "\n"
