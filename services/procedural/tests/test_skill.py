import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from a2m_procedural.skill import kept_in_git, parse, render
from a2m_protocol.clock import created_at_of
from a2m_protocol.types import Record

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CONTENTS = [
    "",
    "\n",
    "---",
    "---\n",
    "---\nname: x\n---\nbody",
    "---\r\nname: x\r\n---\r\nbody\r\n",
    "a\r\nb\rc\n\n",
    "no final newline",
    " \u2028\u2029\x85\ufeff ",
    "\ufeff---\n",
    "\x01\x1b[31m\x7f\x9f",
    "...\n---\n%YAML 1.2",
    "🦊 e\u0301 \U0010ffff",
]


def record(content: str, **fields: object) -> Record:
    given: dict[str, object] = {"id": "i", "seq": 5, "created_at": created_at_of(5), "etag": "e"}
    return Record.model_validate({**given, "content": content, **fields})


def back(data: bytes) -> Record:
    skill = parse(data)
    assert skill is not None
    assert skill.fields is not None
    fields = skill.fields.model_dump(exclude={"metadata"})
    return Record(**fields, content=skill.content, metadata=skill.metadata(), etag="e")


@pytest.mark.parametrize("content", CONTENTS)
def test_the_content_is_what_follows_the_front_matter_byte_for_byte(content: str) -> None:
    data = render(record(content), "folder", {})
    assert data.endswith(b"\n---\n" + content.encode())
    assert back(data).content == content


@settings(max_examples=300, deadline=None)
@given(
    content=TEXT,
    fields=st.fixed_dictionaries(
        {"id": NAME, "seq": st.integers(-(2**53) + 1, 2**53 - 1)},
        optional={
            "key": NAME,
            "role": NAME,
            "group": NAME,
            "session": NAME,
            "owner": NAME,
            "media_type": NAME,
            "uri": NAME,
            "metadata": st.dictionaries(TEXT, JSON, max_size=4),
            "revision": st.integers(0, 2**53 - 1),
            "moves": st.integers(0, 9),
            "status": st.sampled_from(["active", "pending", "superseded", "archived"]),
            "aliases": st.lists(NAME, max_size=3),
            "provenance": st.fixed_dictionaries(
                {}, optional={"source": NAME, "derived_from": st.lists(NAME, min_size=1)}
            ),
        },
    ),
)
def test_every_record_comes_back_from_its_file(content: str, fields: dict[str, object]) -> None:
    one = record(content, **fields)
    data = render(one, "folder", {})
    assert kept_in_git(back(data)) == kept_in_git(one)
    head = data.split(b"\n---\n", 1)[0].removeprefix(b"---\n")
    description = yaml.safe_load(head)["description"]
    assert 0 < len(description) <= 1024
    assert description.isprintable()


@pytest.mark.parametrize("delimiter", ["---\n", "---\r\n", "--- \n"])
def test_a_persons_skill_is_read_with_its_front_matter_as_metadata(delimiter: str) -> None:
    text = (
        f"{delimiter}name: tidy\ndescription: Tidy up\nday: 2024-02-29\ntags: [a, b]\n{delimiter}\n# Tidy\n"
    )
    skill = parse(text.encode())
    assert skill is not None
    assert (skill.fields, skill.content) == (None, "\n# Tidy\n")
    assert skill.metadata() == {
        "name": "tidy",
        "description": "Tidy up",
        "day": "2024-02-29",
        "tags": ["a", "b"],
    }


@pytest.mark.parametrize(
    "front",
    [
        "a: [",
        "- a list",
        "just text",
        "a: &x [1]\nb: *x",
        "a: " + "[" * 200 + "]" * 200,
        "n: " + "9" * 5000,
        "when: 2024-99-99",
        "!!python/object/apply:os.system [id]",
        "\x01: x",
    ],
)
def test_front_matter_that_cannot_be_read_is_content(front: str) -> None:
    text = f"---\n{front}\n---\nbody\n"
    skill = parse(text.encode())
    assert skill is not None
    assert (skill.fields, skill.content, dict(skill.front)) == (None, text, {})


@pytest.mark.parametrize(
    "ours", ["a2m: 7", "a2m: {id: x}", "a2m: {id: x, seq: 1, created_at: soon}", "a2m: {id: 5, seq: 1}"]
)
def test_fields_of_ours_that_a_person_broke_make_it_a_persons_skill(ours: str) -> None:
    skill = parse(f"---\nname: x\n{ours}\n---\nbody\n".encode())
    assert skill is not None
    assert (skill.fields, skill.content, dict(skill.front)) == (None, "body\n", {"name": "x"})


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\0b", b"x" * 1_000_001, b"---\nname: x\n---\n\xff"])
def test_what_no_record_can_hold_is_left_out(data: bytes) -> None:
    assert parse(data) is None


def test_the_keys_of_others_are_kept_in_the_front_matter() -> None:
    front = {"name": "theirs", "description": "old", "license": "MIT", "allowed-tools": ["Bash"], "a2m": "x"}
    data = render(record("new", metadata={"v": 1}), "folder", front)
    skill = parse(data)
    assert skill is not None
    assert skill.front == {
        "name": "theirs",
        "description": "new",
        "license": "MIT",
        "allowed-tools": ["Bash"],
    }
    assert json.dumps(skill.metadata()) == '{"v": 1}'
