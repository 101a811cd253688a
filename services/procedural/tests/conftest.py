"""Stores on repositories in temporary folders, and a person who works on them with git."""

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore

Git = Callable[..., str]

NOBODY = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_AUTHOR_DATE": "2024-02-29T12:00:00Z",
    "GIT_COMMITTER_DATE": "2024-02-29T12:00:00Z",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's repository is."""
    return tmp_path / "skills"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[ProceduralStore]:
    store = ProceduralStore(Place(path))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def git() -> Git:
    """A person's git: `git(folder, *arguments)` gives what it printed."""

    def run(folder: Path, *arguments: str, **env: str) -> str:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", *arguments],
            cwd=folder,
            env={**NOBODY, **env},
            check=True,
            capture_output=True,
        )
        return done.stdout.decode()

    return run


@pytest.fixture
def library(path: Path, git: Git) -> Path:
    """A checked-out repository of 20 skills that knows nothing of us, with other files beside them."""
    path.mkdir()
    git(path, "init", "-q", "--initial-branch=main")
    for number in range(20):
        folder = path / "skills" / f"skill-{number:02d}"
        (folder / "scripts").mkdir(parents=True)
        front = (
            f"---\nname: skill-{number:02d}\ndescription: Does the thing number {number}\nlicense: MIT\n---\n"
        )
        (folder / "SKILL.md").write_text(f"{front}\n# Thing {number}\n\nTurn the handle.\n")
        (folder / "scripts" / "run.sh").write_text("#!/bin/sh\necho run\n")
        (folder / "logo.png").write_bytes(bytes(range(256)))
    (path / "README.md").write_text("Our skills.\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "Our skills")
    return path
