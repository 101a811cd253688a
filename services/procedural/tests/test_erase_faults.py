"""Erasing under SIGKILL at every step and at any moment, and beside writers and a person's git."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.types import Draft, Record
from a2m_server.values import EVERYONE, Filter, Page

Git = Callable[..., str]

SCRIPT = Path(__file__).with_name("erasing.py")
STEPS = ("packed", "planned", "moved", "unlogged", "pruned")
REFS = ["main", "side", "early", "v1"]
KILLS = 15


def objects(path: Path) -> str:
    batch = ["git", "-c", "safe.directory=*", "cat-file", "--batch-all-objects", "--batch"]
    return subprocess.run(batch, cwd=path, check=True, capture_output=True).stdout.decode(errors="replace")


async def records(store: ProceduralStore) -> dict[str, Record]:
    listed = [r.id for r in (await store.timeline(Page(Filter()))).records]
    return {record.id: record for record in await store.read(listed)}


async def opened(path: Path) -> ProceduralStore:
    store = ProceduralStore(Place(path))
    await store.open()
    return store


def killed_at(path: Path, step: str) -> int:
    return subprocess.run([sys.executable, SCRIPT, "die", path, step], check=False).returncode


def kill_after(path: Path, seconds: float) -> None:
    """Kill an erasure and the git that it is running; the locks that these left have become old."""
    command = [sys.executable, SCRIPT, "die", path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        child.stdin.write(b"\n")
        child.stdin.flush()
        time.sleep(seconds)
        os.killpg(child.pid, signal.SIGKILL)
    for lock in path.rglob("*.lock"):
        os.utime(lock, (time.time() - 60, time.time() - 60))


@contextmanager
def writer(path: Path, count: int) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, SCRIPT, "write", path, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        yield child


@pytest.fixture
async def begun(path: Path, git: Git) -> dict[str, Record]:
    """What a repository holds in which something was forgotten that two branches and a tag have."""
    store = await opened(path)
    for number in range(12):
        await store.write(
            [Draft(id=f"o{number}", content=f"other {number}", embedding=[1.0, number])], EVERYONE
        )
        if number == 5:
            await store.write([Draft(id="secret", content="a heron by the weir")], EVERYONE)
    git(path, "branch", "side", "main")
    git(path, "branch", "early", "main~3")
    git(path, "tag", "-a", "-m", "one", "v1", "main")
    git(path, "pack-refs", "--all")
    await store.forget(Filter(ids=("secret",)))
    before = await records(store)
    await store.close()
    return before


async def settled(path: Path, before: dict[str, Record], git: Git) -> None:
    """Assert that a repository is whole, with the old history or the new one, and can be erased from."""
    assert "error" not in git(path, "fsck", "--full", "--strict", "--no-dangling")
    store = await opened(path)
    assert await records(store) == before
    holders = [
        ref for ref in ("main", "side", "early", "v1") if "secret" in git(path, "log", "--format=%B", ref)
    ]
    assert holders in ([], ["main", "side", "early", "v1"])
    await store.write([Draft(id="after", content="after")], EVERYONE)
    assert (await store.erase(["secret"])).outcomes["secret"] == ("erased" if holders else "absent")
    assert "heron" not in objects(path)
    assert {**before, "after": (await records(store))["after"]} == await records(store)
    await store.close()
    assert "error" not in git(path, "fsck", "--full", "--strict", "--no-dangling")


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_leaves_the_old_history_or_the_new(
    path: Path, begun: dict[str, Record], git: Git, step: str
) -> None:
    assert killed_at(path, step) == -signal.SIGKILL
    await settled(path, begun, git)


async def test_a_kill_leaves_what_a_person_stashed(library: Path, git: Git) -> None:
    store = await opened(library)
    await store.write([Draft(id="secret", content="a heron by the weir")], EVERYONE)
    for number in range(2):
        (library / "README.md").write_text(f"Ours, {number}.\n")
        git(library, "stash", "-q")
    await store.forget(Filter(ids=("secret",)))
    await store.close()
    assert killed_at(library, "moved") == -signal.SIGKILL
    await (await opened(library)).close()
    assert "heron" not in objects(library)
    assert git(library, "stash", "list").count("WIP on main") == 2
    git(library, "stash", "pop", "-q")
    assert (library / "README.md").read_text() == "Ours, 1.\n"


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_a_kill_of_git_as_well_at_any_moment_leaves_a_whole_repository(
    path: Path, begun: dict[str, Record], git: Git
) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        copy = Path(shutil.copytree(path, path.with_name("copy")))
        kill_after(copy, chance.uniform(0, 0.6))
        await settled(copy, begun, git)
        shutil.rmtree(copy)


async def test_writers_of_other_processes_lose_nothing(
    path: Path, begun: dict[str, Record], git: Git
) -> None:
    store = await opened(path)
    with writer(path, 25) as child:
        rounds = 0
        while child.poll() is None:
            passing = Draft(id=f"passing-{rounds}", content="a heron by the weir")
            await store.write([passing], EVERYONE)
            await store.forget(Filter(ids=(passing.id,)))
            assert (await store.erase([passing.id, "secret"])).outcomes[passing.id] == "erased"
            rounds += 1
        assert child.stdout
        written = child.stdout.read().decode().split()
    assert rounds > 1
    assert len(written) == 25
    assert set(await records(store)) == {*begun, *written}
    assert "heron" not in objects(path)
    await store.close()
    assert "error" not in git(path, "fsck", "--full", "--strict", "--no-dangling")


async def test_a_person_who_pushes_meanwhile_loses_nothing(
    path: Path, begun: dict[str, Record], git: Git, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(path), "clone")

    def observe(step: str) -> None:
        if step == "planned" and not (clone / "new").exists():
            (clone / "new").write_text("mine\n")
            git(clone, "add", "-A")
            git(clone, "commit", "-q", "-m", "Mine")
            git(clone, "push", "-q", "origin", "HEAD:main")

    store = ProceduralStore(Place(path), observe=observe)
    await store.open()
    assert (await store.erase(["secret"])).outcomes["secret"] == "erased"
    assert git(path, "show", "main:new") == "mine\n"
    assert await records(store) == begun
    assert "heron" not in objects(path)
    await store.close()
