import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.types import Draft
from a2m_server.store import EVERYONE, Filter, Page

Git = Callable[..., str]
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
    writers = [start(path, f"p{n}", 16, 2) for n in range(4)]
    outputs = [(await asyncio.to_thread(w.communicate, timeout=90))[0] for w in writers]
    assert [w.returncode for w in writers] == [0] * 4
    acknowledged = {line for output in outputs for line in output.split()}
    assert len(acknowledged) == 128
    store = ProceduralStore(Place(path))
    await store.open()
    records = (await store.timeline(Page(Filter()))).records
    await store.close()
    assert {r.id for r in records} == acknowledged
    assert len({r.seq for r in records}) == 128
    assert linear(git, path) == 128
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
        for number in range(5):
            await asyncio.to_thread(push, number)

    async def agent() -> None:
        for number in range(60):
            await store.write([Draft(id=f"a{number}", content="ours")], EVERYONE)
            await asyncio.sleep(0.01)

    await asyncio.gather(person(), agent())
    ids = {r.id for r in (await store.timeline(Page(Filter()))).records}
    assert ids == {"first", *(f"a{n}" for n in range(60)), *(f"skill/mine-{n}" for n in range(5))}
    assert linear(git, path) == 66
    fsck(git, path)


async def prepared(path: Path) -> None:
    store = ProceduralStore(Place(path))
    await store.open()
    await store.write([Draft(id="old", content="old", key="k", embedding=[1.0, 0.0])], EVERYONE)
    await store.close()


STEPS = ["made", "intended", "advanced", "applied"]


@pytest.mark.parametrize("call", ["create", "rewrite", "forget", "move"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_leaves_all_of_a_call_or_nothing(
    path: Path, git: Git, step: str, call: str
) -> None:
    await prepared(path)
    writer = start("kill", path, step, call)
    await asyncio.to_thread(writer.communicate, timeout=30)
    assert writer.returncode == -signal.SIGKILL
    done = step in ("advanced", "applied")
    store = ProceduralStore(Place(path))
    await store.open()
    records = {r.id: r for r in (await store.timeline(Page(Filter()))).records}
    graves = [g.reason for g in await store.tombstones(["old"])]
    await store.close()
    if call == "create":
        assert (
            (records["new"].embedding, records["new"].salience) == ([0.0, 1.0], 7.0)
            if done
            else "new" not in records
        )
    elif call == "rewrite":
        assert (records["old"].content, records["old"].embedding) == (
            ("newer", [0.0, 1.0]) if done else ("old", [1.0, 0.0])
        )
    else:
        assert graves == (["forgotten" if call == "forget" else "moved"] if done else [])
        assert ("old" in records) is not done
    assert not list((path / "a2m").glob("tmp/*"))
    fsck(git, path)


async def test_writers_killed_at_random_lose_nothing_acknowledged(path: Path, git: Git) -> None:
    acknowledged: set[str] = set()
    for round_ in range(4):
        writers = [start(path, f"r{round_}p{n}", 4, 50) for n in range(2)]
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
