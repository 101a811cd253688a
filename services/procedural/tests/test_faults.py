import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_server.store import EVERYONE, Filter, Page

Git = Callable[..., str]


async def ids(store: ProceduralStore) -> list[str]:
    return [r.id for r in (await store.timeline(Page(Filter()))).records]


@pytest.mark.parametrize("name", ["refs/heads/main.lock", "HEAD.lock"])
async def test_a_lock_that_a_killed_git_left_is_removed_once_it_is_old(
    store: ProceduralStore, path: Path, name: str
) -> None:
    await store.write([Draft(id="a", content="a")], EVERYONE)
    lock = path / name
    lock.touch()
    with pytest.raises(A2MError, match="locked") as refused:
        await store.write([Draft(id="b", content="b")], EVERYONE)
    assert refused.value.retryable
    assert lock.exists()
    assert await ids(store) == ["a"]
    os.utime(lock, (time.time() - 60, time.time() - 60))
    await store.write([Draft(id="b", content="b")], EVERYONE)
    assert await ids(store) == ["a", "b"]
    assert not lock.exists()


async def test_nothing_of_a_persons_setup_has_a_say(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: Git
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / ".gitconfig").write_text(
        "[commit]\ngpgSign = true\n[user]\nname = Wrong\n[core]\nbare = maybe\n[init]\ndefaultBranch = x\n"
    )
    bad = {
        "HOME": str(trap),
        "GIT_CONFIG_GLOBAL": str(trap / ".gitconfig"),
        "GIT_CONFIG_PARAMETERS": "'core.bare'='maybe'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "maybe",
        "GIT_AUTHOR_NAME": "Wrong",
        "GIT_NAMESPACE": "n",
    }
    places = [
        "DIR",
        "WORK_TREE",
        "COMMON_DIR",
        "OBJECT_DIRECTORY",
        "INDEX_FILE",
        "QUARANTINE_PATH",
        "TEMPLATE_DIR",
    ]
    bad |= {f"GIT_{place}": str(trap / place) for place in places}
    for variable, value in bad.items():
        monkeypatch.setenv(variable, value)
    store = ProceduralStore(Place(path, author_name="A B", author_email="a@b"))
    await store.open()
    hook = path / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {trap}/ran\nexit 1\n")
    hook.chmod(0o755)
    await store.write([Draft(id="a", content="a")], EVERYONE)
    assert await ids(store) == ["a"]
    await store.close()
    assert git(path, "log", "--format=%an <%ae> %cn %G?", "main") == "A B <a@b> A B N\n"
    assert sorted(p.name for p in trap.iterdir()) == [".gitconfig"]


@pytest.mark.parametrize(
    "hostile",
    ["../../out", "-rf", "$(touch out)", "a\n\nX: y", "x" * 512, "CON", "\u202e", "é", "e\u0301", ".git"],
)
async def test_hostile_records_stay_inside_the_repository(
    store: ProceduralStore, path: Path, tmp_path: Path, git: Git, hostile: str
) -> None:
    draft = Draft(
        id=hostile,
        key=hostile,
        owner=hostile,
        session=hostile,
        content=hostile,
        role=hostile,
        metadata={hostile: hostile},
    )
    await store.write([draft], EVERYONE)
    assert [p.name for p in listing(tmp_path)] == ["skills"]
    ours, listed = git(path, "ls-tree", "-r", "-z", "--name-only", "main").strip("\0").split("\0")
    assert ours == ".gitattributes"
    folder, _, name = listed.partition("/")
    assert name == "SKILL.md"
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert git(path, "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    body = git(path, "log", "-1", "--format=%B")
    assert body.isascii()
    assert "\nX: y" not in body
    assert git(path, "cat-file", "commit", "main").count("\nauthor ") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system needs privileges")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def listing(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4_096))


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


def rename(old: Path, new: Path) -> None:
    old.rename(new)


async def test_a_full_disk_is_an_error_that_passes_when_there_is_room(small_disk: Path, git: Git) -> None:
    store = ProceduralStore(Place(small_disk / "skills"))
    await store.open()
    await store.write([Draft(id="a", content="a")], EVERYONE)
    ballast = small_disk / "ballast"
    fill(ballast)
    for call in (
        lambda: store.write([Draft(id="b", content="b" * 9_000)], EVERYONE),
        lambda: store.forget(Filter(ids=("a",))),
    ):
        with pytest.raises(A2MError, match="disk is full") as refused:
            await call()
        assert refused.value.retryable
        assert await ids(store) == ["a"]
    ballast.unlink()
    await store.write([Draft(id="b", content="b")], EVERYONE)
    assert await ids(store) == ["a", "b"]
    await store.close()
    assert "error" not in git(small_disk / "skills", "fsck", "--full")


async def test_a_read_only_repository_is_read_and_says_so_when_written(small_disk: Path) -> None:
    store = ProceduralStore(Place(small_disk / "skills"))
    await store.open()
    await store.write([Draft(id="a", content="a")], EVERYONE)
    await store.close()
    remount(small_disk, "ro")
    with pytest.raises(A2MError, match="read-only"):
        await store.open()
    remount(small_disk, "rw")
    await store.open()
    await store.write([Draft(id="b", content="b")], EVERYONE)
    assert await ids(store) == ["a", "b"]
    await store.close()


async def test_a_repository_that_went_away_is_an_error_until_it_is_back(
    store: ProceduralStore, path: Path
) -> None:
    await store.write([Draft(id="a", content="a")], EVERYONE)
    away = path.with_name("away")
    rename(path, away)
    for call in (lambda: store.write([Draft(id="b", content="b")], EVERYONE), lambda: store.ready()):
        with pytest.raises(A2MError) as refused:
            await call()
        assert refused.value.retryable
    rename(away, path)
    await store.ready()
    await store.write([Draft(id="b", content="b")], EVERYONE)
    assert await ids(store) == ["a", "b"]
