"""The manifest and the checks belong together, and neither needs anything of ours."""

import ast
from pathlib import Path

import pytest

import a2m_conformance
from a2m_conformance.check import collect
from a2m_conformance.requirement import load
from a2m_conformance.tables import CAPABILITIES

SOURCES = sorted(Path(a2m_conformance.__file__).parent.rglob("*.py"))


def test_every_requirement_has_a_check_and_every_check_a_requirement():
    assert set(collect()) == set(load())


def test_the_manifest_covers_every_capability_and_both_transports():
    requirements = load().values()
    assert len(requirements) > 250
    assert {requirement.capability for requirement in requirements} == CAPABILITIES
    assert {requirement.transport for requirement in requirements} == {None, "http", "stdio"}
    assert {requirement.profile for requirement in requirements} == {"any", "writable", "read-only"}


def test_every_requirement_is_one_sentence_with_a_section():
    for requirement in load().values():
        assert requirement.text.endswith("."), requirement.id
        assert requirement.section, requirement.id
        assert requirement.needs <= CAPABILITIES, requirement.id


def test_a_check_stands_in_the_module_named_like_the_file_of_its_requirement():
    folder = Path(a2m_conformance.__file__).parent
    modules = {path.stem for path in (folder / "checks").glob("*.py")} - {"__init__", "consolidation"}
    assert modules == {path.stem for path in (folder / "requirements").glob("*.toml")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_suite_imports_nothing_of_the_servers_that_it_judges(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert not name.startswith("a2m_") or name.split(".")[0] == "a2m_conformance", name
