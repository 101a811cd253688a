"""`a2m forget --verify` and `--erase` on a running federation, and on what is put behind a service's back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from redis import Redis

from a2m_cli.application import main
from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.types import Draft
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.engine import Point, point_id
from a2m_semantic.store import SemanticStore
from a2m_server.http import create_app
from a2m_server.listen import Server, bind, url_of
from a2m_server.settings import ServerSettings
from a2m_server.store import MemoryStore
from a2m_server.values import EVERYONE, Filter

SECRET = "the heron nests by the weir"
Cli = Callable[..., str]


@pytest.fixture
def cli(federation: Any, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Runs a command against the federation, and gives what it printed."""
    monkeypatch.setenv("A2M_URL", federation.url)

    def run(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as exited:
            main(arguments)
        said = capsysbinary.readouterr()
        assert (exited.value.code or 0) == status, said
        return (said.out + said.err).decode()

    return run


def setting(federation: Any, service: str, name: str) -> str:
    """A setting of a running service."""
    return psutil.Process(federation.pids[service]).environ()[f"A2M_{service.upper()}_{name}"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", "--git-dir", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode(errors="replace")


Plant = Callable[[Any, str], Any]


@contextmanager
def in_valkey(federation: Any, record_id: str) -> Generator[None]:
    """Something under a key that no index of the service leads to."""
    url = setting(federation, "working", "URL")
    with Redis.from_url(url) as client:  # pyright: ignore[reportUnknownMemberType] untyped **kwargs
        client.hset(f"a2m:{{{'0' * 32}}}:j", record_id, json.dumps({"content": SECRET}))
        yield
        client.delete(f"a2m:{{{'0' * 32}}}:j")


@contextmanager
def in_postgres(federation: Any, record_id: str) -> Generator[None]:
    """A row of words without a record, which foreign keys forbid."""
    url = setting(federation, "episodic", "URL")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("INSERT INTO episodic.words (pk, marks) VALUES (-1, '{2}')")
        yield
        connection.execute("DELETE FROM episodic.words WHERE pk = -1")


@pytest.mark.parametrize(
    ("tier", "plant", "place"),
    [
        ("working", in_valkey, "records"),
        ("episodic", in_postgres, "words of no record"),
    ],
)
def test_what_is_planted_in_an_engine_is_found(
    federation: Any, cli: Cli, tier: str, plant: Plant, place: str
) -> None:
    record_id = cli("remember", SECRET, "--tier", tier, "--id", f"planted/{tier}", "--key", tier).strip()
    clean = cli("forget", record_id, "--verify")
    assert "semantic    nothing" in clean
    with plant(federation, record_id):
        found = cli("forget", record_id, "--verify", status=1)
        assert f"left: {record_id} in {tier}, {place}" in found
    cli("forget", record_id, "--verify")


def test_what_is_planted_in_the_embedded_vector_store_is_found(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant() -> None:
        engine = EdgeEngine(tmp_path / "edge", "cosine")
        store = SemanticStore(engine)
        await store.open()
        await store.write([Draft(id="planted", content=SECRET, embedding=[1.0, 0.0])], EVERYONE)
        await store.forget(Filter(ids=("planted",)))
        payload = {"id": "planted", "version": "v", "words": ["heron"]}
        await engine.upsert([Point(point_id("other", "x"), payload, dense=[1.0, 0.0])], frozenset())
        await store.close()

    asyncio.run(plant())
    with served(SemanticStore(EdgeEngine(tmp_path / "edge", "cosine"))) as url:
        monkeypatch.setenv("A2M_URL", url)
        found = cli("forget", "planted", "--verify", status=1)
        assert "left: planted in payload" in found
        assert "left: planted in vectors" in found


def test_a_copy_that_a_person_keeps_of_a_skill_is_found(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    git(folder / ".git", "init", "-q", "--initial-branch=main", str(folder))
    with served(ProceduralStore(Place(folder))) as url:
        monkeypatch.setenv("A2M_URL", url)
        cli("remember", SECRET, "--id", "tea")
        [file] = folder.glob("*/SKILL.md")
        copy = folder / "drafts"
        copy.mkdir()
        (copy / "SKILL.md").write_bytes(file.read_bytes())
        assert "left: tea in work tree" in cli("forget", "tea", "--verify", status=1)
        (copy / "SKILL.md").unlink()
        assert "1 id: history" in cli("forget", "tea", "--verify")
        git(folder / ".git", "branch", "kept", "main~1")
        git(folder / ".git", "worktree", "add", "-q", str(tmp_path / "kept"), "kept")
        assert "has it checked out" in cli("forget", "tea", "--erase", "--yes", status=1)


@contextmanager
def served(store: MemoryStore) -> Generator[str]:
    settings = ServerSettings(port=0)
    with bind(settings) as listener:
        server = Server(create_app(store, settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join()


def test_history_is_a_note_until_it_is_erased(federation: Any, cli: Cli) -> None:
    folder, secret = federation.data / "procedural", "pour the tea at ninety degrees"
    moved, kept = "erased/moved", "erased/kept"
    for record_id in (moved, kept):
        cli("remember", secret, "--tier", "procedural", "--id", record_id, "--role", "tool")
    cli("promote", moved, "--to", "semantic")
    said = cli("forget", moved, kept, "--verify")
    assert "history: procedural 2" in said
    assert "2 ids: history" in said
    objects = ("cat-file", "--batch-all-objects", "--batch")
    assert secret in git(folder, *objects)
    said = cli("forget", moved, kept, "--erase", "--verify", "--yes")
    assert "erased: procedural 2" in said
    assert "history" not in said.partition("left")[2].partition("\n")[2]
    assert secret not in git(folder, *objects)
    assert git(folder, "fsck", "--full", "--strict") == ""
    assert json.loads(cli("forget", moved, "--erase", "--yes", "--json"))["erased"] == {"procedural": 0}
