"""Erasing from history: nothing that git holds has a word of it, and everything else is what it was."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft, Provenance, Record
from a2m_server.values import EVERYONE, Filter, Named, Page, Tombstone

Git = Callable[..., str]

SECRET = "the heron nests by the weir"
TEA = Draft(
    id="tea/1",
    key="kitchen/tea",
    owner="wilhelmina",
    content=f"# Tea\n\n{SECRET}\n",
    metadata={"note": SECRET},
    embedding=[1.0, 0.0],
    provenance=Provenance(source=SECRET),
)
OTHERS = [
    Draft(id=f"other-{n}", key=f"k/{n}", owner="ann", content=f"Other {n}", embedding=[0.0, 1.0 + n])
    for n in range(3)
]
WORDS = ["heron", "tea/1", "kitchen", "wilhelmina"]


def held(path: Path) -> str:
    """All that git and the files beside it hold, packed and loose, reachable or not."""
    batch = ["git", "-c", "safe.directory=*", "cat-file", "--batch-all-objects", "--batch"]
    objects = subprocess.run(batch, cwd=path, check=True, capture_output=True).stdout
    common = path / ".git" if (path / ".git").exists() else path
    files = [file for file in common.rglob("*") if file.is_file()]
    plain = [file for file in files if not {"objects", "a2m"}.intersection(file.parts)]
    return (objects + b"".join(file.read_bytes() for file in plain)).decode(errors="replace")


def checked(path: Path, git: Git) -> None:
    """Assert that the repository is whole and that nothing half-made lies in it."""
    assert "error" not in git(path, "fsck", "--full", "--strict", "--no-dangling")
    common = path / ".git" if (path / ".git").exists() else path
    assert not list((common / "objects").rglob("*tmp*"))
    assert not list(common.rglob("*.lock"))


async def records(store: ProceduralStore) -> dict[str, Record]:
    """All records whole, by id."""
    listed = [r.id for r in (await store.timeline(Page(Filter()))).records]
    return {record.id: record for record in await store.read(listed)}


async def forgotten(store: ProceduralStore) -> None:
    """Write tea among others, several times over, and forget it."""
    await store.write([OTHERS[0], TEA], EVERYONE)
    await store.write([TEA.model_copy(update={"id": "again", "content": f"{SECRET}, again"})], EVERYONE)
    await store.write(OTHERS[1:2], EVERYONE)
    await store.touch(["other-0"], "2026-01-01T00:00:00.000Z")
    await store.forget(Filter(ids=(TEA.id,)))
    await store.write(OTHERS[2:], EVERYONE)


async def test_nothing_holds_a_word_of_it_and_all_else_is_what_it_was(
    store: ProceduralStore, path: Path, git: Git
) -> None:
    await forgotten(store)
    before, files = await records(store), git(path, "rev-parse", "main^{tree}")
    assert all(word in held(path) for word in WORDS)
    erased = await store.erase([TEA.id, "absent"])
    assert dict(erased.outcomes) == {TEA.id: "erased", "absent": "absent"}
    assert (dict(erased.tiers), dict(erased.remotes)) == ({"procedural": 1}, {})
    assert [word for word in WORDS if word in held(path)] == []
    assert await records(store) == before
    assert git(path, "rev-parse", "main^{tree}") == files
    assert (await store.remnants([TEA.id])).remnants == []
    assert [g.reason for g in await store.tombstones([TEA.id])] == ["forgotten"]
    assert dict((await store.erase([TEA.id])).outcomes) == {TEA.id: "absent"}
    checked(path, git)
    subjects = git(path, "log", "--format=%s", "main").split("\n")
    assert [subject.split("-")[0] for subject in subjects[:3]] == ["Add k", "Add k", "Add k"]
    assert git(path, "log", "--format=%an", "main").split("\n")[0] == "A2M procedural memory"
    await store.close()
    await store.open()
    assert await records(store) == before
    await store.write([Draft(id="more", content="more")], EVERYONE)


async def test_what_moved_on_is_in_history_as_well(store: ProceduralStore, path: Path) -> None:
    await store.write([*OTHERS, TEA], EVERYONE)
    [record] = await store.read([TEA.id])
    await store.delete_if([Named(TEA.id, record.etag)], "moved", "semantic")
    await store.bury([Tombstone(TEA.id, "forgotten", record.seq + 10**9, TEA.owner, TEA.key)])
    assert dict((await store.erase([TEA.id])).outcomes) == {TEA.id: "erased"}
    assert "heron" not in held(path)
    assert len(await records(store)) == 3


async def test_what_is_there_is_not_erased(store: ProceduralStore, path: Path, git: Git) -> None:
    await store.write([*OTHERS, TEA], EVERYONE)
    await store.write([TEA.model_copy(update={"id": "r", "content": "newer"})], EVERYONE)
    tip = git(path, "rev-parse", "main")
    assert dict((await store.erase([TEA.id, "other-1"])).outcomes) == {TEA.id: "live", "other-1": "live"}
    assert git(path, "rev-parse", "main") == tip
    await store.forget(Filter(ids=(TEA.id,)))
    outcomes = (await store.erase([TEA.id, "other-1"])).outcomes
    assert dict(outcomes) == {TEA.id: "erased", "other-1": "live"}
    assert "heron" not in held(path)
    assert len(await records(store)) == 3


async def test_every_branch_tag_merge_and_stash_is_rewritten(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    await forgotten(store)
    git(library, "branch", "side", "HEAD~2")
    git(library, "tag", "light", "HEAD~2")
    git(library, "tag", "-a", "-m", "release", "heavy", "HEAD~2")
    git(library, "tag", "-a", "-m", "of a tag", "heavier", "heavy")
    git(library, "tag", "tree", "HEAD~2^{tree}")
    git(library, "tag", "before", "HEAD~5")
    for number in range(2):
        (library / "README.md").write_text(f"Ours, {number}.\n")
        git(library, "stash", "-q")
    worktree = library.parent / "elsewhere"
    git(library, "worktree", "add", "-q", "-b", "theirs", str(worktree), "main")
    (worktree / "notes.txt").write_text("mine\n")
    git(worktree, "add", "-A")
    git(worktree, "commit", "-q", "-m", "Notes")
    git(library, "merge", "-q", "--no-ff", "-m", "Merge theirs", "theirs")
    (library / "logo.txt").write_text("untracked\n")
    before, names = await records(store), git(library, "for-each-ref", "--format=%(refname)")
    untouched = git(library, "rev-parse", "before")
    trees = {ref: git(library, "rev-parse", f"{ref}^{{tree}}") for ref in ("main", "theirs", "before")}
    assert dict((await store.erase([TEA.id])).outcomes) == {TEA.id: "erased"}
    assert [word for word in WORDS if word in held(library)] == []
    assert await records(store) == before
    assert git(library, "for-each-ref", "--format=%(refname)") == names
    assert {ref: git(library, "rev-parse", f"{ref}^{{tree}}") for ref in trees} == trees
    assert git(library, "rev-parse", "before") == untouched
    assert git(library, "log", "-1", "--format=%s %P", "main").count(" ") == 3
    assert git(library, "cat-file", "-t", "heavier") == "tag\n"
    assert "release" in git(library, "cat-file", "-p", "heavy")
    assert git(library, "status", "--porcelain") == "?? logo.txt\n"
    assert git(worktree, "status", "--porcelain") == ""
    assert git(library, "stash", "list").count("\n") == 2
    for number in (1, 0):
        git(library, "stash", "pop", "-q")
        assert (library / "README.md").read_text() == f"Ours, {number}.\n"
        git(library, "checkout", "-q", "--", "README.md")
    checked(library, git)


async def test_a_persons_skill_goes_and_what_lies_beside_it_stays(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    skill = "skill/skills/skill-07"
    await store.write([Draft(id="r", content=SECRET, key="skills/skill-07")], EVERYONE)
    await store.forget(Filter(ids=(skill,)))
    before = await records(store)
    assert dict((await store.erase([skill])).outcomes) == {skill: "erased"}
    assert await records(store) == before
    assert len(before) == 19
    assert "number 7\n" not in held(library)
    assert (library / "skills/skill-07/scripts/run.sh").exists()
    assert git(library, "log", "--format=%s").splitlines() == ["Our skills"]
    assert git(library, "status", "--porcelain") == ""
    checked(library, git)


async def test_words_of_a_person_stay_but_for_the_names_of_our_folders(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    await store.write([TEA], EVERYONE)
    [folder] = {name.partition("/")[0] for name in git(library, "ls-files", "kitchen*").splitlines()}
    git(library, "commit", "-q", "--allow-empty", "-m", f'Revert "Add {folder}"\n\nIt was cold.')
    await store.forget(Filter(ids=(TEA.id,)))
    await store.erase([TEA.id])
    said = git(library, "log", "--format=%B")
    assert 'Revert "Add (erased)"\n\nIt was cold.' in said
    assert [word for word in WORDS if word in held(library)] == []


async def test_a_signature_is_lost_where_the_commit_changes_and_kept_where_it_does_not(
    store: ProceduralStore, path: Path, git: Git
) -> None:
    def sign(commit: str) -> str:
        raw = git(path, "cat-file", "commit", commit)
        head, _, said = raw.partition("\n\n")
        signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n AAAA\n -----END PGP SIGNATURE-----"
        made = path.parent / "commit"
        made.write_text(f"{head}\n{signature}\n\n{said}")
        return git(path, "hash-object", "-t", "commit", "-w", str(made)).strip()

    await store.write(OTHERS[:1], EVERYONE)
    first = sign("main")
    git(path, "update-ref", "refs/heads/main", first)
    await store.write([TEA], EVERYONE)
    await store.write(OTHERS[1:], EVERYONE)
    git(path, "update-ref", "refs/heads/main", sign("main"))
    await store.forget(Filter(ids=(TEA.id,)))
    await store.erase([TEA.id])
    assert git(path, "rev-list", "--max-parents=0", "main").strip() == first
    assert held(path).count("BEGIN PGP SIGNATURE") == 1
    checked(path, git)


async def test_who_may_hold_the_old_history_is_named(
    store: ProceduralStore, path: Path, git: Git, tmp_path: Path
) -> None:
    await forgotten(store)
    git(tmp_path, "clone", "-q", "--mirror", str(path), "mirror")
    git(path, "remote", "add", "origin", str(tmp_path / "mirror"))
    git(path, "fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*")
    erased = await store.erase([TEA.id])
    assert {tier: list(names) for tier, names in erased.remotes.items()} == {"procedural": ["origin"]}
    assert "heron" not in held(path)
    assert "heron" in held(tmp_path / "mirror")
    assert git(path, "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    git(path, "fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*")
    assert {r.place for r in (await store.remnants([TEA.id])).remnants} == {"other refs"}


async def test_a_repository_with_longer_names_of_objects_is_rewritten_too(path: Path, git: Git) -> None:
    form = ("--bare", "--object-format=sha256", "--initial-branch=main")
    git(path.parent, "init", "-q", *form, path.name)
    store = ProceduralStore(Place(path))
    await store.open()
    await forgotten(store)
    before = await records(store)
    assert dict((await store.erase([TEA.id])).outcomes) == {TEA.id: "erased"}
    assert await records(store) == before
    assert [word for word in WORDS if word in held(path)] == []
    checked(path, git)
    await store.close()


@pytest.mark.parametrize("hostile", ["a", "\u202e", 'it\'s: [a] "b"', "é", "-rf", "x" * 512, "# no", "null"])
async def test_ids_of_any_kind_are_found_and_erased(store: ProceduralStore, path: Path, hostile: str) -> None:
    await store.write([*OTHERS, TEA.model_copy(update={"id": hostile})], EVERYONE)
    await store.forget(Filter(ids=(hostile,)))
    assert {r.place for r in (await store.remnants([hostile])).remnants} == {"history"}
    assert dict((await store.erase([hostile])).outcomes) == {hostile: "erased"}
    assert "heron" not in held(path)
    assert len(await records(store)) == 3


Spoil = Callable[[Path, Git], object]


def merging(path: Path, git: Git) -> None:
    (path / ".git" / "MERGE_HEAD").write_text(git(path, "rev-parse", "HEAD"))


def borrowing(path: Path, git: Git) -> None:
    git(path.parent, "clone", "-q", "--bare", str(path), "lender")
    (path / ".git/objects/info/alternates").write_text(str(path.parent / "lender/objects") + "\n")


def checked_out_elsewhere(path: Path, git: Git) -> None:
    git(path, "worktree", "add", "-q", "-b", "old", str(path.parent / "old"), "HEAD~2")


def detached_elsewhere(path: Path, git: Git) -> None:
    git(path, "worktree", "add", "-q", "--detach", str(path.parent / "old"), "main")


def packed_for_good(path: Path, git: Git) -> None:
    git(path, "repack", "-q", "-a", "-d")
    [pack] = (path / ".git/objects/pack").glob("*.pack")
    pack.with_suffix(".keep").touch()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (merging, "MERGE_HEAD"),
        (borrowing, "borrows objects"),
        (checked_out_elsewhere, "refs/heads/old has it checked out"),
        (detached_elsewhere, "switch it to a branch"),
        (packed_for_good, "marked to be kept"),
    ],
)
async def test_where_it_would_do_harm_nothing_is_changed(
    library: Path, store: ProceduralStore, git: Git, spoil: Spoil, why: str
) -> None:
    await forgotten(store)
    spoil(library, git)
    before = git(library, "for-each-ref"), git(library, "count-objects", "-v")
    with pytest.raises(A2MError, match="history was not rewritten") as refused:
        await store.erase([TEA.id])
    assert why in refused.value.message
    assert str(library.parent) not in refused.value.message
    assert (git(library, "for-each-ref"), git(library, "count-objects", "-v")) == before
    await store.write([Draft(id="more", content="more")], EVERYONE)


async def test_a_work_tree_that_was_deleted_by_hand_keeps_nobody_from_looking_or_erasing(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    await forgotten(store)
    worktree = library.parent / "elsewhere"
    git(library, "worktree", "add", "-q", "-b", "theirs", str(worktree), "main")
    shutil.rmtree(worktree)
    assert [remnant.place for remnant in (await store.remnants([TEA.id])).remnants] == ["history"]
    assert dict((await store.erase([TEA.id])).outcomes) == {TEA.id: "erased"}
    assert (await store.remnants([TEA.id])).remnants == []
