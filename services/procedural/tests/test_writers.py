import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE, Filter, Page

Git = Callable[..., str]
pytestmark = pytest.mark.slow
WRITER = Path(__file__).with_name("writer.py")


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def linear(git: Git, path: Path) -> int:
    """How many commits the history has, each with one parent at most."""
    lines = git(path, "log", "--format=%P").splitlines()
    assert all(len(line.split()) <= 1 for line in lines)
    return len(lines)


def fsck(git: Git, path: Path) -> None:
    assert "error" not in git(path, "fsck", "--full", "--strict")


async def test_parallel_writers_of_several_processes_lose_nothing(path: Path, git: Git) -> None:
    writers = [start("write", path, f"p{n}", 16, 1) for n in range(4)]
    outputs = [(await asyncio.to_thread(w.communicate, timeout=90))[0] for w in writers]
    assert [w.returncode for w in writers] == [0] * 4
    acknowledged = {line for output in outputs for line in output.split()}
    assert len(acknowledged) == 64
    store = ProceduralStore(Place(path))
    await store.open()
    records = (await store.timeline(Page(Filter()))).records
    await store.close()
    assert {r.id for r in records} == acknowledged
    assert len({r.seq for r in records}) == 64
    assert linear(git, path) == 64
    fsck(git, path)


async def test_a_person_who_pushes_meanwhile_loses_nothing_either(
    store: ProceduralStore, path: Path, tmp_path: Path, git: Git
) -> None:
    await store.write([Draft(id="first", content="x")], EVERYONE)
    git(tmp_path, "clone", "-q", str(path), "clone")
    clone = tmp_path / "clone"

    def push(number: int) -> None:
        folder = clone / f"mine-{number}"
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"mine {number}")
        git(clone, "add", "-A")
        git(clone, "commit", "-q", "-m", f"Mine {number}")
        for _ in range(200):
            git(clone, "pull", "-q", "--rebase")
            try:
                git(clone, "push", "-q")
            except subprocess.CalledProcessError:
                continue
            return
        raise AssertionError("never got through")

    async def person() -> None:
        for number in range(3):
            await asyncio.to_thread(push, number)

    async def agent() -> None:
        for number in range(20):
            await store.write([Draft(id=f"a{number}", content="ours")], EVERYONE)
            await asyncio.sleep(0.02)

    await asyncio.gather(person(), agent())
    ids = {r.id for r in (await store.timeline(Page(Filter()))).records}
    assert ids == {"first", *(f"a{n}" for n in range(20)), *(f"skill/mine-{n}" for n in range(3))}
    assert linear(git, path) == 24
    fsck(git, path)


async def test_a_commit_between_reading_and_writing_is_built_upon(
    path: Path, tmp_path: Path, git: Git
) -> None:
    clone = tmp_path / "clone"
    pushed: list[str] = []

    def observe(step: str) -> None:
        if step == "intended" and clone.exists() and len(pushed) < 3:
            pushed.append(step)
            (clone / "notes.txt").write_text(f"{len(pushed)}")
            git(clone, "add", "-A")
            git(clone, "commit", "-q", "-m", "Notes")
            git(clone, "push", "-q")

    store = ProceduralStore(Place(path), observe=observe)
    await store.open()
    await store.write([Draft(id="a", content="a")], EVERYONE)
    git(tmp_path, "clone", "-q", str(path), "clone")
    [written] = await store.write([Draft(id="b", content="b", key="k")], EVERYONE)
    await store.close()
    assert (written.outcome, len(pushed)) == ("created", 3)
    assert linear(git, path) == 5
    assert git(path, "show", "main:notes.txt") == "3"


STEPS = ("made", "intended", "advanced", "followed", "applied")
CALLS = ("create", "rewrite", "forget", "move")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a repository a step and a call, where a process was killed at that step of that call."""
    folder = tmp_path_factory.mktemp("killed")
    output, _ = start("kill", folder).communicate(timeout=100)
    assert output.split() == [str(-signal.SIGKILL)] * len(STEPS) * len(CALLS)
    return folder


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_leaves_all_of_a_call_or_nothing(
    killed: Path, git: Git, step: str, call: str
) -> None:
    path = killed / f"{step}-{call}"
    done = step in ("advanced", "followed", "applied")
    store = ProceduralStore(Place(path))
    await store.open()
    records = {r.id: r for r in (await store.timeline(Page(Filter()))).records}
    graves = [g.reason for g in await store.tombstones(["old"])]
    await store.close()
    if call == "create":
        assert ("new" in records) is done
        if done:
            assert (records["new"].embedding, records["new"].salience) == ([0.0, 1.0], 7.0)
    elif call == "rewrite":
        expected = ("newer", [0.0, 1.0]) if done else ("old", [1.0, 0.0])
        assert (records["old"].content, records["old"].embedding) == expected
    else:
        assert graves == (["forgotten" if call == "forget" else "moved"] if done else [])
        assert ("old" in records) is not done
    fsck(git, path)


async def test_writers_killed_at_random_lose_nothing_acknowledged(path: Path, git: Git) -> None:
    acknowledged: set[str] = set()
    for round_ in range(2):
        writers = [start("write", path, f"r{round_}p{n}", 4, 50) for n in range(2)]
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(6 + round_ * 3):
                acknowledged.add((await asyncio.to_thread(writer.stdout.readline)).strip())
        for writer in writers:
            writer.kill()
            acknowledged.update((await asyncio.to_thread(writer.communicate))[0].split())
    store = ProceduralStore(Place(path))
    await store.open()
    held = {r.id for r in (await store.timeline(Page(Filter()))).records}
    await store.write([Draft(id="after", content="x")], EVERYONE)
    await store.close()
    assert acknowledged - {""} <= held
    linear(git, path)
    fsck(git, path)
