import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE, Filter, Page

Git = Callable[..., str]


async def ids(store: ProceduralStore) -> list[str]:
    return [r.id for r in (await store.timeline(Page(Filter()))).records]


def listing(folder: Path) -> list[Path]:
    return list(folder.iterdir())


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


STARVING = Path(__file__).with_name("starving.py")
NOT_ALLOWED = 77
OURSELVES = ("--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_is_full_or_read_only_is_named_loses_nothing_and_is_used_again(
    tmp_path: Path, kind: str
) -> None:
    command = [sys.executable, str(STARVING), kind, str(tmp_path)]
    # A file system of its own takes root, or a namespace in which one is; where neither may be, less will do.
    lesser = ["setpriv", *OURSELVES] if os.geteuid() == 0 and kind == "read-only" else []
    ways = [["unshare", "-m", *command], ["unshare", "-rm", *command], [*lesser, *command, "limit"]]
    for way in ways:
        if shutil.which(way[0]) is None:
            continue
        done = subprocess.run(way, capture_output=True, text=True, check=False, timeout=100)
        if done.returncode == NOT_ALLOWED or "unshare failed" in done.stderr:
            continue
        assert done.returncode == 0, done.stderr
        return
    pytest.fail("there is no way to starve a repository here")


def rename(old: Path, new: Path) -> None:
    old.rename(new)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see what is synced")
async def test_the_names_of_objects_are_on_disk_before_the_branch_moves_and_its_own_before_a_write_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    at: dict[str, set[Path]] = {}
    store = ProceduralStore(Place(path), observe=lambda step: at.setdefault(step, {*synced}))
    await store.open()
    objects = {*(path / "objects").rglob("*")}
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", watched)
    await store.write([Draft(id="a", content="a", key="k")], EVERYONE)
    fresh = {file.parent for file in (path / "objects").rglob("*") if file not in objects}
    assert len(fresh) > 1
    assert fresh <= at["made"]
    assert path / "refs" / "heads" in at["advanced"]
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
