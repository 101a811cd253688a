"""A repository on a disk that gets full or read-only: `starving.py full|read-only FOLDER [limit]`.

It mounts a small file system, which takes root or a user namespace (`unshare -rm`), and exits with 77 where
it may not. With `limit`, instead, no file may grow beyond a size, or permissions are taken away. It exits
with 0 when each failure was named, nothing acknowledged was lost, and all worked again by itself afterwards.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE, Filter, Named, Page, Tombstone

NOT_ALLOWED = 77
PAGE = 4_096


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, check=True, text=True)
    return done.stdout + done.stderr


def mount(*arguments: object) -> None:
    try:
        run("mount", *arguments)
    except (OSError, subprocess.CalledProcessError):
        sys.exit(NOT_ALLOWED)


async def contents(store: ProceduralStore) -> dict[str, str]:
    return {r.id: r.content for r in (await store.timeline(Page(Filter()))).records}


async def failure_of(call: Awaitable[object], why: str) -> bool:
    """Whether a call failed; if it did, for a reason that is named and that passes."""
    failed = None
    try:
        await call
    except A2MError as error:
        failed = error
    assert failed is None or (failed.retryable and why in failed.message), failed
    return failed is not None


async def refused(call: Awaitable[object], why: str) -> None:
    assert await failure_of(call, why), why


@contextmanager
def full(folder: Path, free: int) -> Generator[None]:
    """All of a small disk but so many bytes is taken."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(PAGE))
    os.truncate(ballast, max(0, ballast.stat().st_size - free))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def limited(_: Path, size: int) -> Generator[None]:
    """No file of this process or its children may grow beyond a size."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


async def starve(folder: Path, how: str) -> None:
    store = ProceduralStore(Place(folder / "skills"))
    await store.open()
    known = {"kept": "kept"}
    await store.write([Draft(id="kept", content="kept")], EVERYONE)
    failures, why = 0, "its disk is full" if how == "mount" else ""
    # At every amount of room the disk is full at another step of a write.
    sizes = range(0, 40 * PAGE, PAGE) if how == "mount" else (0, 64, 512, PAGE, 4 * PAGE)
    for number, size in enumerate(sizes):
        draft = Draft(id=f"r{number}", content=f"{number} " * 2_000, embedding=[float(number), 1.0])
        with (full if how == "mount" else limited)(folder, size):
            if await failure_of(store.write([draft], EVERYONE), why):
                failures += 1
            else:
                known[draft.id] = draft.content
            seen = await contents(store)
            assert known.items() <= seen.items(), number
            assert seen.keys() - known.keys() <= {draft.id}
            if number == 0:
                await failing(store, why)
        [written] = await store.write([draft], EVERYONE)
        assert written.outcome in ("created", "existing")
        known[draft.id] = draft.content
        [record] = await store.read([draft.id])
        assert record.embedding == draft.embedding
    assert failures > 0
    await store.close()
    await whole(folder / "skills", known)


async def failing(store: ProceduralStore, why: str) -> None:
    """Every other kind of change, while there is no room at all."""
    [kept] = await store.read(["kept"])
    await refused(store.forget(Filter(ids=("kept",))), why)
    await refused(store.transfer([Draft(id="t", content="t" * 9_000, seq=5)]), why)
    await refused(store.delete_if([Named("kept", kept.etag)], "moved", "semantic"), why)
    await refused(store.bury([Tombstone("kept", "forgotten", 2**52)]), why)
    assert (await contents(store))["kept"] == "kept"
    await store.ready()


async def freeze(folder: Path, how: str) -> None:
    skills = folder / "skills"
    store = ProceduralStore(Place(skills, lock_timeout=1.0))
    await store.open()
    await store.write([Draft(id="kept", content="kept")], EVERYONE)
    if how == "mount":
        mount("--bind", skills, skills)
        mount("-o", "remount,ro,bind", skills)
    else:
        permit(skills, 0o555)
    why = "read-only" if how == "mount" else "may not be written"
    assert await contents(store) == {"kept": "kept"}
    await refused(store.write([Draft(id="new", content="new")], EVERYONE), why)
    await failing(store, why)
    other = ProceduralStore(Place(skills, lock_timeout=1.0))
    await refused(other.open(), why)
    assert await contents(store) == {"kept": "kept"}
    if how == "mount":
        run("umount", skills)
    else:
        permit(skills, 0o755)
    await store.write([Draft(id="new", content="new")], EVERYONE)
    assert await contents(store) == {"kept": "kept", "new": "new"}
    await store.close()
    await whole(skills, {"kept": "kept", "new": "new"})


def permit(folder: Path, mode: int) -> None:
    """Let folders be written, or not, and the files in them."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(mode if path.is_dir() else mode & 0o666)


async def whole(skills: Path, known: dict[str, str]) -> None:
    """What a fresh start finds, and what git says of it."""
    store = ProceduralStore(Place(skills))
    await store.open()
    assert await contents(store) == known
    await store.close()
    assert "error" not in run("git", "-c", "safe.directory=*", "-C", skills, "fsck", "--full")


def main() -> None:
    kind, folder, *rest = sys.argv[1:]
    how = "limit" if rest else "mount"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if how == "mount":
        mount("-t", "tmpfs", "-o", "size=4m", "none", folder)
    asyncio.run((starve if kind == "full" else freeze)(Path(folder), how))


if __name__ == "__main__":
    main()
