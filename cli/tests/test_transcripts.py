"""Chat transcripts and turn lines become records: the same ones in every run, and all that was in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2m_cli.transcripts import LineError, Stamps, chat_records, turn_record
from a2m_protocol.errors import JsonObject

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def chat(*messages: JsonObject, **more: object) -> list[JsonObject]:
    line = {"conversation": "talk", "messages": list(messages), **more}
    return list(chat_records(line, "file-000001", Stamps(start=0)))


def say(role: str, content: object = "words", **more: object) -> JsonObject:
    return {"role": role, "content": content, **more}


def test_a_conversation_is_a_session_in_its_order() -> None:
    records = chat(say("user", "hello"), say("assistant", "hi"))
    assert [(r["session"], r["role"], r["content"]) for r in records] == [
        ("talk", "user", "hello"),
        ("talk", "assistant", "hi"),
    ]
    assert [r["created_at"] for r in records] == ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.000Z"]
    assert [r["seq"] for r in records] == [0, 1_000_000]


def test_the_same_line_gives_the_same_records() -> None:
    assert chat(say("user"), say("assistant")) == chat(say("user"), say("assistant"))


def test_another_conversation_of_the_same_name_has_other_ids() -> None:
    assert chat(say("user", "a"))[0]["id"] != chat(say("user", "b"))[0]["id"]


def test_a_message_with_calls_and_its_answers_are_a_group() -> None:
    second = {**CALL, "id": "c2"}
    records = chat(
        say("user"),
        say("assistant", None, tool_calls=[CALL, second]),
        say("tool", "one", tool_call_id="c1", name="look"),
        say("tool", "two", tool_call_id="c2", name="look"),
        say("assistant"),
    )
    assert [r.get("group") for r in records] == [None, "talk/0001", "talk/0001", "talk/0001", None]
    assert records[1]["content"] == ""
    assert records[1]["metadata"] == {"tool_calls": [CALL, second]}
    assert records[2]["metadata"] == {"tool_call_id": "c1", "name": "look"}


def test_a_call_id_that_comes_again_names_the_later_call() -> None:
    records = chat(
        say("assistant", None, tool_calls=[CALL]),
        say("tool", tool_call_id="c1"),
        say("assistant", None, tool_calls=[CALL]),
        say("tool", tool_call_id="c1"),
    )
    assert [r.get("group") for r in records] == ["talk/0000", "talk/0000", "talk/0002", "talk/0002"]


def test_an_answer_to_no_call_stands_alone() -> None:
    assert "group" not in chat(say("tool", tool_call_id="nobody"))[0]


def test_function_calls_of_the_older_kind_are_grouped_too() -> None:
    call = {"name": "look", "arguments": "{}"}
    records = chat(say("assistant", None, function_call=call), say("function", "seen", name="look"))
    assert [r.get("group") for r in records] == ["talk/0000", "talk/0000"]


def test_parts_become_text_and_are_kept() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}, "this"]
    record = chat(say("user", parts))[0]
    assert record["content"] == "see\nthis"
    assert record["metadata"] == {"content_parts": parts}


def test_what_else_a_line_has_is_kept_with_its_first_message() -> None:
    first, second = chat(say("user"), say("assistant"), reward=1.0)
    assert first["metadata"] == {"transcript": {"reward": 1.0}}
    assert "metadata" not in second


def test_a_conversation_without_a_name_is_named_after_its_line() -> None:
    line: JsonObject = {"messages": [say("user")]}
    assert next(iter(chat_records(line, "file-000007", Stamps())))["session"] == "file-000007"


def test_times_of_messages_are_kept_in_utc() -> None:
    records = chat(
        say("user", created_at="2026-03-01T12:00:00+02:00"),
        say("assistant", timestamp="2026-03-01T10:00:05.250Z"),
        say("user"),
    )
    assert [r["created_at"] for r in records] == [
        "2026-03-01T10:00:00.000Z",
        "2026-03-01T10:00:05.250Z",
        "2026-03-01T10:00:06.250Z",
    ]


def test_a_message_out_of_time_keeps_its_place_and_its_time() -> None:
    records = chat(
        say("user", created_at="2026-03-01T10:00:00Z"), say("user", created_at="2026-01-01T10:00:00Z")
    )
    assert records[1]["created_at"] == "2026-01-01T10:00:00.000Z"
    assert records[1]["seq"] == records[0]["seq"] + 1


def test_conversations_without_times_follow_each_other_by_an_hour() -> None:
    stamps = Stamps(start=0)
    lines = [{"conversation": name, "messages": [say("user")]} for name in ("a", "b")]
    assert [next(iter(chat_records(line, "x", stamps)))["seq"] for line in lines] == [0, 3_600_000_000]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"messages": []}, "messages: expected an array"),
        ({"messages": "x"}, "messages: expected an array"),
        ({"messages": [1]}, r"messages\[0\]: expected an object"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\]\.role"),
        ({"messages": [{"role": "user", "content": 1}]}, r"messages\[0\]\.content"),
        ({"messages": [{"role": "user", "created_at": 5}]}, r"messages\[0\]\.created_at"),
        ({"messages": [{"role": "user", "created_at": "yesterday"}]}, "not a timestamp with a zone"),
        (
            {"messages": [{"role": "user", "created_at": "2026-01-01T10:00:00"}]},
            "not a timestamp with a zone",
        ),
        ({"conversation": 5, "messages": [{"role": "user"}]}, "conversation: expected a string"),
    ],
)
def test_a_line_that_is_wrong_says_where(line: JsonObject, complaint: str) -> None:
    with pytest.raises(LineError, match=complaint):
        list(chat_records(line, "x", Stamps()))


def test_a_turn_keeps_its_fields_and_the_rest_goes_to_its_metadata() -> None:
    line: JsonObject = {
        "id": "t1",
        "conversation": "c",
        "session": "c/S1",
        "created_at": "2023-05-08T13:56:00.000Z",
        "role": "user",
        "speaker": "Ann",
        "content": "hello",
    }
    assert turn_record(line, "file", Stamps()) == {
        "id": "t1",
        "session": "c/S1",
        "created_at": "2023-05-08T13:56:00.000Z",
        "seq": 1_683_554_160_000_000,
        "role": "user",
        "content": "hello",
        "metadata": {"conversation": "c", "speaker": "Ann"},
    }


def test_a_turn_without_an_id_has_the_same_one_in_every_run() -> None:
    line: JsonObject = {"content": "x", "session": "s"}
    one, other = Stamps(), Stamps()
    first = turn_record(line, "file", one)
    assert turn_record(line, "file", other) == first
    assert turn_record(line, "file", one)["id"] != first["id"]  # the same words again are another turn


def test_a_turn_without_content_is_an_empty_one() -> None:
    assert turn_record({"content": None, "session": "s"}, "file", Stamps())["content"] == ""


@given(st.lists(st.none() | st.integers(0, 10**12), min_size=1, max_size=30))
def test_the_order_of_a_session_is_that_of_the_file_whatever_its_times(times: list[int | None]) -> None:
    stamps = Stamps()
    seqs = [stamps.next("s", time)["seq"] for time in times]
    assert seqs == sorted(set(seqs))
