"""What SQL selects is what `Where.matches` selects."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2m_episodic.store import EpisodicStore
from a2m_protocol.types import Draft
from a2m_protocol.where import parse_where
from a2m_server.contract import FIELDS, draft, name
from a2m_server.values import EVERYONE, Filter, Page

NUMBERS = [0, 1, 1.0, -0.0, 0.1, 0.30000000000000004, -7, 2**53, 2**53 + 1, 2.0**53, 10**23, 1e23]
HUGE = [2**64, 2**70, -(2**70), 10**400, -(10**400), 1.7976931348623157e308, 5e-324, 10**22, 1e22]
TEXTS = ["", "1", "a", "A", "ab", "a%", "a_", "é", "\uffff", "\U0001f600", "\\", "true", "null", '"', "'"]
KEYS = ["a", "a.b", 'q"', "it's", "%s", "$x", "ключ", "\\", "{}", " ", "0", "", "-", "\u2028"]

text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4)
scalars = st.one_of(
    st.sampled_from([None, True, False, *NUMBERS, *HUGE, *TEXTS]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    text,
)
nested = st.sampled_from([[], {}, [1], ["a"], {"a": 1}, [None], [[]]])
keys = st.sampled_from(KEYS) | text.filter(lambda key: key not in FIELDS)
comparable = scalars.filter(lambda value: value is not None and not isinstance(value, bool))
operators = st.one_of(
    st.fixed_dictionaries({"ne": scalars}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"prefix": text | st.sampled_from(TEXTS)}),
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), comparable, min_size=1, max_size=2),
    st.fixed_dictionaries({"in": st.lists(scalars, max_size=20)}),
)
operands = scalars | st.lists(scalars, max_size=4) | operators
metadata = st.dictionaries(st.sampled_from(KEYS[:3]) | keys, scalars | nested, max_size=4)
conditions = st.dictionaries(st.sampled_from(KEYS[:3]) | keys, operands, min_size=1, max_size=2)

agreeing = settings(
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


async def check(store: EpisodicStore, drafts: list[Draft], asked: list[dict[str, Any]]) -> None:
    await store.transfer(drafts)
    records = await store.read([one.id for one in drafts])
    assert [r.metadata for r in records] == [d.metadata for d in drafts]
    for wanted in asked:
        where = parse_where(wanted, FIELDS)
        found = await store.timeline(Page(Filter(where=where, ids=tuple(one.id for one in drafts))))
        expected = {r.id for r in records if where.matches(r.__dict__)}
        assert {r.id for r in found.records} == expected, wanted


@agreeing
@given(held=st.lists(metadata, min_size=1, max_size=6), asked=st.lists(conditions, min_size=1, max_size=6))
async def test_metadata_filters_agree_with_the_reference(
    store: EpisodicStore, held: list[dict[str, Any]], asked: list[dict[str, Any]]
) -> None:
    await check(store, [draft(metadata=one) for one in held], asked)


field_operands = {
    "salience": st.one_of(
        st.sampled_from([*NUMBERS, *HUGE, None, True, "1", [0.1, None], [], {"exists": True}, {"ne": None}]),
        st.dictionaries(
            st.sampled_from(["gt", "gte", "lt", "lte", "ne"]), st.sampled_from(NUMBERS + HUGE), min_size=1
        ),
    ),
    "access_count": st.one_of(
        st.sampled_from([0, 1.0, 2**53 - 1, None, False, "0", {"exists": False}, {"prefix": "1"}]),
        st.dictionaries(
            st.sampled_from(["gt", "gte", "lt", "lte", "ne"]), st.sampled_from(NUMBERS + HUGE), min_size=1
        ),
    ),
    "role": operands,
    "key": operands,
    "created_at": st.one_of(
        st.sampled_from(["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000Z", "x", None, {"prefix": "2024"}]),
        st.fixed_dictionaries({"gte": st.just("2024-01-01T00:00:00Z")}),
        st.fixed_dictionaries({"lt": st.just("2024-01-01T00:00:00.001Z")}),
    ),
    "accessed_at": st.sampled_from([None, {"exists": True}, {"gt": "2020-01-01T00:00:00Z"}, {"ne": None}]),
}
fields = st.fixed_dictionaries({}, optional=field_operands).filter(bool)
values = st.fixed_dictionaries(
    {
        "salience": st.sampled_from([float(n) for n in [*NUMBERS, 2**64, 1.79e308, 5e-324, 1e22]]),
        "access_count": st.sampled_from([0, 1, 7, 2**53 - 1]),
        "role": st.sampled_from([None, *(t for t in TEXTS if t)]),
        "created_at": st.sampled_from(["2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.001Z"]),
        "accessed_at": st.sampled_from([None, "2025-01-01T00:00:00.000Z"]),
    }
)


@agreeing
@given(held=st.lists(values, min_size=1, max_size=5), asked=st.lists(fields, min_size=1, max_size=6))
async def test_filters_on_fields_agree_with_the_reference(
    store: EpisodicStore, held: list[dict[str, Any]], asked: list[dict[str, Any]]
) -> None:
    await check(store, [draft(key=name("k"), **one) for one in held], asked)


async def test_many_alternatives_are_compared_exactly(store: EpisodicStore) -> None:
    drafts = [draft(metadata={"n": n}) for n in (5, 5.0, True, "5", 10**23, 1e23, None, [5])]
    ids = [one.id for one in drafts]
    await store.write(drafts, EVERYONE)
    wanted = parse_where({"n": [*range(100), 10**23]}, FIELDS)
    found = await store.timeline(Page(Filter(where=wanted, ids=tuple(ids))))
    assert [r.id for r in found.records] == [ids[0], ids[1], ids[4]]
