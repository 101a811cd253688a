import json
from collections.abc import Callable
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE, Filter, Named, Page, Search

Git = Callable[..., str]


async def contents(store: ProceduralStore) -> list[str]:
    return [r.content for r in (await store.timeline(Page(Filter()))).records]


async def test_a_repository_of_skills_mounts_as_it_is(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    assert (await store.counts(EVERYONE)) == {"procedural": 20}
    record = (await store.fetch("skills/skill-07", EVERYONE, vectors=False)).record
    assert record is not None
    assert record.content == "\n# Thing 7\n\nTurn the handle.\n"
    assert record.metadata == {"name": "skill-07", "description": "Does the thing number 7", "license": "MIT"}
    assert record.created_at == "2024-02-29T12:00:00.000Z"
    found = await store.search(Search(Filter(), 3, text="number 7"))
    assert found.records[0].id == record.id
    assert git(library, "status", "--porcelain") == ""
    assert git(library, "log", "--format=%s") == "Our skills\n"


async def test_ids_and_times_are_the_same_in_every_clone(library: Path, tmp_path: Path, git: Git) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(library), "other")
    seen: list[object] = []
    for folder in (library, tmp_path / "other"):
        store = ProceduralStore(Place(folder))
        await store.open()
        seen.append([(r.id, r.seq, r.key) for r in (await store.timeline(Page(Filter()))).records])
        await store.close()
    assert seen[0] == seen[1]


async def test_a_persons_commit_shows_up_without_a_restart(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    file = library / "skills" / "skill-03" / "SKILL.md"
    before = (await store.fetch("skills/skill-03", EVERYONE, vectors=False)).record
    file.write_text("---\nname: skill-03\ndescription: Now better\n---\nBetter.\n")
    unseen = (await store.fetch("skills/skill-03", EVERYONE, vectors=False)).record
    assert unseen == before
    git(library, "commit", "-q", "-am", "Better")
    after = (await store.fetch("skills/skill-03", EVERYONE, vectors=False)).record
    assert before is not None
    assert after is not None
    assert (after.id, after.seq, after.content) == (before.id, before.seq, "Better.\n")
    assert after.etag != before.etag
    git(library, "reset", "-q", "--hard", "HEAD~1")
    assert (await store.fetch("skills/skill-03", EVERYONE, vectors=False)).record == before
    git(library, "pack-refs", "--all")
    git(library, "gc", "-q")
    git(library, "rm", "-q", "-r", "skills/skill-03")
    git(library, "commit", "-q", "-m", "Gone")
    assert (await store.fetch("skills/skill-03", EVERYONE, vectors=False)).record is None


async def test_a_rewrite_and_a_forget_leave_other_files_alone(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    draft = Draft(id="new", content="Turn it twice.\n", key="skills/skill-05", role="tool")
    [written] = await store.write([draft], EVERYONE)
    assert (written.id, written.outcome, written.revision) == ("skill/skills/skill-05", "replaced", 1)
    text = (library / "skills" / "skill-05" / "SKILL.md").read_text()
    assert text.startswith(
        '---\nname: skill-05\ndescription: "Does the thing number 5"\nlicense: "MIT"\na2m:\n'
    )
    assert text.endswith("\n---\nTurn it twice.\n")
    assert git(library, "diff", "--name-only", "HEAD~1") == "skills/skill-05/SKILL.md\n"
    assert (await store.forget(Filter(ids=(written.id,)))).ids == [written.id]
    assert sorted(p.name for p in (library / "skills" / "skill-05").iterdir()) == ["logo.png", "scripts"]
    assert git(library, "status", "--porcelain") == ""


async def test_uncommitted_edits_of_a_person_are_never_destroyed(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    edited = library / "skills" / "skill-05" / "SKILL.md"
    staged = library / "skills" / "skill-06" / "SKILL.md"
    untracked = library / "notes.txt"
    for file in (edited, staged, untracked):
        file.write_text("in the middle of it")
    git(library, "add", "skills/skill-06")
    for number in (5, 6):
        with pytest.raises(A2MError, match="uncommitted") as refused:
            await store.write([Draft(id="n", content="ours", key=f"skills/skill-0{number}")], EVERYONE)
        assert refused.value.retryable
    await store.write([Draft(id="m", content="ours", key="skills/skill-07")], EVERYONE)
    assert {f.read_text() for f in (edited, staged, untracked)} == {"in the middle of it"}
    status = git(library, "status", "--porcelain")
    assert status.splitlines() == [
        " M skills/skill-05/SKILL.md",
        "M  skills/skill-06/SKILL.md",
        "?? notes.txt",
    ]
    git(library, "commit", "-q", "-am", "Done")
    kept = (await store.fetch("skills/skill-07", EVERYONE, vectors=False)).record
    assert kept is not None
    assert kept.content == "ours"
    [written] = await store.write([Draft(id="n", content="ours", key="skills/skill-05")], EVERYONE)
    assert written.outcome == "replaced"


async def test_files_of_another_branch_are_not_touched(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    git(library, "switch", "-q", "-c", "mine")
    await store.write([Draft(id="n", content="ours", key="skills/skill-05")], EVERYONE)
    assert git(library, "status", "--porcelain") == ""
    assert "ours" not in (library / "skills" / "skill-05" / "SKILL.md").read_text()
    git(library, "switch", "-q", "main")
    assert "ours" in (library / "skills" / "skill-05" / "SKILL.md").read_text()


async def test_what_is_no_skill_is_left_out(library: Path, store: ProceduralStore, git: Git) -> None:
    for name in ("binary", "link", "odd\nname", "b\udcff"):
        (library / name).mkdir()
    (library / "binary" / "SKILL.md").write_bytes(b"\xff\x00")
    (library / "link" / "SKILL.md").symlink_to("/etc/passwd")
    (library / "odd\nname" / "SKILL.md").write_text("odd")
    (library / "b\udcff" / "SKILL.md").write_text("not UTF-8")
    (library / "SKILL.md").write_text("at the root")
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "Odd ones")
    records = (await store.timeline(Page(Filter()))).records
    found = [r for r in records if "Thing" not in r.content]
    assert {r.content for r in found} == {"odd", "not UTF-8", "at the root"}
    assert {r.key for r in found} == {"odd\nname", None, "."}
    assert json.dumps([r.id for r in found]).isascii()


async def test_a_copy_of_a_folder_is_a_skill_of_its_own(
    store: ProceduralStore, path: Path, tmp_path: Path, git: Git
) -> None:
    await store.write([Draft(id="i", content="one", key="k")], EVERYONE)
    git(tmp_path, "clone", "-q", str(path), "clone")
    clone = tmp_path / "clone"
    [folder] = [file.parent for file in skills(clone)]
    for name in ("aaa", "zzz"):
        (clone / name).mkdir()
        (clone / name / "SKILL.md").write_bytes((folder / "SKILL.md").read_bytes())
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "Copies")
    git(clone, "push", "-q")
    found = (await store.timeline(Page(Filter()))).records
    assert {(r.id, r.key) for r in found} == {("i", "k"), ("skill/aaa", "aaa"), ("skill/zzz", "zzz")}
    await store.forget(Filter(ids=("skill/aaa",)))
    assert {r.key for r in (await store.timeline(Page(Filter()))).records} == {"k", "zzz"}
    await store.write([Draft(id="j", content="two", key="zzz")], EVERYONE)
    assert {(r.id, r.content) for r in await store.read(["i", "skill/zzz"])} == {
        ("i", "one"),
        ("skill/zzz", "two"),
    }


async def test_a_reset_brings_neither_forgotten_nor_moved_records_back(
    store: ProceduralStore, path: Path, git: Git
) -> None:
    drafts = [Draft(id=name, content=name) for name in ("kept", "forgotten", "moved")]
    written = await store.write(drafts, EVERYONE)
    full = git(path, "rev-parse", "HEAD").strip()
    await store.forget(Filter(ids=("forgotten",)))
    await store.delete_if([Named("moved", written[2].etag)], "moved", "semantic")
    git(path, "update-ref", "refs/heads/main", full)
    assert await contents(store) == ["kept"]
    [again] = await store.write([Draft(id="forgotten", content="anew")], EVERYONE)
    assert again.outcome == "created"
    assert await contents(store) == ["kept", "anew"]


async def test_a_vector_is_left_behind_when_a_person_rewrites_its_content(
    store: ProceduralStore, path: Path, tmp_path: Path, git: Git
) -> None:
    await store.write([Draft(id="i", content="one", embedding=[1.0, 0.0], salience=3.0)], EVERYONE)
    git(tmp_path, "clone", "-q", str(path), "clone")
    clone = tmp_path / "clone"
    [file] = skills(clone)
    for said, vector in (("description: hand-made", [1.0, 0.0]), ("---\ntwo", None)):
        old = "description: one" if "description" in said else "---\none"
        file.write_text(file.read_text().replace(old, said))
        git(clone, "commit", "-q", "-am", "By hand")
        git(clone, "push", "-q")
        [record] = await store.read(["i"])
        assert (record.embedding, record.salience) == (vector, 3.0)
    assert record.content == "two"


async def test_a_date_in_the_future_does_not_carry_later_writes_along(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    (library / "late").mkdir()
    (library / "late" / "SKILL.md").write_text("late")
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "Late", GIT_AUTHOR_DATE="2099-01-01T00:00:00Z")
    await store.write([Draft(id="now", content="now")], EVERYONE)
    [record] = await store.read(["now"])
    assert record.created_at < "2099"


@pytest.mark.parametrize("form", ["sha1", "sha256"])
async def test_a_checked_out_repository_without_a_commit_is_begun(path: Path, git: Git, form: str) -> None:
    make(path)
    git(path, "init", "-q", f"--object-format={form}", "--initial-branch=trunk")
    store = ProceduralStore(Place(path))
    await store.open()
    assert await contents(store) == []
    for name in ("a", "b"):
        await store.write([Draft(id=name, content=name)], EVERYONE)
    assert await contents(store) == ["a", "b"]
    await store.forget(Filter(ids=("a",)))
    await store.close()
    assert git(path, "status", "--porcelain") == ""
    assert len(skills(path)) == 1
    assert (path / ".gitattributes").read_text() == "SKILL.md -text\n"


async def test_a_linked_work_tree_mounts_on_its_own_branch(library: Path, tmp_path: Path, git: Git) -> None:
    linked = tmp_path / "linked"
    git(library, "worktree", "add", "-q", "-b", "side", str(linked))
    store = ProceduralStore(Place(linked))
    await store.open()
    await store.write([Draft(id="i", content="x", key="skills/skill-01")], EVERYONE)
    await store.close()
    assert git(linked, "log", "-1", "--format=%s", "side") == "Rewrite skills/skill-01\n"
    assert git(linked, "status", "--porcelain") == git(library, "status", "--porcelain") == ""
    assert (linked / "skills" / "skill-01" / "SKILL.md").read_text().endswith("---\nx")


async def test_checked_out_files_catch_up_after_a_kill(library: Path, git: Git) -> None:
    def observe(step: str) -> None:
        if step == "advanced":
            raise KeyboardInterrupt

    store = ProceduralStore(Place(library), observe=observe)
    await store.open()
    with pytest.raises(KeyboardInterrupt):
        await store.write([Draft(id="i", content="x", key="skills/skill-01")], EVERYONE)
    await store.close()
    assert git(library, "status", "--porcelain") != ""
    store = ProceduralStore(Place(library))
    await store.open()
    await store.close()
    assert git(library, "status", "--porcelain") == ""
    assert (library / "skills" / "skill-01" / "SKILL.md").read_text().endswith("---\nx")


def skills(folder: Path) -> list[Path]:
    return list(folder.glob("*/SKILL.md"))


def make(folder: Path) -> None:
    folder.mkdir()


async def test_new_skills_go_where_the_settings_say(library: Path) -> None:
    store = ProceduralStore(Place(library, folder="skills"))
    await store.open()
    await store.write([Draft(id="i", content="x", key="a/b")], EVERYONE)
    await store.close()
    assert len(list((library / "skills").glob("a-b-*/SKILL.md"))) == 1


async def test_a_folder_inside_another_repository_is_not_that_repository(library: Path, git: Git) -> None:
    inner = library / "inner"
    inner.mkdir()
    store = ProceduralStore(Place(inner))
    await store.open()
    await store.write([Draft(id="i", content="x")], EVERYONE)
    await store.close()
    assert git(library, "log", "--format=%s") == "Our skills\n"


async def test_a_place_that_cannot_be_mounted_is_refused_with_the_reason(
    library: Path, tmp_path: Path, git: Git
) -> None:
    git(library, "checkout", "-q", "--detach")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "plain").touch()
    for place, why in (
        (Place(library), "A2M_PROCEDURAL_BRANCH"),
        (Place(library, branch="a..b"), "check-ref-format"),
        (Place(tmp_path / "full"), "not a git repository"),
        (Place(tmp_path / "plain"), "not a git repository"),
    ):
        store = ProceduralStore(place)
        with pytest.raises(A2MError, match=why):
            await store.open()
    store = ProceduralStore(Place(library, branch="main"))
    await store.open()
    assert await store.counts(EVERYONE) == {"procedural": 20}
    await store.close()
