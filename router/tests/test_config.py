from __future__ import annotations

from pathlib import Path

import pytest

from a2m_router.app import create
from a2m_router.config import ConfigError, load, parse
from a2m_router.settings import RouterSettings

HEAD = """\
tiers:
  - name: working
    kind: working
    url: http://127.0.0.1:1
"""
SKILLS = """\
  - name: skills
    kind: procedural
    url: http://127.0.0.1:3
"""
EPISODIC = """\
  - name: episodic
    kind: episodic
    url: http://127.0.0.1:2
"""


def test_the_built_in_configuration_is_the_chain_of_four() -> None:
    config = load(None)
    assert [(t.name, t.spill_to, t.promote_to) for t in config.tiers] == [
        ("working", "episodic", None),
        ("episodic", None, "semantic"),
        ("semantic", None, None),
        ("procedural", None, None),
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (HEAD + "    spill_to: skills\n" + SKILLS, 5, "nothing"),
        (HEAD + "    spill_to: episodic\n" + EPISODIC + "    spill_to: working\n", 5, "in a circle"),
        (HEAD + "    spill_to: working\n", 5, "in a circle"),
        (HEAD + "    spill_to: elsewhere\n", 5, "unknown tier 'elsewhere'"),
        (HEAD + "    promote_to: elsewhere\n    promote_after: 2\n", 5, "unknown tier 'elsewhere'"),
        ("tiers:\n" + EPISODIC, 1, "no writable tier of kind working"),
        (HEAD + EPISODIC + "    per_session: true\n    capacity: 3\n", 8, "only that counts by session"),
        (HEAD + "    per_session: true\n", 5, "no capacity"),
        (HEAD + "    promote_to: episodic\n" + EPISODIC, 5, "promote_after"),
        (HEAD + EPISODIC + EPISODIC, 8, "two tiers named episodic"),
        (HEAD + "    spill_to: episodic\n" + EPISODIC + "    read_only: true\n", 5, "read-only"),
        (HEAD + "    capacity: -1\n", 5, "greater than or equal to 0"),
        (HEAD + "    colour: red\n", 5, "colour"),
        (HEAD + "  - name: Bad Name\n    kind: working\n    url: http://a\n", 5, "name"),
        ("tiers: [\n", 2, "expected"),
        ("", 1, "the file"),
    ],
)
def test_what_cannot_work_is_refused_with_the_line_and_the_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, "federation.yaml")
    assert str(refused.value).startswith(f"federation.yaml, line {line}: ")
    assert reason in str(refused.value)


def test_a_server_does_not_start_with_it(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(HEAD + "    spill_to: nowhere\n")
    with pytest.raises(ValueError, match=r"federation\.yaml, line 5: "):
        create(RouterSettings(config=path))
    with pytest.raises(ValueError, match="cannot be read"):
        create(RouterSettings(config=tmp_path / "missing.yaml"))


def test_tiers_that_are_all_read_only_need_no_working_tier() -> None:
    config = parse("tiers:\n" + EPISODIC + "    read_only: true\n", "f")
    assert [t.read_only for t in config.tiers] == [True]
