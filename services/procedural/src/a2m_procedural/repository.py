"""One branch of a git repository: objects by plumbing, and a ref that moves only from where it was.

Contents, paths and messages go in by standard input; the command line holds only options, object names and
the branch.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from a2m_procedural.folders import stamps, sync, sync_changed
from a2m_procedural.names import SKILL
from a2m_procedural.plumbing import GitError, Plumbing

LOCK_TRIES = 20
STALE_LOCK = 30.0

_HEX = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Blob:
    path: str
    sha: str


@dataclass(frozen=True, slots=True)
class Note:
    """Who commits, when (milliseconds since 1970) and why."""

    name: str
    email: str
    ms: int
    message: str

    def header(self) -> bytes:
        who = f"{self.name} <{self.email}> {self.ms // 1000} +0000"
        return f"author {who}\ncommitter {who}\n".encode()


class Repository:
    """One thread's hands on a repository; made by `open_repository`."""

    def __init__(self, git_dir: Path, common_dir: Path, work_tree: Path | None, branch: str | None) -> None:
        self.private = common_dir / "a2m"
        self.private.mkdir(mode=0o700, exist_ok=True)
        self.git_dir = git_dir
        self.common = common_dir
        self._work_tree = work_tree
        env = {"GIT_DIR": str(git_dir), "GIT_COMMON_DIR": str(common_dir)}
        if work_tree is not None:
            env["GIT_WORK_TREE"] = str(work_tree)
        self.git = Plumbing(work_tree or git_dir, env)
        self.ref = f"refs/heads/{branch}" if branch else self.git.ask("symbolic-ref", "-q", "HEAD")
        if not self.ref:
            raise GitError("its HEAD is detached: name the branch to use in A2M_PROCEDURAL_BRANCH")
        self.git.run("check-ref-format", self.ref)
        self._plain_refs = not self.git.ask("config", "--get", "extensions.refStorage").startswith("reftable")
        self._empty = self.git.run("hash-object", "-t", "tree", "--stdin").decode().strip()

    def lend(self, descriptor: int | None) -> None:
        """Let the children of following commands inherit the write lock."""
        self.git.lend(descriptor)

    def head(self) -> str | None:
        """The commit at the tip of the branch, read from the ref's file where that is enough."""
        text = None
        if self._plain_refs:
            try:
                text = (self.common / self.ref).read_text().strip()
            except FileNotFoundError:
                text = self._packed()
            if text is not None and _HEX.fullmatch(text):
                return text
        if not (self.common / "HEAD").exists():
            raise GitError(f"{self.common} is gone")
        if self._plain_refs and text is None:
            return None
        return self.git.ask("rev-parse", "--verify", "-q", self.ref) or None

    def skills(self, commit: str) -> tuple[list[Blob], set[str]]:
        """The regular files named `SKILL.md` in a commit, and all its paths and folders in lower case."""
        found: list[Blob] = []
        occupied: set[str] = set()
        for line in self.git.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if line:
                info, _, name = line.partition(b"\t")
                mode, _, sha = info.decode().split(" ")
                path = os.fsdecode(name)
                occupied.add(path.lower())
                occupied.update(_folders(path.lower()))
                if mode.startswith("100") and path.rpartition("/")[2] == SKILL:
                    found.append(Blob(path, sha))
        return found, occupied

    def read(self, shas: Iterable[str]) -> dict[str, bytes]:
        """The bytes of blobs, by one command for all."""
        wanted = list(dict.fromkeys(shas))
        if not wanted:
            return {}
        printed = self.git.run("cat-file", "--batch", data="\n".join([*wanted, ""]).encode())
        found: dict[str, bytes] = {}
        start = 0
        for sha in wanted:
            end = printed.index(b"\n", start)
            name, kind, *size = printed[start:end].decode().split(" ")
            if name != sha or kind != "blob" or not size:
                raise GitError(f"object {sha} cannot be read: {kind}")
            start = end + 1 + int(size[0])
            found[sha] = printed[end + 1 : start]
            start += 1
        return found

    def added(self, commit: str) -> dict[str, int]:
        """When each `SKILL.md` was last added, by its author's clock, in seconds since 1970."""
        form = ("--no-renames", "--diff-filter=A", "--format=%x01%at", "--name-only", "-z")
        times: dict[str, int] = {}
        at = 0
        for token in self.git.run("log", *form, commit, "--", f":(glob)**/{SKILL}").split(b"\0"):
            text = token.removeprefix(b"\n")
            if text.startswith(b"\x01"):
                at = int(text[1:].strip() or 0)
            elif text:
                times.setdefault(os.fsdecode(text), max(at, 0))
        return times

    def commit(
        self, base: str | None, files: Mapping[str, bytes | None], note: Note
    ) -> tuple[str, dict[str, bytes]]:
        """A commit on `base` that writes, or with None removes, some paths; no ref points to it yet.

        The second is the bytes of the blobs that it wrote. All goes through one `fast-import`, which keeps
        many objects as one pack; the ref that it insists on is let go of before it could be made.
        """
        written = [(path, data) for path, data in files.items() if data is not None]
        stream: list[bytes] = []
        for mark, (_, data) in enumerate(written, 2):
            stream += [b"blob\nmark :%d\n" % mark, _data(data), b"get-mark :%d\n" % mark]
        stream += [b"commit refs/a2m/draft\nmark :1\n", note.header(), _data(note.message.encode())]
        if base is not None:
            stream.append(f"from {base}\n".encode())
        stream += [b"D %s\n" % _quoted(path) for path, data in files.items() if data is None]
        stream += [b"M 100644 :%d %s\n" % (mark, _quoted(path)) for mark, (path, _) in enumerate(written, 2)]
        nothing = "0" * len(self._empty)
        stream.append(f"\nget-mark :1\nreset refs/a2m/draft\nfrom {nothing}\n\ndone\n".encode())
        before = stamps(self.common / "objects")
        began = time.time()
        try:
            printed = self.git.run("fast-import", "--quiet", "--done", data=b"".join(stream))
        except GitError:
            # It writes a report with names of ours in it; the error says enough.
            for report in self.git_dir.glob("fast_import_crash_*"):
                if report.stat().st_mtime >= began - 1:
                    report.unlink(missing_ok=True)
            raise
        sync_changed(self.common / "objects", before)
        *shas, commit = printed.decode().split()
        return commit, {sha: data for sha, (_, data) in zip(shas, written, strict=True)}

    def advance(self, old: str | None, new: str) -> bool:
        """Move the branch from `old` to `new`; False when it is no longer at `old`.

        A lock that a killed git left is removed once it is older than any ref update takes.
        """
        for _ in range(LOCK_TRIES):
            try:
                self.git.run("update-ref", "-m", "a2m", self.ref, new, old or "0" * len(new))
            except GitError:
                now = self.head()
                if now != old:
                    return now == new
                locks = [path for path in self._locks() if path.exists()]
                if not locks:
                    raise
                for path in locks:
                    remove_if_stale(path)
                time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 jitter, no secret
            else:
                if self._plain_refs:
                    sync((self.common / self.ref).parent)
                return True
        raise GitError(
            f"another git process keeps the branch locked; a stale lock goes after {STALE_LOCK:g} s"
        )

    def contains(self, commit: str) -> bool:
        """Whether the branch has a commit in its history."""
        try:
            self.git.run("merge-base", "--is-ancestor", commit, self.ref)
        except GitError:
            return False
        return True

    def blocked(self, old: str | None, new: str) -> str | None:
        """Why the checked-out files cannot follow from `old` to `new`, or None when they can."""
        return self._read_tree(old, new, "-n") if self._checked_out() else None

    def follow(self, old: str | None, new: str) -> bool:
        """Bring the checked-out files from `old` to `new`; False, and all as it was, if some are changed."""
        return not self._checked_out() or self._read_tree(old, new) is None

    def _read_tree(self, old: str | None, new: str, *options: str) -> str | None:
        """git's two-way merge of index and files; if a person's changes made it give way, which."""
        env = {"GIT_INDEX_FILE": str(self.git_dir / "index")}
        # It fails when some file is changed, which the merge judges better.
        with suppress(GitError):
            self.git.run("update-index", "-q", "--unmerged", "--refresh", env=env)
        why = None
        for _ in range(LOCK_TRIES):
            try:
                self.git.run("read-tree", "-m", "-u", *options, old or self._empty, new, env=env)
            except GitError as error:
                why = str(error)
                if "index.lock" not in why:
                    return why
                time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 jitter, no secret
            else:
                return None
        return why

    def _checked_out(self) -> bool:
        return self._work_tree is not None and self.git.ask("symbolic-ref", "-q", "HEAD") == self.ref

    def _packed(self) -> str | None:
        try:
            lines = (self.common / "packed-refs").read_text(errors="surrogateescape").splitlines()
        except FileNotFoundError:
            return None
        refs = (line.partition(" ") for line in lines)
        return next((sha for sha, _, name in refs if name == self.ref), None)

    def _locks(self) -> Iterator[Path]:
        yield self.common / f"{self.ref}.lock"
        yield self.git_dir / "HEAD.lock"


def open_repository(path: Path, branch: str | None) -> Repository:
    """The repository at `path` itself, never one above it; a missing or empty folder becomes a bare one."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        _create(path, branch or "main")
    inner = path / ".git"
    if not path.is_dir() or not (inner.exists() or (path / "HEAD").exists()):
        raise GitError(f"{path} is not a git repository: give one, or a missing or empty folder")
    git = Plumbing(path, {"GIT_DIR": str(inner if inner.exists() else path)})
    git_dir, common_dir = git.run("rev-parse", "--absolute-git-dir", "--git-common-dir").splitlines()
    bare = git.run("rev-parse", "--is-bare-repository").strip() == b"true"
    tree = None if bare else path / os.fsdecode(git.run("rev-parse", "--show-toplevel").rstrip(b"\n"))
    common = path / os.fsdecode(common_dir)
    return Repository(Path(os.fsdecode(git_dir)), common.resolve(), tree, branch)


def _create(path: Path, branch: str) -> None:
    """Made beside and renamed, so that of two that begin at once both find one whole repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{random.getrandbits(32):08x}")
    fresh.mkdir(mode=0o700)
    try:
        git = Plumbing(fresh, {"GIT_DIR": str(fresh)})
        git.run("init", "-q", "--bare", "--template=", f"--initial-branch={branch}")
        try:
            fresh.rename(path)
        except OSError:
            if not (path / "HEAD").exists():
                raise
        else:
            sync(path.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _data(data: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(data), data)


def _quoted(path: str) -> bytes:
    """A path as fast-import reads it; every byte that is not plainly itself is given in octal."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
    return b'"%s"' % b"".join(b"%c" % c if c in plain else b"\\%03o" % c for c in os.fsencode(path))


def remove_if_stale(path: Path) -> None:
    """Remove a lock file that is older than any update takes."""
    try:
        if time.time() - path.stat().st_mtime > STALE_LOCK:
            path.unlink()
    except FileNotFoundError:
        pass
