"""All that a repository holds: every object, reachable or not, every ref, and the work trees."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from a2m_procedural.names import SKILL
from a2m_procedural.pack import Kind, Object, pack
from a2m_procedural.plumbing import GitError, Plumbing
from a2m_procedural.repository import Repository, remove_if_stale
from a2m_procedural.rewriting import File

STASH = "refs/stash"
SLOW = 900.0
"""Seconds for what goes through all objects."""

_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
_NOTES = ("ORIG_HEAD", "FETCH_HEAD", "AUTO_MERGE", "COMMIT_EDITMSG")
_GLOB = f":(glob)**/{SKILL}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to a `SKILL.md`, against one of its parents; None where there is no file."""

    path: str
    old: str | None
    new: str | None

    @property
    def files(self) -> list[File]:
        return [File(self.path, blob) for blob in (self.old, self.new) if blob is not None]


@dataclass(frozen=True, slots=True)
class Ref:
    """A ref that names an object itself. `peeled` is what a tag stands for, else the object."""

    name: str
    sha: str
    kind: Kind
    peeled: str
    peeled_kind: Kind


@dataclass(frozen=True, slots=True)
class Tree:
    """A work tree: the commit that it is at, the branch if it is on one, and its index."""

    path: str
    head: str | None
    branch: str | None
    index: Path
    linked: bool


@dataclass(frozen=True, slots=True)
class Move:
    """A ref that goes from `old` to `new`, or away."""

    ref: str
    old: str
    new: str | None


class Archive:
    """One thread's hands on the whole of a repository."""

    def __init__(self, repository: Repository) -> None:
        self._git: Plumbing = repository.git
        self._git_dir = repository.git_dir
        self._common = repository.common
        self.algorithm = self._git.run("rev-parse", "--show-object-format").decode().strip()

    def objects(self) -> dict[str, tuple[Kind, int]]:
        """Every object there is, with its kind and size in bytes."""
        check = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
        printed = self._git.run("cat-file", "--batch-all-objects", "--unordered", check, timeout=SLOW)
        lines = (line.split(" ") for line in printed.decode().splitlines())
        return {sha: (_kind(kind), int(size)) for sha, kind, size in lines}

    def changes(self, commits: Iterable[str]) -> dict[str, list[Change]]:
        """What commits did to files named `SKILL.md`, by commit; those that did nothing are left out."""
        form = ("--stdin", "--root", "-r", "-m", "-z", "--raw", "--no-renames", "--no-abbrev")
        printed = self._git.run("diff-tree", *form, "--", _GLOB, data=_lines(commits), timeout=SLOW)
        found: dict[str, list[Change]] = {}
        tokens = iter(printed.split(b"\0"))
        commit = ""
        for token in tokens:
            if token.startswith(b":"):
                _, _, old, new, _ = token.decode().split(" ")
                change = Change(os.fsdecode(next(tokens)), _or_none(old), _or_none(new))
                found.setdefault(commit, []).append(change)
            elif token:
                commit = token.decode().strip()
        return found

    def read(self, shas: Iterable[str]) -> dict[str, Object]:
        """Objects, by one command for all."""
        wanted = list(dict.fromkeys(shas))
        if not wanted:
            return {}
        printed = self._git.run("cat-file", "--batch", data=_lines(wanted), timeout=SLOW)
        found: dict[str, Object] = {}
        start = 0
        for sha in wanted:
            end = printed.index(b"\n", start)
            name, kind, *size = printed[start:end].decode().split(" ")
            if name != sha or not size:
                raise GitError(f"object {sha} cannot be read: {kind}")
            start = end + 1 + int(size[0])
            found[sha] = Object(cast("Kind", kind), printed[end + 1 : start])
            start += 1
        return found

    def refs(self) -> list[Ref]:
        form = "%(objectname) %(objecttype) %(*objectname) %(*objecttype) %(symref) %(refname)"
        found: list[Ref] = []
        for line in self._git.run("for-each-ref", f"--format={form}").decode().splitlines():
            sha, kind, peeled, peeled_kind, symbolic, name = line.split(" ", 5)
            if not symbolic:
                found.append(Ref(name, sha, _kind(kind), peeled or sha, _kind(peeled_kind or kind)))
        return found

    def stash(self) -> list[tuple[str, str]]:
        """The stashed commits and what was said of each, oldest first."""
        printed = self._git.ask("log", "-g", "--format=%H %gs", STASH, "--")
        pairs = (line.partition(" ") for line in printed.splitlines())
        return [(sha, said) for sha, _, said in pairs][::-1]

    def trees(self) -> list[Tree]:
        """The work trees, the repository's own first."""
        found: list[Tree] = []
        for block in self._git.run("worktree", "list", "--porcelain", "-z").split(b"\0\0"):
            fields = dict(_field(line) for line in block.split(b"\0") if line)
            if "worktree" in fields and "bare" not in fields:
                found.append(self._tree(fields, linked=bool(found)))
        return found

    def staged(self, tree: Tree) -> set[File]:
        """The files in the index of a work tree."""
        if not tree.index.exists():
            return set()
        env = {"GIT_INDEX_FILE": str(tree.index)}
        lines = self._git.run("ls-files", "--stage", "-z", "--full-name", ":/", env=env).split(b"\0")
        split = (line.partition(b"\t") for line in lines if line)
        return {File(os.fsdecode(name), info.decode().split(" ")[1]) for info, _, name in split}

    def checked_out(self, tree: Tree) -> Iterator[tuple[str, Path]]:
        """The files named `SKILL.md` that lie in a work tree, committed or not, with their paths in it."""
        if not Path(tree.path).is_dir():
            # Deleted by hand; git knows of it until `git worktree prune`.
            return
        env = {"GIT_INDEX_FILE": str(tree.index), "GIT_WORK_TREE": tree.path}
        listed = self._git.run(
            "-C", tree.path, "ls-files", "-z", "--cached", "--others", "--", _GLOB, env=env
        )
        for name in dict.fromkeys(listed.split(b"\0")):
            path = os.fsdecode(name)
            if path and (file := Path(tree.path) / path).is_file():
                yield path, file

    def ordered(self, commits: Iterable[str]) -> list[str]:
        """Commits and all that they come from, parents first."""
        given = _lines(commits)
        if not given:
            return []
        printed = self._git.run("rev-list", "--topo-order", "--reverse", "--stdin", data=given, timeout=SLOW)
        return printed.decode().split()

    def reached(self, shas: Iterable[str]) -> set[str]:
        """All objects that these lead to; raises `GitError` where one is missing."""
        given = _lines(shas)
        if not given:
            return set()
        form = ("--objects", "--no-object-names", "--stdin")
        return set(self._git.run("rev-list", *form, data=given, timeout=SLOW).decode().split())

    def remotes(self) -> list[str]:
        return self._git.ask("remote").splitlines()

    def obstacles(self) -> Iterator[str]:
        """Why this is no repository that can be rewritten without harm."""
        info = self._common / "objects" / "info"
        if (info / "alternates").exists():
            yield "it borrows objects from another repository: `git repack -a -d` and remove the link"
        if (self._common / "shallow").exists() or (self._common / "info" / "grafts").exists():
            yield "a part of its history is cut off: `git fetch --unshallow`"
        if self._git.ask("config", "--get", "extensions.partialClone"):
            yield "it is a partial clone"
        if any((self._common / "objects" / "pack").glob("*.keep")):
            yield "it has packs that are marked to be kept: remove their .keep files"
        if any(ref.name.startswith("refs/replace/") for ref in self.refs()):
            yield "it has replaced objects: `git replace -d` them"
        for folder in self._git_dirs():
            under_way = next((name for name in _UNDER_WAY if (folder / name).exists()), None)
            if under_way is not None:
                yield f"a merge, rebase or the like is under way ({under_way}): end it"

    def add(self, objects: Sequence[Object]) -> None:
        """Put objects into the repository, on disk when it returns."""
        if objects:
            self._git.run("index-pack", "--stdin", data=pack(objects, self.algorithm), timeout=SLOW)

    def move(self, moves: Iterable[Move]) -> None:
        """Move all refs or, where one is not where it was, none; raises `GitError` then."""
        commands: list[bytes] = []
        self._unlock()
        for move in moves:
            ref, old = os.fsencode(move.ref), move.old.encode()
            verb = b"delete %s\0" % ref if move.new is None else b"update %s\0%s\0" % (ref, move.new.encode())
            commands += [b"option no-deref\0", verb + b"%s\0" % old]
        if commands:
            self._git.run("update-ref", "-m", "a2m erase", "--stdin", "-z", data=b"".join(commands))

    def at(self, ref: str) -> str | None:
        """What a ref names now."""
        return self._git.ask("rev-parse", "--verify", "-q", ref) or None

    def forget_past(self, stash: Sequence[tuple[str, str]]) -> None:
        """Empty all reflogs but that of the stash, which becomes this; let go of git's own notes."""
        self._git.run("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all", timeout=SLOW)
        if stash and self.at(STASH) in (None, *(sha for sha, _ in stash)):
            self._git.run("update-ref", "-d", STASH)
            for sha, said in stash:
                self._git.run("update-ref", "--create-reflog", "-m", said, STASH, sha)
        for folder in self._git_dirs():
            for name in _NOTES:
                (folder / name).unlink(missing_ok=True)
            for report in folder.glob("fast_import_crash_*"):
                report.unlink(missing_ok=True)

    def prune(self, before: str) -> None:
        """Delete what nothing leads to and is not younger than a moment, a date as git reads it."""
        graphs = self._common / "objects" / "info"
        (graphs / "commit-graph").unlink(missing_ok=True)
        for graph in (graphs / "commit-graphs").glob("*"):
            graph.unlink(missing_ok=True)
        self._git.run("repack", "-q", "-A", "-d", f"--unpack-unreachable={before}", timeout=SLOW)
        self._git.run("prune", f"--expire={before}", timeout=SLOW)

    def _unlock(self) -> None:
        """Remove what a killed git left locked."""
        locks = [self._common / "packed-refs.lock", self._git_dir / "HEAD.lock"]
        for lock in (*locks, *(self._common / "refs").rglob("*.lock")):
            remove_if_stale(lock)

    def _git_dirs(self) -> list[Path]:
        """The folders of each work tree's own files."""
        return list(dict.fromkeys((self._common, self._git_dir, *(self._common / "worktrees").glob("*"))))

    def _tree(self, fields: Mapping[str, str], *, linked: bool) -> Tree:
        path = fields["worktree"]
        head = fields.get("HEAD", "")
        index = self._common / "index"
        if linked:
            index = self._linked(path) / "index"
        return Tree(path, head if head.strip("0") else None, fields.get("branch"), index, linked)

    def _linked(self, path: str) -> Path:
        folders = (self._common / "worktrees").glob("*")
        places = {(f / "gitdir").read_text().strip(): f for f in folders if (f / "gitdir").exists()}
        return places.get(f"{path}/.git", self._common / "worktrees")


def _field(line: bytes) -> tuple[str, str]:
    name, _, value = os.fsdecode(line).partition(" ")
    return name, value


def _kind(text: str) -> Kind:
    return cast("Kind", text)


def _or_none(sha: str) -> str | None:
    return sha if sha.strip("0") else None


def _lines(shas: Iterable[str]) -> bytes:
    return "".join(f"{sha}\n" for sha in shas).encode()
