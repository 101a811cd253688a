from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import FIELDS, Draft
from a2m_protocol.where import Condition, Op, parse_where
from a2m_semantic import tokens
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.engine import Engine
from a2m_semantic.filters import RANGES
from a2m_semantic.server import IN_MEMORY, ServerEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Page

RECORD_FIELDS = frozenset(name for names in FIELDS.values() for name in names) - {"tier"}
KEYS = ["a", "a.b", 'q"', "[]", "é", "k" * 200, "$x", ""]
RECORD_KEYS = ["role", "group", "key", "uri", "salience", "access_count", "created_at", "content", "id"]

text = st.one_of(
    st.sampled_from(["", "x", "1", "true", "a/b", "A", "é", "e\u0301", "x" * 36, "x" * 600, "x" * 600 + "y"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5),
)
integers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 2**63, 2**64, 2**64 + 1, 2**70, 10**400]),
    st.integers(2**53, 2**53 + 8),
    st.integers(2**200, 2**200 + 4),
)
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e22, 1e308, 5e-324, 2.0**53, 2.0**200]),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), integers, floats, text)
values = st.one_of(
    scalars, st.lists(scalars, max_size=2), st.dictionaries(st.sampled_from(KEYS), scalars, max_size=1)
)
metadata = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)
drafts = st.fixed_dictionaries(
    {"metadata": metadata},
    optional={
        "role": text.filter(bool).map(lambda t: t[:500]),
        "group": text.filter(bool).map(lambda t: t[:500]),
        "uri": text.filter(bool),
        "salience": floats,
    },
)
operators = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.builds(lambda op, value: {op: value}, st.sampled_from(["gt", "gte", "lt", "lte", "ne"]), scalars),
    st.builds(lambda value: {"exists": value}, st.booleans()),
    st.builds(lambda value: {"prefix": value}, text),
)
conditions = st.dictionaries(st.sampled_from(KEYS + RECORD_KEYS), operators, min_size=1, max_size=2)


class Bench:
    """A store and a loop to run it on, for tests that hypothesis calls many times."""

    def __init__(self, engine: Engine) -> None:
        self._runner = asyncio.Runner()
        self._store = SemanticStore(engine)
        self._runner.run(self._store.open())

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()

    def agree(self, contents: list[dict[str, object]], wanted: dict[str, object]) -> None:
        self._runner.run(self._agree(contents, wanted))

    async def _agree(self, contents: list[dict[str, object]], wanted: dict[str, object]) -> None:
        session = uuid4().hex
        given = [
            Draft.model_validate({"id": uuid4().hex, "content": "c", "session": session, **fields})
            for fields in contents
        ]
        await self._store.write(given, EVERYONE)
        try:
            where = parse_where({"session": session, **wanted}, RECORD_FIELDS)
        except A2MError:
            return
        held = await self._store.read([draft.id for draft in given])
        expected = {record.id for record in held if where.matches(record.__dict__)}
        try:
            found = await self._store.timeline(Page(Filter(where=where)))
        except A2MError as refused:
            if "semantic tier" not in refused.message or not any(map(_beyond, where.conditions)):
                raise
            return
        finally:
            await self._store.forget(Filter(ids=tuple(draft.id for draft in given)))
        assert {record.id for record in found.records} == expected


def _beyond(condition: Condition) -> bool:
    """Whether a condition is of the kinds that the README says are refused."""
    if condition.op is Op.PREFIX:
        return len(str(condition.value)) > 300
    if condition.op not in RANGES:
        return False
    if isinstance(condition.value, str):
        return not condition.metadata or len(condition.value.encode()) > tokens.MAX_ORDERED
    return abs(condition.value or 0) > 2**106


@pytest.fixture(scope="module", params=["edge", "memory"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder: Path = tmp_path_factory.mktemp("filters")
    bench = Bench(
        EdgeEngine(folder, "cosine") if request.param == "edge" else ServerEngine(IN_MEMORY, "c", "cosine")
    )
    yield bench
    bench.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(drafts, min_size=1, max_size=5), conditions)
def test_the_engine_s_filter_agrees_with_where(
    bench: Bench, contents: list[dict[str, object]], wanted: dict[str, object]
) -> None:
    bench.agree(contents, wanted)


@given(st.one_of(integers, floats), st.one_of(integers, floats))
def test_number_triples_are_ordered_like_numbers(a: float, b: float) -> None:
    first, second = tokens.triple(a), tokens.triple(b)
    if not (first[2] and second[2]):  # beyond that, a query is refused
        assert (first < second, first == second) == (a < b, a == b)


@given(st.text(max_size=40), st.text(max_size=12))
@example("2026-07-28T10:15:30.123Z", "2026-07-28")
@example("a\0", "a")
def test_digits_are_ordered_like_strings(a: str, b: str) -> None:
    first, second = tokens.digits(a), tokens.digits(b)
    assert ((first > second) - (first < second)) == ((a > b) - (a < b))


@given(scalars, scalars)
def test_tokens_are_equal_exactly_when_the_values_are(a: object, b: object) -> None:
    same = tokens.value_token("m", a) == tokens.value_token("m", b)
    kinds = [type(v) if isinstance(v, bool | str) or v is None else float for v in (a, b)]
    assert same == (kinds[0] is kinds[1] and a == b)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [({"k": {"gt": "a" * 37}}, "at most 36 bytes"), ({"k": {"prefix": "x" * 600}}, "prefix")],
)
async def test_what_the_engine_cannot_honour_is_refused_by_name(
    store: SemanticStore, wanted: dict[str, object], why: str
) -> None:
    with pytest.raises(A2MError, match=f"where.k.*semantic tier.*{why}") as refused:
        await store.timeline(Page(Filter(where=parse_where(wanted, RECORD_FIELDS))))
    assert refused.value.code == Code.INVALID_PARAMS


async def test_times_in_metadata_have_ranges(store: SemanticStore) -> None:
    times = ["2026-07-27T23:59:59.999Z", "2026-07-28T10:15:30.123Z", "2026-07-28T10:15:30.124Z", "2026-08-01"]
    await store.write([Draft(id=at, content="due", metadata={"due": at}) for at in times], EVERYONE)
    await store.write([Draft(id="number", content="due", metadata={"due": 5})], EVERYONE)

    async def found(**due: str) -> list[str]:
        where = parse_where({"due": due}, RECORD_FIELDS)
        return [r.id for r in (await store.timeline(Page(Filter(where=where)))).records]

    assert await found(gte=times[1]) == times[1:]
    assert await found(gt=times[1]) == times[2:]
    assert await found(gte="2026-07-28", lt="2026-08-01") == times[1:3]
    assert await found(lte=times[0]) == times[:1]


async def test_a_prefix_may_be_as_long_as_it_says(store: SemanticStore) -> None:
    longest = "x" * 512
    held = {"short": longest[1:], "same": longest, "long": longest + "y" * 100, "other": "y" + longest}
    drafts = [Draft(id=name, content=name, metadata={"k" * 100: text}) for name, text in held.items()]
    await store.write(drafts, EVERYONE)

    async def found(prefix: str) -> list[str]:
        where = parse_where({"k" * 100: {"prefix": prefix}}, RECORD_FIELDS)
        return [r.id for r in (await store.timeline(Page(Filter(where=where)))).records]

    assert await found(longest) == ["same", "long"]
    assert await found(longest[1:]) == ["short", "same", "long"]
    with pytest.raises(A2MError, match="at most 512 characters") as refused:
        await found(longest + "x")
    assert refused.value.code == Code.INVALID_PARAMS
