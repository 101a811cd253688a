"""Bad parameters and records get the right code on every server, from every method, and change nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2m_protocol.types import (
    MAX_CONTENT,
    MAX_METADATA,
    MAX_NAME,
    MAX_RECALL,
    MAX_RECORDS,
    MAX_URI,
    MAX_WIDTH,
)

WIDTH = 8

PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602
UNKNOWN_TIER, UNSUPPORTED, QUOTA, PROTOCOL, MISMATCH = -32002, -32003, -32006, -32007, -32008

Inputs = dict[str, Any]


INFINITE = "@1e400@"
TEXTS: Inputs = {
    "NUL": "a\0b",
    "lone surrogate": "a\ud800",
    "number": 7,
    "boolean": True,
    "array": ["x"],
    "object": {"x": "y"},
}
NOT_TEXTS: Inputs = {label: value for label, value in TEXTS.items() if not isinstance(value, str)}
NAMES: Inputs = TEXTS | {"empty": ""}
FIELD_NAMES: Inputs = NAMES | {"too long": "x" * (MAX_NAME + 1)}
INTEGERS: Inputs = {
    "negative": -1,
    "fraction": 1.5,
    "text": "5",
    "boolean": True,
    "array": [5],
    "object": {},
    "1e400": INFINITE,
}
NUMBERS: Inputs = {"text": "5", "boolean": True, "array": [5], "object": {}, "1e400": INFINITE}
FLAGS: Inputs = {"text": "true", "number": 1, "array": [], "object": {}}
IDS: Inputs = {
    "text": "x",
    "number": 7,
    "boolean": True,
    "object": {"x": 1},
    "array of numbers": [1],
    "array of nulls": [None],
    "array of arrays": [["x"]],
    "NUL": ["a\0b"],
    "lone surrogate": ["\udfff"],
}
VECTORS: Inputs = {
    "no numbers": [],
    "text": "x",
    "number": 1.0,
    "object": {},
    "boolean": True,
    "array of texts": ["1"] * WIDTH,
    "array of booleans": [True] * WIDTH,
    "array of nulls": [None] * WIDTH,
    "array of arrays": [[1.0]] * WIDTH,
    "1e400": [INFINITE] * WIDTH,
    "beyond 32 bits": [1e39] * WIDTH,
    "too wide": [0.5] * (MAX_WIDTH + 1),
}
WHERES: Inputs = {
    "text": "role = 'user'",
    "number": 7,
    "boolean": True,
    "array": [{"role": "user"}],
    "unknown operator": {"role": {"$regex": ".*"}},
    "unknown beside known operator": {"n": {"gt": 0, "like": "%"}},
    "no operator": {"role": {}},
    "array in an array": {"role": [["user"]]},
    "object in an array": {"role": [{"eq": "user"}]},
    "in without an array": {"n": {"in": 5}},
    "exists of a number": {"n": {"exists": 1}},
    "prefix of a number": {"n": {"prefix": 1}},
    "range of null": {"n": {"gt": None}},
    "range of a boolean": {"n": {"lte": True}},
    "range of an array": {"n": {"lt": [1]}},
    "salience beyond a text": {"salience": {"gt": "1"}},
    "time beyond a word": {"created_at": {"gt": "yesterday"}},
    "metadata as a whole": {"metadata": {"n": 1}},
    "embedding": {"embedding": [0.5] * WIDTH},
    "score": {"score": 1},
    "NUL in a value": {"n": "a\0b"},
    "NUL in a name": {"a\0b": 1},
    "lone surrogate in a value": {"n": "\ud800"},
    "lone surrogate in a name": {"\ud800": 1},
    "1e400": {"n": INFINITE},
    "too many conditions": {f"n{at}": 1 for at in range(65)},
    "too many alternatives": {"n": [*range(1_001)]},
}
METADATA: Inputs = {
    "text": "x",
    "number": 7,
    "boolean": True,
    "array": [],
    "NUL in a value": {"a": {"b": ["\0"]}},
    "NUL in a name": {"a": {"b\0": 1}},
    "lone surrogate": {"\ud800": 1},
    "1e400": {"a": INFINITE},
    "too deep": {"a": json.loads("[" * 40 + "]" * 40)},
    "too long": {"a": "x" * MAX_METADATA},
}
PROMPTS: Inputs = {
    "text": "template",
    "number": 1,
    "array": [],
    "unknown method": {"method": "magic"},
    "no model here": {"method": "model"},
    "unknown style": {"style": "haiku"},
    "unknown model": {"model": "x"},
    "negative budget": {"budget": -1},
    "boolean budget": {"budget": True},
    "text as budget": {"budget": "9"},
    "number as cite": {"cite": 1},
}
KEY_PREFIXES: Inputs = TEXTS | {"empty": "", "slashes alone": "//"}
TIMES: Inputs = {
    "number": 7,
    "boolean": True,
    "array": [],
    "word": "yesterday",
    "offset": "2026-01-01T00:00:00+01:00",
}

FIELDS: dict[str, tuple[Inputs, int]] = {
    "id": (FIELD_NAMES, PARAMS),
    "content": (TEXTS | {"null": None}, PARAMS),
    "role": (FIELD_NAMES, PARAMS),
    "group": (FIELD_NAMES, PARAMS),
    "session": (FIELD_NAMES, PARAMS),
    "key": (FIELD_NAMES, PARAMS),
    "metadata": (METADATA, PARAMS),
    "created_at": (TIMES, PARAMS),
    "accessed_at": (TIMES, PARAMS),
    "salience": (NUMBERS, PARAMS),
    "revision": (INTEGERS, PARAMS),
    "access_count": (INTEGERS, PARAMS),
    "embedding": (VECTORS, PARAMS),
    "uri": (NAMES | {"too long": "x" * (MAX_URI + 1)}, PARAMS),
    "media_type": (FIELD_NAMES, PARAMS),
}
"""Fields of a written record, what they must not be, and the code for it."""

PARAMETERS: dict[str, dict[str, tuple[Inputs, int]]] = {
    "describe": {
        "protocol": (TEXTS, PARAMS),
        "protocol of others": ({"minor": "a2m/0.2", "empty": "", "other": "mcp/0.1"}, PROTOCOL),
    },
    "remember": {
        "records": (
            {
                "missing": None,
                "empty": [],
                "text": "x",
                "object": {"content": "x"},
                "array of texts": ["x"],
                "array of nulls": [None],
                "array of arrays": [[{"content": "x"}]],
                "no content": [{"role": "user"}],
                "too many": [{"content": "x"}] * (MAX_RECORDS + 1),
            },
            PARAMS,
        ),
        "session": (NAMES, PARAMS),
    },
    "recall": {
        "query": (TEXTS, PARAMS),
        "limit": (INTEGERS | {"too high": MAX_RECALL + 1, "huge": 10**30}, PARAMS),
        "where": (WHERES, PARAMS),
        "min_score": (NUMBERS, PARAMS),
        "embedding": (VECTORS, PARAMS),
        "key_prefix": (KEY_PREFIXES, PARAMS),
        "embeddings": (FLAGS, PARAMS),
        "prompt": (PROMPTS, PARAMS),
    },
    "timeline": {
        "limit": (INTEGERS, PARAMS),
        "where": (WHERES, PARAMS),
        "key_prefix": (KEY_PREFIXES, PARAMS),
        "embeddings": (FLAGS, PARAMS),
        "prompt": (PROMPTS, PARAMS),
    },
    "forget": {
        "nothing": ({"missing": None}, PARAMS),
        "ids": (IDS | {"null": None}, PARAMS),
        "query": (TEXTS | {"empty": "", "blank": " \t"}, PARAMS),
        "where": (WHERES | {"empty": {}}, PARAMS),
        "key_prefix": (KEY_PREFIXES, PARAMS),
    },
    "reinforce": {
        "ids": (IDS | {"missing": None}, PARAMS),
        "amount": (NUMBERS | {"too much": 1e300}, PARAMS),
    },
    "fetch": {"key": (NAMES | {"missing": None}, PARAMS), "embeddings": (FLAGS, PARAMS)},
    "session/close": {"session": (NAMES | {"missing": None}, PARAMS)},
    "events": {
        "cursor": ({"number": 7, "boolean": True, "array": [], "object": {}}, PARAMS),
        "limit": (INTEGERS, PARAMS),
        "kinds": (IDS | {"unknown": ["writen"]}, PARAMS),
    },
    "summarize": {
        "nothing": ({"missing": None}, PARAMS),
        "ids": (IDS, PARAMS),
        "query": (TEXTS | {"empty": ""}, PARAMS),
        "where": (WHERES | {"empty": {}}, PARAMS),
        "key_prefix": (KEY_PREFIXES, PARAMS),
        "limit": (INTEGERS, PARAMS),
        "key": (NAMES, PARAMS),
    },
    "list": {
        "limit": (INTEGERS | {"too high": 1_001}, PARAMS),
        "where": (WHERES, PARAMS),
        "after": (
            {"text": "x", "one": [1], "swapped": ["x", 1], "boolean": [True, "x"], "object": {}},
            PARAMS,
        ),
    },
    "read": {"ids": (IDS | {"missing": None}, PARAMS)},
    "remnants": {"ids": (IDS | {"missing": None, "too many": [str(n) for n in range(1_001)]}, PARAMS)},
    "touch": {"ids": (IDS | {"missing": None}, PARAMS), "at": (TIMES | {"missing": None}, PARAMS)},
    "tombstones": {
        "ids": (IDS | {"missing": None}, PARAMS),
        "tombstones": (
            {
                "text": "x",
                "empty object": [{}],
                "unknown reason": [{"id": "x", "reason": "boredom", "seq": 1}],
                "text as seq": [{"id": "x", "reason": "moved", "seq": "1"}],
                "NUL": [{"id": "\0", "reason": "moved", "seq": 1}],
                "huge seq": [{"id": "x", "reason": "moved", "seq": 2**60}],
            },
            PARAMS,
        ),
        "limit": (INTEGERS | {"too high": 1_001}, PARAMS),
    },
}
"""Parameters of methods that all servers have."""

OF_TIERS: dict[str, dict[str, tuple[Inputs, int]]] = {
    "forget_if": {
        "records": (
            {
                "missing": None,
                "text": "x",
                "array of texts": ["x"],
                "no etag": [{"id": "x"}],
                "number as etag": [{"id": "x", "etag": 1}],
                "empty id": [{"id": "", "etag": "x"}],
            },
            PARAMS,
        ),
        "reason": (TEXTS | {"missing": None, "unknown": "boredom"}, PARAMS),
    },
}
"""Those of our extensions that a federation does not have."""

REQUIRED: dict[str, Inputs] = {
    "remember": {"records": [{"content": "never written"}]},
    "recall": {"where": {"session": "nobody's"}},
    "timeline": {"where": {"session": "nobody's"}},
    "reinforce": {"ids": []},
    "fetch": {"key": "nobody's"},
    "summarize": {"ids": []},
    "touch": {"ids": [], "at": "2026-01-01T00:00:00.000Z"},
    "forget_if": {"records": [], "reason": "moved"},
    "promote": {"ids": [], "tier": "semantic"},
}
"""What a call needs beside the parameter at hand, chosen so that the call changes nothing."""


def of(table: dict[str, dict[str, Any]]) -> Any:
    return [
        pytest.param(method, name, id=f"{method}-{name}".replace(" ", "_"))
        for method, parameters in table.items()
        for name in parameters
    ]


def wrong(answers: dict[str, int | None], code: int) -> dict[str, int | None]:
    return {label: answer for label, answer in answers.items() if answer != code}


@pytest.mark.parametrize(("method", "name"), of(PARAMETERS))
def test_a_bad_parameter_is_refused(target: Any, method: str, name: str) -> None:
    inputs, code = PARAMETERS[method][name]
    assert wrong(answers(target, method, name, inputs), code) == {}
    target.assert_unchanged()


@pytest.mark.parametrize(("method", "name"), of(OF_TIERS))
def test_a_bad_parameter_of_an_extension_is_refused(target: Any, method: str, name: str) -> None:
    inputs, code = OF_TIERS[method][name]
    assert wrong(answers(target, method, name, inputs), UNSUPPORTED if target.tiered else code) == {}
    target.assert_unchanged()


def answers(target: Any, method: str, name: str, inputs: Inputs) -> dict[str, int | None]:
    required = {} if name == "nothing" else REQUIRED.get(method, {})
    name = name.partition(" ")[0]
    given: dict[str, int | None] = {}
    for label, value in inputs.items():
        params = required | {name: value}
        if label == "missing":
            del params[name]
        given[label] = target.code(method, params)
    return given


@pytest.mark.parametrize("field", FIELDS)
def test_a_bad_field_of_a_record_refuses_the_whole_batch(target: Any, field: str) -> None:
    inputs, code = FIELDS[field]
    for transfer in (False, True):
        given: dict[str, int | None] = {}
        for label, value in inputs.items():
            bad = {"id": "never written", "content": "never written", field: value}
            records = [{"id": "nor this", "content": "nor this"}, bad]
            given[label] = target.code("remember", {"records": records, "transfer": transfer})
        assert wrong(given, code) == {}
    target.assert_unchanged()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", "1"),
        ("seq", 2**60),
        ("seq", True),
        ("moves", -1),
        ("moves", 1.5),
        ("status", "lost"),
        ("aliases", "x"),
        ("aliases", [1]),
        ("aliases", ["\0"]),
        ("features", 7),
        ("embedding_model", ""),
        ("provenance", {"derived_from": "x"}),
        ("provenance", []),
    ],
)
def test_a_bad_field_of_a_transfer_is_refused(target: Any, field: str, value: Any) -> None:
    records = [{"id": "nor this", "content": "nor this"}, {"id": "bad", "content": "bad", field: value}]
    assert target.code("remember", {"records": records, "transfer": True}) == PARAMS
    target.assert_unchanged()


@pytest.mark.parametrize("length", [MAX_CONTENT + 1, 10 * 2**20])
def test_content_that_is_too_long_exceeds_the_quota(target: Any, length: int) -> None:
    records = [{"content": "nor this"}, {"content": "x" * length}]
    assert target.code("remember", {"records": records}) == QUOTA
    target.assert_unchanged()


@pytest.mark.parametrize("width", [WIDTH - 1, WIDTH + 1, MAX_WIDTH])
def test_a_vector_of_another_width_is_a_mismatch(target: Any, width: int) -> None:
    good, bad = {"content": "nor this"}, {"content": "bad", "embedding": [0.5] * width}
    assert target.code("remember", {"records": [good, bad]}) == MISMATCH
    assert target.code("remember", {"records": [good, bad | {"id": "x"}], "transfer": True}) == MISMATCH
    assert target.code("recall", {"embedding": [0.5] * width}) == MISMATCH
    target.assert_unchanged()


@pytest.mark.parametrize(
    "method", ["remember", "recall", "timeline", "forget", "summarize", "promote", "list"]
)
def test_a_tier_that_there_is_not_is_unknown_or_unsupported(target: Any, method: str) -> None:
    name = "into" if method == "summarize" else "tier"
    params = REQUIRED.get(method, {}) | {name: "attic"}
    if method == "remember":
        params = {"records": [{"content": "nor this"}, {"content": "bad", "tier": "attic"}]}
    expected = UNKNOWN_TIER if target.tiered else UNSUPPORTED
    assert target.code(method, params) == expected
    target.assert_unchanged()


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("tier", NOT_TEXTS | {"empty": "", "missing": None}),
        ("ids", IDS | {"missing": None}),
        ("salience", NUMBERS),
    ],
    ids=["tier", "ids", "salience"],
)
def test_a_bad_parameter_of_promote_is_refused(target: Any, name: str, inputs: Inputs) -> None:
    assert wrong(answers(target, "promote", name, inputs), PARAMS if target.tiered else UNSUPPORTED) == {}
    target.assert_unchanged()


@pytest.mark.parametrize("method", ["recall", "timeline", "forget", "remember"])
def test_a_tier_that_is_no_name_is_refused(target: Any, method: str) -> None:
    given: dict[str, int | None] = {}
    for label, value in NAMES.items():
        params = REQUIRED.get(method, {}) | {"tier": value}
        if method == "remember":
            params = {"records": [{"content": "bad", "tier": value}]}
        given[label] = target.code(method, params)
    if not target.tiered:
        assert wrong(given, UNSUPPORTED) == {}
    else:
        # A text that is not empty names a tier, if none that could be.
        assert {label: c for label, c in given.items() if c not in (PARAMS, UNKNOWN_TIER)} == {}
        assert given["number"] == given["empty"] == PARAMS
    target.assert_unchanged()


@pytest.mark.parametrize("method", ["describe", "remember", "recall", "forget", "session/list"])
def test_an_owner_that_is_no_name_is_refused_where_owners_are_believed(target: Any, method: str) -> None:
    if target.tiered:
        pytest.skip("over HTTP without authentication an owner is ignored")
    params = {"ids": ["nobody's"]} if method == "forget" else REQUIRED.get(method, {})
    given = {label: target.code(method, params | {"owner": value}) for label, value in NAMES.items()}
    assert wrong(given, PARAMS) == {}
    target.assert_unchanged()


@pytest.mark.parametrize("params", [[], ["x"], "x", 7, True, None], ids=repr)
def test_params_that_are_no_object_are_refused_by_every_method(target: Any, params: Any) -> None:
    given = {method: target.code(method, params) for method in (*PARAMETERS, "session/list")}
    assert wrong(given, PARAMS) == {}
    target.assert_unchanged()


@pytest.mark.parametrize("method", ["promote", "consolidate"])
def test_a_method_of_an_undeclared_capability_is_not_supported(target: Any, method: str) -> None:
    if target.tiered:
        pytest.skip("a federation has tiers")
    assert target.code(method, {"ids": 7, "tier": []}) == UNSUPPORTED
    target.assert_unchanged()
