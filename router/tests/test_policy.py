from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from a2m_protocol.types import Record
from a2m_router import merge
from a2m_router.policy import arrival, batches, overflow, standing, units
from a2m_server.values import Entry, SessionInfo


def entry(at: int, group: str | None = None, **fields: object) -> Entry:
    return Entry(f"id{at}", seq=at, etag="e", group=group, **fields)  # pyright: ignore[reportArgumentType]


def record(record_id: str = "a", seq: int = 1, **fields: object) -> Record:
    return Record.model_validate({"id": record_id, "seq": seq, "etag": "e", "created_at": "x", **fields})


ENTRIES = st.lists(st.sampled_from([None, "g", "h"]), max_size=30).map(
    lambda groups: [entry(at, group) for at, group in enumerate(groups)]
)


@given(ENTRIES, st.integers(0, 10))
def test_what_leaves_are_the_oldest_units_and_no_more_than_needed(
    entries: list[Entry], capacity: int
) -> None:
    leaving = overflow(entries, capacity)
    gone = [i for unit in leaving for i in unit.ids]
    assert len(gone) == len(set(gone))
    if not capacity or len(entries) <= capacity:
        assert gone == []
    else:
        assert len(entries) - len(gone) <= capacity
        assert len(entries) - len(gone) + len(leaving[-1].ids) > capacity
    for group in ("g", "h"):
        members = {e.id for e in entries if e.group == group}
        assert members.isdisjoint(gone) or members.issubset(gone)
    assert leaving == units(entries)[: len(leaving)]


def test_groups_of_two_owners_are_two_groups() -> None:
    made = units([entry(1, "g", owner="a"), entry(2, "g", owner="b"), entry(3, "g", owner="a")])
    assert [unit.ids for unit in made] == [["id1", "id3"], ["id2"]]


def test_with_a_half_life_what_has_decayed_the_furthest_leaves_first() -> None:
    day = 86_400 * 10**6
    old_but_dear, new_but_poor = entry(0, salience=8.0), entry(2 * day, salience=1.0)
    recalled = entry(1, salience=1.5, accessed_at="1970-01-03T00:00:00.000Z")
    now = 2 * day
    leaving = overflow([old_but_dear, new_but_poor, recalled], 2, half_life=86_400, now=now)
    assert [unit.ids for unit in leaving] == [["id172800000000"]]


@given(ENTRIES, st.integers(1, 7))
def test_batches_keep_units_whole_and_lose_none(entries: list[Entry], size: int) -> None:
    made = list(batches(units(entries), size))
    assert [unit for batch in made for unit in batch] == units(entries)
    for batch in made:
        assert len(batch) == 1 or sum(len(unit.ids) for unit in batch) <= size


def test_how_a_copy_stands_to_its_original() -> None:
    original = record(etag="one", salience=2.0)
    mark = arrival("working", original)
    same = original.model_copy(update={"etag": "x", "moves": 1, "arrival": mark})
    cases = {
        "same": [same, same.model_copy(update={"tier": "episodic"})],
        "ahead": [
            same.model_copy(update={"arrival": None}),
            same.model_copy(update={"access_count": 1}),
            same.model_copy(update={"salience": 3.0}),
            same.model_copy(update={"revision": 1, "content": "new"}),
            same.model_copy(update={"moves": 2}),
        ],
        "stale": [
            same.model_copy(update={"arrival": "working other"}),
            same.model_copy(update={"content": "garbled"}),
        ],
    }
    for expected, copies in cases.items():
        for copy in copies:
            assert standing(original, "working", copy, 0.0) == expected
    raised = same.model_copy(update={"salience": 2.5})
    assert standing(original, "working", raised, 0.5) == "same"


def test_a_record_in_two_tiers_is_shown_once_as_the_newer_of_them() -> None:
    answers = {
        "working": [record("a", 1), record("b", 2)],
        "episodic": [record("a", 1, moves=1), record("c", 3)],
    }
    shown = merge.in_order(answers, None)
    assert [(r.id, r.tier) for r in shown] == [("a", "episodic"), ("b", "working"), ("c", "episodic")]
    assert [r.id for r in merge.in_order(answers, 2)] == ["b", "c"]
    assert [r.id for r in merge.by_recency(answers, 2)] == ["c", "b"]
    ranked = merge.by_rank(answers, 10, None)
    assert [r.id for r in ranked] == ["a", "b", "c"]
    assert ranked[0].score == 1.0


def test_sessions_add_up_over_tiers_by_owner() -> None:
    def info(owner: str | None, records: int, opened: str, touched: str) -> SessionInfo:
        return SessionInfo("s", records, opened, touched, owner)

    working = [info("a", 1, "2", "3"), info(None, 5, "1", "1")]
    merged = merge.sessions({"working": working, "episodic": [info("a", 2, "1", "2")]})
    assert [(s.owner, s.records, s.opened_at, s.touched_at, dict(s.tiers)) for s in merged] == [
        (None, 5, "1", "1", {"working": 5}),
        ("a", 3, "1", "3", {"working": 1, "episodic": 2}),
    ]
