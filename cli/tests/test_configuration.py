"""A federation.yaml of one's own: what `a2m up` runs of it, and what the router is given."""

from pathlib import Path

import pytest

from a2m_cli.blueprint import TIERS, Blueprint
from a2m_cli.configuration import Configuration, ConfigurationError, read
from a2m_router.config import parse

MINE = """\
name: mine
tiers:
  - name: notes        # a name of its own
    kind: working
    capacity: 50
    per_session: true
    spill_to: far
  - name: facts
    kind: semantic
    url: embedded
  - name: far
    kind: episodic
    url: https://memory.example.org/
"""


def written(folder: Path, text: str) -> Configuration:
    path = folder / "mine.yaml"
    path.write_text(text)
    return read(path, TIERS)


def test_tiers_without_a_url_are_run_and_others_are_left_where_they_are(tmp_path: Path) -> None:
    blueprint = Blueprint.of(tmp_path, 9000, written(tmp_path, MINE))
    assert blueprint.services == ("working", "semantic", "router")
    tiers = parse(blueprint.config(), "it").tiers
    assert [(tier.name, tier.url) for tier in tiers] == [
        ("notes", "http://127.0.0.1:9003"),
        ("facts", "http://127.0.0.1:9005"),
        ("far", "https://memory.example.org/"),
    ]
    assert (tiers[0].capacity, tiers[0].spill_to) == (50, "far")


def test_the_configuration_names_the_file_that_it_comes_from(tmp_path: Path) -> None:
    blueprint = Blueprint.of(tmp_path, 9000, written(tmp_path, MINE))
    assert str(tmp_path / "mine.yaml") in blueprint.config()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a mapping"),
        ("- a", "expected a mapping"),
        ("name: x", "tiers"),
        ("tiers: []", "tiers"),
        ("tiers: [working]", "tiers"),
        ("tiers: [", "line 1"),
        ("tiers: [{name: a, kind: cold}]", "'a': kind: expected one of working"),
        ("tiers: [{name: a}]", "'a': kind"),
        ("tiers: [{name: a, kind: working}, {name: b, kind: working}]", "'b': there is one embedded"),
    ],
)
def test_a_file_of_which_nothing_can_be_run_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        written(tmp_path, text)
