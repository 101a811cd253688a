import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2m_procedural.names import folder_of

SAFE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=512)
HOSTILE = [
    "../../x",
    "-rf",
    "$(id)",
    "a\nb",
    "CON",
    "nul",
    ".git",
    "a" * 512,
    "猫",
    "refs/heads/x",
    "x.lock",
    "~",
]


@given(TEXT, st.none() | TEXT)
def test_a_folder_is_a_valid_skill_name_whatever_the_id_and_key(record_id: str, key: str | None) -> None:
    name = folder_of(record_id, key)
    assert SAFE.fullmatch(name)
    assert len(name) <= 64


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_become_folders_that_do_no_harm(hostile: str) -> None:
    assert SAFE.fullmatch(folder_of(hostile, None))
    assert SAFE.fullmatch(folder_of("i", hostile))


@pytest.mark.parametrize(
    ("a", "b"), [("Deploy", "deploy"), ("é", "e\u0301"), ("a/b", "a-b"), ("ﬁ", "fi"), ("ß", "ss")]
)
def test_ids_that_fold_alike_get_folders_of_their_own(a: str, b: str) -> None:
    assert folder_of(a, None).lower() != folder_of(b, None).lower()


def test_a_folder_that_is_taken_is_avoided() -> None:
    first = folder_of("i", "deploy/web")
    assert first.startswith("deploy-web-")
    second = folder_of("i", "deploy/web", {first})
    assert second != first
    assert folder_of("i", "deploy/web", {first, second}) not in {first, second}
