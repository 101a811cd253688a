"""What a forget leaves in a repository, and that each place in which something may be left is looked at."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from a2m_procedural.store import ProceduralStore
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE, Filter, Page, Tombstone

Git = Callable[..., str]


async def places(store: ProceduralStore, record_id: str) -> tuple[set[str], set[str]]:
    """Where something of an id is, and what history keeps of it apart."""
    found = (await store.remnants([record_id])).remnants
    return {r.place for r in found if not r.history}, {r.place for r in found if r.history}


async def ids(store: ProceduralStore) -> list[str]:
    return [r.id for r in (await store.timeline(Page(Filter()))).records]


def copied(library: Path) -> Path:
    """A person's copy of the one skill that has its folder at the root."""
    [file] = library.glob("*/SKILL.md")
    copy = library / "mine"
    copy.mkdir()
    (copy / "SKILL.md").write_bytes(file.read_bytes())
    return copy


async def test_history_is_told_apart_from_what_is_left(store: ProceduralStore) -> None:
    await store.write([Draft(id="tea", content="Pour.", embedding=[1.0, 0.0])], EVERYONE)
    assert await places(store, "tea") == ({"HEAD", "cache", "states"}, {"history"})
    receipt = await store.forget(Filter(ids=("tea",)))
    assert dict(receipt.history) == {"procedural": 1}
    assert await places(store, "tea") == (set(), {"history"})
    assert await places(store, "te") == (set(), set())


async def test_a_persons_skill_is_found_by_where_it_is(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    skill = "skill/skills/skill-03"
    assert await places(store, skill) == ({"HEAD", "cache", "index", "work tree"}, {"history"})
    await store.forget(Filter(ids=(skill,)))
    assert await places(store, skill) == (set(), {"history"})
    git(library, "branch", "old", "HEAD~1")
    assert await places(store, skill) == (set(), {"history"})
    (library / "skills/skill-03/SKILL.md").write_text("Once more.")
    assert (await places(store, skill))[0] == {"work tree"}
    git(library, "add", "-A")
    assert (await places(store, skill))[0] == {"work tree", "index"}


async def test_a_branch_and_what_nothing_leads_to_are_history_too(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    await store.write([Draft(id="tea", content="Pour.")], EVERYONE)
    git(library, "branch", "-q", "side")
    git(library, "reset", "-q", "--hard", "HEAD~1")
    assert await places(store, "tea") == ({"states"}, {"other refs"})
    git(library, "branch", "-q", "-D", "side")
    assert (await places(store, "tea"))[1] == {"unreachable objects"}


async def test_a_copy_of_a_forgotten_skill_goes_with_it(
    library: Path, store: ProceduralStore, git: Git
) -> None:
    await store.write([Draft(id="tea", content="Pour.")], EVERYONE)
    copy = copied(library)
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "A copy")
    assert {"tea", "skill/mine"} <= set(await ids(store))
    await store.forget(Filter(ids=("tea",)))
    assert not {"tea", "skill/mine"} & set(await ids(store))
    assert await places(store, "tea") == (set(), {"history"})
    assert await places(store, "skill/mine") == (set(), {"history"})
    assert not copy.exists()


@pytest.mark.parametrize("by", ["forget", "tombstone"])
async def test_a_file_that_a_reset_brought_back_is_found_and_goes_when_forgotten_again(
    path: Path, store: ProceduralStore, git: Git, by: str
) -> None:
    await store.write([Draft(id="a", content="a"), Draft(id="tea", content="Pour.", key="k/tea")], EVERYONE)
    tip = git(path, "rev-parse", "main").strip()
    await store.forget(Filter(ids=("tea",)))
    git(path, "update-ref", "refs/heads/main", tip)
    assert await ids(store) == ["a"]
    assert (await places(store, "tea"))[0] == {"HEAD"}
    if by == "forget":
        assert (await store.forget(Filter(ids=("tea",)))).ids == []
    else:
        await store.bury([Tombstone("tea", "forgotten", 2**52)])
    assert (await places(store, "tea"))[0] == set()
    assert await ids(store) == ["a"]


async def test_copies_of_what_is_written_anew_do_not_come_back(
    path: Path, library: Path, store: ProceduralStore, git: Git
) -> None:
    await store.write([Draft(id="tea", content="Pour.")], EVERYONE)
    copied(library)
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "A copy")
    await store.forget(Filter(ids=("tea",)))
    git(library, "revert", "--no-edit", "HEAD")
    assert "tea" not in await ids(store)
    await store.write([Draft(id="tea", content="Steep.")], EVERYONE)
    found = [r for r in (await store.timeline(Page(Filter()))).records if not r.id.startswith("skill/skills")]
    assert [(r.id, r.content) for r in found] == [("tea", "Steep.")]


async def test_what_a_person_removed_with_git_leaves_its_vector_until_it_is_forgotten(
    path: Path, library: Path, store: ProceduralStore, git: Git
) -> None:
    await store.write([Draft(id="tea", content="Pour.", embedding=[1.0, 0.0])], EVERYONE)
    git(library, "rm", "-q", "*/SKILL.md")
    git(library, "commit", "-q", "-m", "No tea")
    assert (await places(store, "tea"))[0] == {"states"}
    await store.bury([Tombstone("tea", "forgotten", 2**52)])
    assert (await places(store, "tea"))[0] == set()


async def test_what_is_planted_behind_the_services_back_is_found(path: Path, store: ProceduralStore) -> None:
    await store.write([Draft(id="tea", content="Pour.", embedding=[1.0, 0.0])], EVERYONE)
    with closing(sqlite3.connect(path / "a2m" / "journal.sqlite3", isolation_level=None)) as database:
        kept = database.execute("SELECT * FROM states WHERE id = 'tea'").fetchone()
        await store.forget(Filter(ids=("tea",)))
        assert (await places(store, "tea"))[0] == set()
        database.execute("INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", kept)
    assert (await places(store, "tea"))[0] == {"states"}
    await store.forget(Filter(ids=("tea",)))
    assert (await places(store, "tea"))[0] == set()
