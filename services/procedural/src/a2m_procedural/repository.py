"""A git repository through GitPython's `Git`: objects by plumbing, a ref that moves only from where it was.

Nothing here reads a person's or the system's configuration, runs a hook, asks on a terminal or signs. Content
and messages go in by standard input or files of our own; the command line holds only options, object names
and the branch.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any, cast

from git import Git, Repo

from a2m_procedural.names import SKILL

TIMEOUT = 60.0
LOCK_TRIES = 20
STALE_LOCK = 30.0
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

_HEX = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CONFIG = {
    "safe.directory": "*",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.logAllRefUpdates": "true",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "i18n.commitEncoding": "UTF-8",
}


class GitError(Exception):
    """git refused a command; the text is what it said."""


@dataclass(frozen=True, slots=True)
class Blob:
    path: str
    sha: str


class Repository:
    """One thread's hands on a repository and one branch of it; see `open_repository`."""

    def __init__(self, git_dir: Path, common_dir: Path, work_tree: Path | None, branch: str | None) -> None:
        self.private = common_dir / "a2m"
        self.private.mkdir(mode=0o700, exist_ok=True)
        self._git_dir = git_dir
        self._common = common_dir
        self._work_tree = work_tree
        self._lent: tuple[int, ...] = ()
        self._git = Git(str(work_tree or git_dir))
        self._git.update_environment(**self._environment())
        head = self._ask("symbolic-ref", "-q", "HEAD")
        self.ref = f"refs/heads/{branch}" if branch else head
        if not self.ref:
            raise GitError("its HEAD is detached: name the branch to use in A2M_PROCEDURAL_BRANCH")
        self.run("check-ref-format", self.ref)
        self._plain_refs = not self._ask("config", "--get", "extensions.refStorage").startswith("reftable")

    def close(self) -> None:
        self._git.clear_cache()

    def lend(self, descriptor: int | None) -> None:
        """Let the children of following commands inherit the write lock."""
        self._lent = () if descriptor is None else (descriptor,)

    def head(self) -> str | None:
        """The commit at the tip of the branch, read from the ref's file where that is enough."""
        if self._plain_refs:
            try:
                text = (self._common / self.ref).read_text().strip()
            except FileNotFoundError:
                text = self._packed()
                if text is None:
                    return None
            if _HEX.fullmatch(text):
                return text
        return self._ask("rev-parse", "--verify", "-q", self.ref) or None

    def skills(self, commit: str) -> tuple[list[Blob], set[str]]:
        """The regular files named `SKILL.md` in a commit, and all its paths and folders in lower case."""
        found: list[Blob] = []
        occupied: set[str] = set()
        for line in self.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if line:
                info, _, name = line.partition(b"\t")
                mode, _, sha = info.decode().split(" ")
                path = os.fsdecode(name)
                occupied.add(path.lower())
                occupied.update(_folders(path.lower()))
                if mode.startswith("100") and path.rpartition("/")[2] == SKILL:
                    found.append(Blob(path, sha))
        return found, occupied

    def read(self, sha: str) -> bytes:
        """A blob's bytes, by one long-lived `cat-file --batch`."""
        try:
            return self._git.get_object_data(sha)[3]
        except (ValueError, OSError):
            # That process ended or lost its place: a new one answers, or the object is really not there.
            self._git.clear_cache()
            try:
                return self._git.get_object_data(sha)[3]
            except ValueError as error:
                raise GitError(f"object {sha} cannot be read") from error

    def added(self, commit: str) -> dict[str, int]:
        """When each `SKILL.md` was last added, by its author's clock, in seconds since 1970."""
        times: dict[str, int] = {}
        at = 0
        listed = self.run(
            "log", "--no-renames", "--diff-filter=A", "--format=%x01%at", "--name-only", "-z", commit,
            "--", f":(glob)**/{SKILL}",
        )  # fmt: skip
        for token in listed.split(b"\0"):
            text = token.lstrip(b"\n")
            if text.startswith(b"\x01"):
                at = int(text[1:].strip() or 0)
            elif text:
                times.setdefault(os.fsdecode(text), max(at, 0))
        return times

    def commit(self, base: str | None, files: Mapping[str, bytes | None], message: str, ms: int) -> str:
        """A commit on `base` that writes, or with None removes, some paths; no ref points to it yet."""
        with TemporaryDirectory(dir=self._workshop()) as name:
            folder = Path(name)
            paths: list[Path] = []
            for data in files.values():
                if data is not None:
                    paths.append(folder / str(len(paths)))
                    paths[-1].write_bytes(data)
            listed = "".join(f"{path}\n" for path in paths).encode()
            shas = iter(self.run("hash-object", "-w", "--no-filters", "--stdin-paths", data=listed).split())
            index = {"GIT_INDEX_FILE": str(folder / "index")}
            if base is not None:
                self.run("read-tree", base, env=index)
            lines: list[bytes] = []
            for path, data in files.items():
                info = b"0 " + b"0" * 40 if data is None else b"100644 " + next(shas)
                lines.append(info + b"\t" + os.fsencode(path) + b"\0")
            self.run("update-index", "-z", "--index-info", data=b"".join(lines), env=index)
            tree = self.run("write-tree", env=index).decode().strip()
        parents = () if base is None else ("-p", base)
        stamp = f"{ms // 1000} +0000"
        dates = {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}
        return (
            self.run("commit-tree", tree, *parents, "-F", "-", data=message.encode(), env=dates)
            .decode()
            .strip()
        )

    def author(self, name: str, email: str) -> None:
        self._git.update_environment(
            GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email, GIT_COMMITTER_NAME=name, GIT_COMMITTER_EMAIL=email
        )

    def advance(self, old: str | None, new: str) -> bool:
        """Move the branch from `old` to `new`; False when it is no longer at `old`.

        A lock that a killed git left is removed once it is older than any ref update takes.
        """
        for _ in range(LOCK_TRIES):
            try:
                self.run("update-ref", "-m", "a2m", self.ref, new, old or "0" * len(new))
            except GitError:
                now = self.head()
                if now != old:
                    return now == new
                locks = [path for path in self._locks() if path.exists()]
                if not locks:
                    raise
                for path in locks:
                    _remove_if_stale(path)
                time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 jitter, no secret
            else:
                return True
        raise GitError("another git process keeps the branch locked; a stale lock goes after 30 s")

    def contains(self, commit: str) -> bool:
        """Whether the branch has a commit in its history."""
        try:
            self.run("merge-base", "--is-ancestor", commit, self.ref)
        except GitError:
            return False
        return True

    def blocked(self, old: str | None, new: str) -> str | None:
        """Why the checked-out files cannot follow from `old` to `new`, or None when they can."""
        if not self._checked_out():
            return None
        try:
            self._run_in_tree("update-index", "-q", "--refresh", tolerate=True)
            self._run_in_tree("read-tree", "-n", "-m", "-u", old or EMPTY_TREE, new)
        except GitError as error:
            return str(error)
        return None

    def follow(self, old: str | None, new: str) -> bool:
        """Bring the checked-out files from `old` to `new`; False, and all as it was, if some are changed."""
        if self._checked_out():
            try:
                self._run_in_tree("update-index", "-q", "--refresh", tolerate=True)
                self._run_in_tree("read-tree", "-m", "-u", old or EMPTY_TREE, new)
            except GitError:
                return False
        return True

    def run(self, *arguments: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """What a git command prints, or `GitError` with what it complained of."""
        child = cast(
            "Any",
            self._git.execute(
                [Git.GIT_PYTHON_GIT_EXECUTABLE or "git", *arguments],
                istream=cast("Any", PIPE),
                as_process=True,
                env=env,
                pass_fds=self._lent,
            ),
        )
        process = cast("subprocess.Popen[bytes]", child.proc)
        try:
            out, err = process.communicate(data, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise GitError(f"git {arguments[0]} did not end within {TIMEOUT:g} s") from error
        if process.returncode:
            raise GitError(err.decode(errors="replace").strip() or f"git {arguments[0]} failed")
        return out

    def clean(self) -> None:
        """Remove what killed writers left; only for the holder of the write lock."""
        shutil.rmtree(self.private / "tmp", ignore_errors=True)

    def _workshop(self) -> Path:
        folder = self.private / "tmp"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _ask(self, *arguments: str) -> str:
        try:
            return self.run(*arguments).decode().strip()
        except GitError:
            return ""

    def _run_in_tree(self, *arguments: str, tolerate: bool = False) -> None:
        try:
            self.run(*arguments, env={"GIT_INDEX_FILE": str(self._git_dir / "index")})
        except GitError:
            if not tolerate:
                raise

    def _checked_out(self) -> bool:
        return self._work_tree is not None and self._ask("symbolic-ref", "-q", "HEAD") == self.ref

    def _packed(self) -> str | None:
        try:
            lines = (self._common / "packed-refs").read_text(errors="surrogateescape").splitlines()
        except FileNotFoundError:
            return None
        return next(
            (sha for sha, _, name in (line.partition(" ") for line in lines) if name == self.ref), None
        )

    def _locks(self) -> Iterator[Path]:
        yield self._common / f"{self.ref}.lock"
        yield self._git_dir / "HEAD.lock"

    def _environment(self) -> dict[str, str]:
        nowhere = str(self.private / "nowhere")
        given = {
            "HOME": nowhere,
            "XDG_CONFIG_HOME": nowhere,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_PARAMETERS": "",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NAMESPACE": "",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
            "GIT_OBJECT_DIRECTORY": str(self._common / "objects"),
            "GIT_COMMON_DIR": str(self._common),
            "GIT_DIR": str(self._git_dir),
            "GIT_INDEX_FILE": str(self.private / "no-index"),
            "GIT_CONFIG_COUNT": str(len(_CONFIG)),
        }
        if self._work_tree is not None:
            given["GIT_WORK_TREE"] = str(self._work_tree)
        for at, (name, value) in enumerate(_CONFIG.items()):
            given |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
        return given


def open_repository(path: Path, branch: str | None) -> Repository:
    """The repository at `path` itself, never one above it; a missing or empty folder becomes a bare one."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        _create(path, branch or "main")
    with Repo(path, search_parent_directories=False) as found:
        tree = (
            None if found.bare or found.working_tree_dir is None else Path(found.working_tree_dir).resolve()
        )
        return Repository(Path(found.git_dir).resolve(), Path(found.common_dir).resolve(), tree, branch)


def _create(path: Path, branch: str) -> None:
    """Made beside and renamed, so that of two that begin at once both find one whole repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{random.getrandbits(32):08x}")
    fresh.mkdir(mode=0o700)
    try:
        git = Git(str(fresh))
        git.update_environment(
            GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull, GIT_DIR=str(fresh), HOME=str(fresh)
        )
        command = ["init", "-q", "--bare", "--template=", f"--initial-branch={branch}"]
        git.execute([Git.GIT_PYTHON_GIT_EXECUTABLE or "git", *command])
        try:
            fresh.rename(path)
        except OSError:
            if not (path / "HEAD").exists():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _remove_if_stale(path: Path) -> None:
    try:
        if time.time() - path.stat().st_mtime > STALE_LOCK:
            path.unlink()
    except FileNotFoundError:
        pass
