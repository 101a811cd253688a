from a2m_protocol.clock import parse_ms, seq_of
from a2m_protocol.types import Draft
from a2m_server.sequence import with_seq

NOON = "2024-02-29T12:00:00.000Z"
AT = seq_of(parse_ms(NOON))


def seqs(*fields: dict[str, object], now: int = AT) -> list[int | None]:
    drafts = [Draft.model_validate({"id": str(n), **given}) for n, given in enumerate(fields)]
    return [draft.seq for draft in with_seq(drafts, now)]


def test_a_seq_that_is_given_stays() -> None:
    assert seqs({"seq": 5}, {"seq": -5, "created_at": NOON}) == [5, -5]


def test_a_created_at_gives_the_seq_and_the_position_tells_equal_ones_apart() -> None:
    at = {"created_at": NOON}
    earlier = {"created_at": "2024-02-29T11:59:59.999Z"}
    assert seqs(at, at, earlier, at, {"seq": 1}, earlier) == [AT, AT + 1, AT - 1000, AT + 2, 1, AT - 999]


def test_without_either_the_clock_gives_it_in_the_order_given() -> None:
    assert seqs({}, {"created_at": NOON}, {}, now=AT + 999) == [AT, AT + 1, AT + 2]
    many = seqs(*({} for _ in range(1500)), now=AT + 999)
    assert many == [*range(AT, AT + 1500)]
