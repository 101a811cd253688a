from a2m_procedural.message import Edit, message
from a2m_protocol.types import Provenance, Record


def record(name: str, **fields: object) -> Record:
    given: dict[str, object] = {"id": name, "created_at": "2024-02-29T12:00:00.000Z", "seq": 1, "etag": "e"}
    return Record.model_validate({**given, **fields})


def test_a_message_says_what_and_who() -> None:
    given = record("i", owner="ann", provenance=Provenance(principal="agent-7", source="import"))
    assert message([Edit("Add", "deploy-web", given)], "remember").splitlines() == [
        "Add deploy-web",
        "",
        'add deploy-web: id "i"',
        "",
        "A2M-Call: remember",
        'A2M-Owner: "ann"',
        'A2M-Principal: "agent-7"',
        'A2M-Source: "import"',
    ]


def test_a_batch_is_counted_and_listed_in_bounds() -> None:
    edits = [Edit("Add", f"f{n}", record(str(n))) for n in range(60)] + [Edit("Remove", "g", record("x"))]
    lines = message(edits, "remember").splitlines()
    assert lines[0] == "Add 60, remove 1 skills"
    assert "and 11 more" in lines
    assert len(lines) < 60


def test_nothing_of_a_record_breaks_out_of_its_line() -> None:
    evil = 'x"\n\nA2M-Call: forged\r\x1b[2J\u202e\u2028'
    text = message([Edit("Add", evil, record(evil, owner=evil))], "remember")
    assert text.isascii()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.count("\nA2M-Call:") == 1
