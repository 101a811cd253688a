"""Erasing ids from history: every ref goes to a history that never held them, then the old one is deleted.

The new history is complete and on disk before any ref moves. What is to move is noted in the journal, then
all refs move in one transaction of git's, then what nothing leads to is deleted. A kill before the note
leaves the old history; after it, whoever opens the repository next goes on to the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from a2m_procedural.archive import Archive, Move, Ref, Tree
from a2m_procedural.history import LOOSE, History, Words, look
from a2m_procedural.journal import Journal
from a2m_procedural.plumbing import GitError
from a2m_procedural.repository import Repository
from a2m_procedural.rewriting import File, Rewriter
from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_server.values import Erasure

ATTEMPTS = 5

log = logging.getLogger(__name__)

_REMOTE = "refs/remotes/"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is left to do once the new history is there; `before` is a date as git reads it."""

    moves: list[Move]
    stash: list[tuple[str, str]]
    before: str


def end_left(repository: Repository, journal: Journal, observe: Callable[[str], None]) -> None:
    """Delete the old history of an erasure that was killed; what cannot be done now is left for later."""
    if not journal.erasures():
        return
    try:
        Eraser(repository, journal, observe).end()
    except GitError as error:
        log.warning("an erasure was not ended: %s; erase the same ids again", error)


class Eraser:
    """Works with the write lock held. `observe` hears of each step."""

    def __init__(self, repository: Repository, journal: Journal, observe: Callable[[str], None]) -> None:
        self._repository = repository
        self._archive = Archive(repository)
        self._journal = journal
        self._observe = observe

    @property
    def remotes(self) -> tuple[str, ...]:
        """The repositories by name that this one knows, and that may hold the old history."""
        return tuple(self._archive.remotes())

    def erase(self, ids: Sequence[str]) -> dict[str, Erasure]:
        """Erase what is not at the tip of the branch; raises `A2MError` where that would do harm."""
        outcomes: dict[str, Erasure] = dict.fromkeys(ids, "absent")
        before = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime())
        for _ in range(ATTEMPTS):
            history = look(self._archive, ids)
            held = {record_id for record_id, files in history.files.items() if files}
            tip = self._tip()
            live = {record_id for record_id in held if history.files[record_id] & tip}
            outcomes |= dict.fromkeys(live, "live")
            if not held - live:
                return outcomes
            outcomes |= dict.fromkeys(held - live, "erased")
            self._try(self._plan(history, held - live, before))
            # What somebody's git wrote again meanwhile is younger, and goes at the second attempt.
            before = "now"
        raise unavailable("the skills repository", "what is to be erased is brought back by another git")

    def resume(self) -> None:
        """Move the refs that a killed erasure left where they were."""
        for _, text in self._journal.erasures():
            self._forward(_PLAN.validate_json(text))

    def end(self) -> None:
        """Do all that a killed erasure left to be done."""
        for number, text in self._journal.erasures():
            plan = _PLAN.validate_json(text)
            self._forward(plan)
            self._clear(plan)
            self._journal.end_erasure(number)

    def _try(self, plan: Plan) -> None:
        number = self._journal.plan_erasure(_PLAN.dump_json(plan).decode())
        self._observe("planned")
        try:
            self._archive.move(plan.moves)
        except GitError:
            if all(self._archive.at(move.ref) == move.old for move in plan.moves):
                self._journal.end_erasure(number)
                raise
            # A person's git moved one of them: nothing has happened, and all is planned anew.
            self._journal.end_erasure(number)
            return
        self._observe("moved")
        self._clear(plan)
        self._observe("pruned")
        self._journal.end_erasure(number)
        self._journal.checkpoint()

    def _forward(self, plan: Plan) -> None:
        self._archive.move(move for move in plan.moves if self._archive.at(move.ref) == move.old)

    def _clear(self, plan: Plan) -> None:
        """Delete the old history, in an order that can be begun again."""
        self._archive.forget_past(plan.stash)
        self._observe("unlogged")
        self._archive.prune(plan.before)

    def _tip(self) -> set[File]:
        head = self._repository.head()
        blobs = self._repository.skills(head)[0] if head is not None else []
        return {File(blob.path, blob.sha) for blob in blobs}

    def _plan(self, history: History, ids: Collection[str], before: str) -> Plan:
        """Write the new history and say what is to move there; nothing that anybody sees has changed."""
        archive = self._archive
        self._check()
        files = frozenset(file for record_id in ids for file in history.files[record_id])
        words = Words(archive, history, ids, files)
        placed = [file for file in files if file.path != LOOSE]
        rewriter = Rewriter(placed, archive.read, words, archive.algorithm)
        refs, stash, trees = archive.refs(), archive.stash(), archive.trees()
        heads = [tree.head for tree in trees if tree.head is not None]
        tips = [ref.peeled for ref in refs if ref.peeled_kind == "commit"]
        rewriter.rewrite(archive.ordered([*heads, *tips, *(sha for sha, _ in stash)]))
        blobs = {file.blob for file in files}
        moves = [Move(ref.name, ref.sha, self._new(ref, rewriter, blobs)) for ref in refs]
        moves += [move for tree in trees for move in self._moves_of(tree, rewriter, files)]
        moves = [move for move in moves if move.new != move.old]
        archive.add([*rewriter.made.values()])
        # Nothing moves to a history that is not whole.
        archive.reached(move.new for move in moves if move.new is not None)
        self._observe("packed")
        said = [(rewriter.commits[sha], words.cleared(text.encode()).decode()) for sha, text in stash]
        return Plan(moves, said, before)

    def _check(self) -> None:
        obstacle = next(self._archive.obstacles(), None)
        if self._journal.unfollowed() is not None:
            obstacle = "its checked-out files are behind: commit or drop the changes in them"
        if obstacle is not None:
            raise _refused(obstacle)

    def _moves_of(self, tree: Tree, rewriter: Rewriter, files: frozenset[File]) -> Iterator[Move]:
        """The move of a detached HEAD; raises where the files of a work tree would have to change."""
        if tree.head is None:
            return
        where = f"the work tree of {tree.branch or 'a detached HEAD'}"
        new = rewriter.commits[tree.head]
        if rewriter.tree_of(new) != rewriter.tree_of(tree.head):
            raise _refused(f"{where} has it checked out: remove it there and commit")
        if files & self._archive.staged(tree):
            raise _refused(f"{where} has it in its index: unstage it")
        if tree.branch is None and tree.linked and new != tree.head:
            raise _refused(f"{where} is at a commit that would go: switch it to a branch")
        if tree.branch is None:
            yield Move("HEAD", tree.head, new)

    def _new(self, ref: Ref, rewriter: Rewriter, blobs: set[str]) -> str | None:
        """What a ref is to name; what is said of another repository, and is no longer so, goes."""
        new = self._successor(ref.sha, ref.kind, rewriter, blobs)
        return None if new != ref.sha and ref.name.startswith(_REMOTE) else new

    def _successor(self, sha: str, kind: str, rewriter: Rewriter, blobs: set[str]) -> str | None:
        match kind:
            case "commit":
                return rewriter.commits[sha]
            case "tree":
                return rewriter.tree(sha)
            case "blob":
                return None if sha in blobs else sha
            case _:
                data = self._archive.read([sha])[sha].data
                lines = data.split(b"\n", 2)
                target, target_kind = (line.partition(b" ")[2].decode() for line in lines[:2])
                new = self._successor(target, target_kind, rewriter, blobs)
                if new == target:
                    return sha
                return None if new is None else rewriter.tag(data, new)


def _refused(why: str) -> A2MError:
    return A2MError(Code.INTERNAL, f"history was not rewritten, because of the skills repository: {why}")


_PLAN = TypeAdapter(Plan)
