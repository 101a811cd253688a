"""docs/protocol.md says what the code does."""

import re
from pathlib import Path

import pytest

from a2m_protocol import types
from a2m_protocol.errors import Code
from a2m_protocol.where import MAX_CONDITIONS, MAX_VALUES, Op
from a2m_server.events import MAX_IDS, RETAINED, Kind
from a2m_server.methods import EXTENSIONS, METHODS
from a2m_server.params import DEFAULT_RECALL
from a2m_server.settings import ServerSettings

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def row(start: str) -> str:
    """The row of a table that begins so."""
    return next(line for line in PAGE.splitlines() if line.startswith(f"| {start}"))


@pytest.mark.parametrize("method", [*METHODS, *EXTENSIONS])
def test_every_method_is_described(method: str) -> None:
    assert f"`{method}`" in PAGE


@pytest.mark.parametrize("capability", types.Capability)
def test_every_capability_has_its_fields_and_methods(capability: types.Capability) -> None:
    _, _, methods, fields, _ = row(f"`{capability}`").split("|")
    assert tuple(re.findall(r"`([a-z_]+)`", fields)) == types.FIELDS.get(capability, ())
    named = {
        name.removeprefix("memory/") for name, method in METHODS.items() if method.capability is capability
    }
    assert set(re.findall(r"`([a-z_/]+)`", methods)) - {"describe"} == named


@pytest.mark.parametrize("code", Code)
def test_every_error_code_is_there(code: Code) -> None:
    assert row(str(int(code)))


@pytest.mark.parametrize("name", [*Op, *(f"`{kind}`" for kind in Kind)])
def test_every_operator_and_kind_of_event_is_there(name: str) -> None:
    assert name in PAGE


@pytest.mark.parametrize(
    ("start", "numbers"),
    [
        ("records a call", [types.MAX_RECORDS]),
        ("`limit` of a recall", [types.MAX_RECALL]),
        ("`content` (`max", [types.MAX_CONTENT]),
        ("an id, key", [types.MAX_NAME, 1]),
        ("`uri` | 8", [types.MAX_URI]),
        ("`metadata` | 65", [types.MAX_METADATA, types.MAX_DEPTH]),
        ("a vector", [types.MAX_WIDTH, 32]),
        ("a `where`", [MAX_CONDITIONS, MAX_VALUES]),
        ("events kept", [RETAINED]),
        ("a body", [ServerSettings.model_fields["max_body"].default]),
        ("`forgotten`", [MAX_IDS]),
    ],
)
def test_the_limits_are_those_of_the_code(start: str, numbers: list[int]) -> None:
    cell = row(start).rpartition("|")[0].rpartition("|")[2]
    assert [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", cell)] == numbers


def test_the_default_of_recall_is_that_of_the_code() -> None:
    assert f"`limit` is {DEFAULT_RECALL} unless given" in PAGE
