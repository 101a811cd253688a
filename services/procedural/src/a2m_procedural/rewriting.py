"""A history without some files: new trees, commits and tags in the place of those that hold them.

Nothing else of a commit changes but its parents and, where they say something of such a file, its words. Of
what changes, signatures are lost. A commit that did nothing else is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from a2m_procedural.pack import Object, entries, name_of

Read = Callable[[Iterable[str]], Mapping[str, Object]]
Words = Callable[[str, bytes], bytes]

_SIGNATURES = (b"gpgsig ", b"gpgsig-sha256 ", b"mergetag ")
_SIGNED = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class File:
    """A blob at a path, somewhere in history."""

    path: str
    blob: str


class Rewriter:
    """Rewrites without `files`. `read` gives objects, `words` a commit's message as it is to be.

    Afterwards `commits` has for each old commit the one that takes its place, often itself, and `made` all
    new objects by name.
    """

    def __init__(self, files: Collection[File], read: Read, words: Words, algorithm: str) -> None:
        self._read = read
        self._words = words
        self._algorithm = algorithm
        self._files = {(os.fsencode(file.path), file.blob) for file in files}
        self._folders = {b"", *(folder for path, _ in self._files for folder in _folders(path))}
        self._trees: dict[str, bytes] = {}
        self._filtered: dict[tuple[str, bytes], str | None] = {}
        self._tree_of: dict[str, str] = {}
        self.commits: dict[str, str] = {}
        self.made: dict[str, Object] = {}

    def rewrite(self, commits: Iterable[str]) -> None:
        """Rewrite commits, of which each comes after its parents."""
        ordered = list(commits)
        raw = self._read(ordered)
        parsed = {sha: _Commit.parse(raw[sha].data) for sha in ordered}
        self._load({commit.tree for commit in parsed.values()})
        self._tree_of |= {sha: commit.tree for sha, commit in parsed.items()}
        for sha, commit in parsed.items():
            self.commits[sha] = self._rewritten(sha, commit)

    def tree(self, sha: str) -> str:
        """A root tree without the files."""
        self._load({sha})
        return self._filter(sha, b"") or sha

    def tag(self, data: bytes, target: str) -> str:
        """An annotated tag of another object; its signature was one of the old object."""
        head, _, message = data.partition(b"\n\n")
        lines = [line for line in _headers(head) if not line.startswith(_SIGNATURES)]
        lines[0] = b"object " + target.encode()
        words = message.partition(_SIGNED)[0]
        return self._make(Object("tag", b"\n".join(lines) + b"\n\n" + words))

    def tree_of(self, commit: str) -> str:
        """The tree of an old or new commit."""
        return self._tree_of[commit]

    def _rewritten(self, sha: str, commit: _Commit) -> str:
        tree = self._filter(commit.tree, b"")
        assert tree is not None, "a root stays, be it empty"  # noqa: S101 our own promise
        parents = list(dict.fromkeys(self.commits[parent] for parent in commit.parents))
        message = self._words(sha, commit.message)
        if (tree, parents, message) == (commit.tree, commit.parents, commit.message):
            return sha
        if len(commit.parents) == 1 and self._is_void(commit, tree, parents[0]):
            return parents[0]
        made = self._make(Object("commit", commit.raw(tree, parents, message)))
        self._tree_of[made] = tree
        return made

    def _is_void(self, commit: _Commit, tree: str, parent: str) -> bool:
        """Whether a commit changes nothing any more; one that never did is kept."""
        return tree == self._tree_of[parent] and commit.tree != self._tree_of[commit.parents[0]]

    def _filter(self, sha: str, folder: bytes) -> str | None:
        """A tree without the files, or None when nothing is left of it."""
        if (sha, folder) not in self._filtered:
            self._filtered[sha, folder] = self._without(sha, folder)
        return self._filtered[sha, folder]

    def _without(self, sha: str, folder: bytes) -> str | None:
        kept: list[bytes] = []
        for entry in entries(self._trees[sha], self._algorithm):
            path = folder + entry.name
            if entry.is_folder and path + b"/" in self._folders:
                inner = self._filter(entry.sha, path + b"/")
                if inner == entry.sha:
                    kept.append(entry.raw())
                elif inner is not None:
                    kept.append(b"%s %s\0%s" % (entry.mode, entry.name, bytes.fromhex(inner)))
            elif (path, entry.sha) not in self._files:
                kept.append(entry.raw())
        data = b"".join(kept)
        if data == self._trees[sha]:
            return sha
        return self._make(Object("tree", data)) if data or not folder else None

    def _load(self, roots: Collection[str]) -> None:
        """Read root trees and those in them that may hold a file, a level at a time."""
        level = {(sha, b"") for sha in roots}
        seen: set[tuple[str, bytes]] = set()
        while level:
            seen |= level
            wanted = {sha for sha, _ in level} - self._trees.keys()
            self._trees |= {sha: found.data for sha, found in self._read(wanted).items()}
            level = {
                (entry.sha, path + b"/")
                for sha, folder in level
                for entry in entries(self._trees[sha], self._algorithm)
                if entry.is_folder and (path := folder + entry.name) + b"/" in self._folders
            } - seen

    def _make(self, made: Object) -> str:
        sha = name_of(made, self._algorithm)
        self.made[sha] = made
        return sha


@dataclass(frozen=True, slots=True)
class _Commit:
    tree: str
    parents: list[str]
    rest: list[bytes]
    message: bytes

    @classmethod
    def parse(cls, data: bytes) -> _Commit:
        head, _, message = data.partition(b"\n\n")
        first, *lines = _headers(head)
        parents = [line[7:].decode() for line in lines if line.startswith(b"parent ")]
        rest = [line for line in lines if not line.startswith((b"parent ", *_SIGNATURES))]
        return cls(first[5:].decode(), parents, rest, message)

    def raw(self, tree: str, parents: Iterable[str], message: bytes) -> bytes:
        lines = [b"tree " + tree.encode(), *(b"parent " + parent.encode() for parent in parents), *self.rest]
        return b"\n".join(lines) + b"\n\n" + message


def _headers(head: bytes) -> list[bytes]:
    """Header lines, each with the lines that go on with it."""
    lines: list[bytes] = []
    for line in head.split(b"\n"):
        if line.startswith(b" ") and lines:
            lines[-1] += b"\n" + line
        else:
            lines.append(line)
    return lines


def _folders(path: bytes) -> Iterable[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path + b"/"
