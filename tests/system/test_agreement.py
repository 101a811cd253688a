"""Filters, keys and any text mean the same on every server, as the reference says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2m_protocol.types import Capability
from a2m_protocol.where import parse_where
from a2m_server.call import record_fields

SERVERS = ("memory", "working", "episodic", "semantic", "procedural", "router")

REFUSING = ("semantic", "router")
"""A tier says of a filter that it cannot honour it, and a federation says what its tiers say."""

LONGEST_ORDERED = 36
"""Bytes of a text up to which semantic knows its order."""

BOUNDED = settings(
    max_examples=12,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

FIELDS = record_fields(frozenset(Capability))
TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"),
    max_size=12,
)
NAME = TEXT.filter(bool)
ODD = st.sampled_from(
    ["", "%", "_", "a", "ab", "A", "a.b", 'a"b', "\\", "'", "true", "null", "1", "é", "e\u0301"]
)
NUMBER = (
    st.integers(-3, 3)
    | st.sampled_from(
        [0.0, -0.0, 1.0, 1.5, 1e308, -1e308, 5e-324, 2**53, 2**53 + 1, 2**63, -(2**63) - 1, 10**30]
    )
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCALAR = st.none() | st.booleans() | NUMBER | ODD | TEXT
KEY = st.sampled_from(["a", "b", "a.b", 'q"', "ключ", "$x", "with space"])
METADATA = st.dictionaries(
    KEY, SCALAR | st.lists(SCALAR, max_size=2) | st.dictionaries(KEY, SCALAR, max_size=1), max_size=4
)
RECORD = st.fixed_dictionaries(
    {"content": TEXT, "metadata": METADATA},
    optional={
        "role": ODD.filter(bool) | NAME,
        "group": ODD.filter(bool),
        "salience": st.sampled_from([0.0, 1.0, 1.5, -2.0, 1e300]),
    },
)
RANGE = st.one_of(NUMBER, ODD, TEXT)
CONDITION = (
    SCALAR
    | st.lists(SCALAR, max_size=3)
    | st.fixed_dictionaries(
        {}, optional={"in": st.lists(SCALAR, max_size=3), "ne": SCALAR, "exists": st.booleans()}
    )
    | st.fixed_dictionaries({}, optional={"gt": RANGE, "gte": RANGE, "lt": RANGE, "lte": RANGE})
    | st.fixed_dictionaries({"prefix": ODD | TEXT})
)
WHERE = st.dictionaries(KEY, CONDITION.filter(lambda c: c != {}), max_size=2)
FIELD_WHERE = st.fixed_dictionaries(
    {},
    optional={
        "role": (ODD | st.none() | st.lists(ODD, max_size=2)) | st.fixed_dictionaries({"prefix": ODD}),
        "group": st.none()
        | ODD
        | st.fixed_dictionaries({"ne": ODD})
        | st.fixed_dictionaries({"exists": st.booleans()}),
        "salience": NUMBER | st.fixed_dictionaries({"gte": NUMBER}) | st.lists(NUMBER, max_size=2),
    },
)


@pytest.fixture(params=SERVERS, scope="module")
def server(request: pytest.FixtureRequest, servers: dict[str, Any]) -> Any:
    return servers[request.param]


@contextmanager
def held(server: Any, records: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Records in a session of their own, and what the server then holds of it."""
    session = uuid4().hex
    server.call("remember", records=[{**record, "session": session} for record in records])
    yield session, server.call("timeline", where={"session": session})["records"]
    server.call("forget", where={"session": session})


@BOUNDED
@given(st.lists(RECORD, min_size=1, max_size=6), st.lists(WHERE | FIELD_WHERE, min_size=1, max_size=5))
def test_a_filter_finds_what_the_reference_finds(
    server: Any, records: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> None:
    with held(server, records) as (session, all_of_it):
        assert [one["content"] for one in all_of_it] == [record["content"] for record in records]
        for where in filters:
            selected = {**where, "session": session}
            refusal = server.ask("timeline", {"where": selected}).get("error")
            if refusal is not None:
                assert server.name in REFUSING, refusal
                assert is_refused(where), refusal
                assert (refusal["code"], "semantic" in refusal["message"]) == (-32602, True)
                continue
            reference = parse_where(where, FIELDS)
            expected = [one["id"] for one in all_of_it if reference.matches(one)]
            found = server.call("timeline", where=selected)["records"]
            assert [one["id"] for one in found] == expected, where
            # Where a tier refuses a filter, a federation that asks only another tier first does not know yet.
            if server.name != "router" or not is_refused(where):
                recalled = server.call("recall", where=selected, limit=100)["records"]
                assert sorted(one["id"] for one in recalled) == sorted(expected), where


def is_refused(where: dict[str, Any]) -> bool:
    """Whether a filter asks for a range of texts that semantic has no order of: it says so."""
    return any(
        isinstance(bound, str) and (field in FIELDS or len(bound.encode()) > LONGEST_ORDERED)
        for field, condition in where.items()
        if isinstance(condition, dict)
        for op, bound in cast("dict[str, object]", condition).items()
        if op in ("gt", "gte", "lt", "lte")
    )


@BOUNDED
@given(st.lists(RECORD, min_size=1, max_size=4))
def test_text_and_metadata_come_back_exactly_as_given(server: Any, records: list[dict[str, Any]]) -> None:
    with held(server, records) as (_, all_of_it):
        for record, one in zip(records, all_of_it, strict=True):
            assert {field: one[field] for field in record if record[field] != {}} == {
                field: value for field, value in record.items() if value != {}
            }
            assert repr(one.get("metadata", {})) == repr(record["metadata"])


@BOUNDED
@given(
    st.lists(st.lists(ODD | TEXT, min_size=1, max_size=3).map("/".join).filter(bool), min_size=1, max_size=8)
)
def test_a_key_is_one_record_and_a_prefix_is_a_path(server: Any, keys: list[str]) -> None:
    root = uuid4().hex
    full = [f"{root}/{key}" for key in keys]
    server.call("remember", records=[{"content": str(at), "key": key} for at, key in enumerate(full)])
    latest = {key: str(at) for at, key in enumerate(full)}
    for key, content in latest.items():
        record = server.call("fetch", key=key)["record"]
        assert (record["key"], record["content"], record["revision"]) == (key, content, full.count(key) - 1)
    for prefix in {root, *full, *(key.rpartition("/")[0] for key in full)}:
        path = prefix.rstrip("/")
        found = server.call("timeline", key_prefix=prefix)["records"]
        assert sorted(one["key"] for one in found) == sorted(
            key for key in latest if key == path or key.startswith(path + "/")
        )
    assert server.call("forget", key_prefix=root)["forgotten"] == len(latest)
