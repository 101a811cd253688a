"""Batches hold one session each, keep their order and leave groups whole."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from a2m_cli.batches import Batch, batches, halves
from a2m_cli.formats import Item

MEGABYTE = 2**20


def item(line: int, session: str | None = "s", group: str | None = None, content: str = "") -> Item:
    fields = {"id": str(line), "session": session, "group": group, "content": content}
    return Item(line, {name: value for name, value in fields.items() if value is not None})


def cut(
    items: list[Item], *, size: int = 3, longest: int = 100, most_bytes: int = MEGABYTE
) -> list[list[int]]:
    made = batches(items, size=size, longest=longest, most_bytes=most_bytes)
    return [[held.line for held in batch.items] for batch in made]


def test_sessions_that_alternate_are_told_apart() -> None:
    items = [item(at, "ab"[at % 2]) for at in range(8)]
    assert cut(items) == [[0, 2, 4], [1, 3, 5], [6], [7]]


def test_records_of_no_session_are_batched_too() -> None:
    assert cut([item(1, None), item(2, None)]) == [[1, 2]]


def test_a_batch_grows_rather_than_cut_a_group() -> None:
    items = [item(1), item(2), *(item(at, group="g") for at in (3, 4, 5)), item(6)]
    assert cut(items) == [[1, 2, 3, 4, 5], [6]]


def test_a_group_beyond_what_a_server_takes_is_cut() -> None:
    assert cut([item(at, group="g") for at in range(5)], longest=4) == [[0, 1, 2, 3], [4]]


def test_a_batch_of_long_records_ends_early() -> None:
    assert cut([item(at, content="x" * 400) for at in range(4)], size=10, most_bytes=1_000) == [
        [0, 1],
        [2, 3],
    ]


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.integers(0, 4)), max_size=80),
    st.integers(1, 10),
)
def test_nothing_is_lost_and_sessions_keep_their_order(
    drawn: list[tuple[str | None, int]], size: int
) -> None:
    items = [
        item(at, session, None if group == 0 else f"{session}{at // 3}")
        for at, (session, group) in enumerate(drawn)
    ]
    made = list(batches(items, size=size, longest=200, most_bytes=MEGABYTE))
    assert sorted(held.line for batch in made for held in batch.items) == list(range(len(items)))
    for session in (None, "a", "b"):
        lines = [held.line for batch in made if batch.session == session for held in batch.items]
        assert lines == sorted(lines)
    for batch in made:
        assert {held.session for held in batch.items} == {batch.session}
    for one, other in pairwise(batch for batch in made if batch.session == "a"):
        assert one.items[-1].group is None or one.items[-1].group != other.items[0].group


def test_a_batch_is_halved_in_order() -> None:
    first, second = halves(Batch("s", (item(1), item(2), item(3))))
    assert ([i.line for i in first.items], [i.line for i in second.items]) == ([1], [2, 3])
