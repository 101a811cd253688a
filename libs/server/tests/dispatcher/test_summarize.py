import asyncio
from typing import Any

import pytest

from a2m_server.summarize import MAX_TEXT, extract, newest

TEXTS = [
    "The tea party starts at five. Somebody coughed.",
    "Ann brings green tea to the tea party. It rained in Spain.",
    "Bob brings black tea to the tea party in the garden!",
]


async def test_a_summary_is_one_more_record_and_its_sources_stay(memory: Any) -> None:
    ids = await memory.remember(*({"content": t, "role": "user", "session": "s"} for t in TEXTS))
    result = await memory.ok("summarize", where={"session": "s"}, key="sum/s")
    assert (result["read"], result["written"]) == (3, 1)
    (record,) = result["records"]
    assert (record["role"], record["key"], record["revision"]) == ("memory", "sum/s", 0)
    at = record["provenance"].pop("at")
    assert record["created_at"][:10] == at[:10]
    assert record["provenance"] == {"method": "summarize", "derived_from": ids}
    assert "tea party" in record["content"]
    assert len(await memory.contents()) == 4


async def test_a_summary_replaces_at_its_key(memory: Any) -> None:
    await memory.remember({"content": "First about tea."})
    first = await memory.ok("summarize", query="tea", key="k")
    await memory.remember({"content": "Then of coffee."})
    second = await memory.ok("summarize", query="coffee", key="k")
    assert second["records"][0]["id"] == first["records"][0]["id"]
    assert (second["records"][0]["content"], second["records"][0]["revision"]) == ("Then of coffee.", 1)


async def test_nothing_selected_is_nothing_written(memory: Any) -> None:
    await memory.remember({"content": "tea"}, {"content": "!?", "role": "tool"})
    nothing = {"records": [], "read": 0, "written": 0}
    for params in (
        {"query": "coffee"},
        {"ids": []},
        {"query": "?!"},
        {"where": {"role": "user"}},
        {"key_prefix": "k"},
    ):
        assert await memory.ok("summarize", **params) == nothing
    assert await memory.ok("summarize", where={"role": "tool"}) == {"records": [], "read": 1, "written": 0}
    assert len(await memory.contents()) == 2


@pytest.mark.parametrize(
    "params",
    [{}, {"limit": 5}, {"query": ""}, {"where": {}}, {"ids": "x"}, {"query": "x", "key": ""}, {"query": 5}],
)
async def test_a_selector_is_needed(memory: Any, params: Any) -> None:
    assert await memory.code("summarize", **params) == -32602


async def test_tiers_are_not_supported_where_there_are_none(memory: Any) -> None:
    assert await memory.code("summarize", query="x", into="semantic") == -32003
    assert await memory.code("summarize", tier="semantic") == -32003


async def test_a_limit_takes_the_newest(memory: Any) -> None:
    await memory.remember({"content": "Old tea."}, {"content": "New tea."})
    result = await memory.ok("summarize", query="tea", limit=1)
    assert (result["read"], result["records"][0]["content"]) == (1, "New tea.")


def test_what_is_said_most_is_kept_in_the_order_of_the_texts() -> None:
    summary = extract(TEXTS, 2).split("\n")
    assert len(summary) == 2
    assert all("tea party" in sentence for sentence in summary)
    assert extract(TEXTS, 2) == extract(TEXTS, 2)


def test_a_repetition_is_left_out() -> None:
    assert extract(["Tea is green.", "Tea is green."]) == "Tea is green."


def test_texts_without_a_word_give_nothing() -> None:
    assert extract(["", "!?", " \n "]) == ""


def test_sentences_of_other_scripts_are_told_apart() -> None:
    assert extract(["猫が好きです。犬も好きです。"], 1) in ("猫が好きです。", "犬も好きです。")


def test_a_very_long_sentence_is_shortened() -> None:
    assert len(extract(["word " * 5000])) <= 602


def test_the_newest_text_is_taken_up_to_a_bound() -> None:
    texts = ["one", "two", "three"]
    assert newest(texts) == texts
    assert newest(texts, 8) == ["two", "three"]
    assert newest(texts, 7) == ["wo", "three"]
    assert newest(texts, 5) == ["three"]
    assert newest(texts, 2) == ["ee"]
    assert newest([], 2) == newest(texts, 0) == []


async def test_a_long_summary_leaves_the_server_free_and_reads_the_newest(memory: Any) -> None:
    line = "The harbour of town {n} has {n} boats and a lighthouse.\n"
    half = "".join(line.format(n=n) for n in range(2_000))[: MAX_TEXT // 2]
    ids = await memory.remember(*({"content": half} for _ in range(4)))
    summary = asyncio.create_task(memory.ok("summarize", ids=ids))
    turns = 0
    while not summary.done():
        turns += 1
        await asyncio.sleep(0)
    result = await summary
    assert (result["read"], result["written"]) == (2, 1)
    assert result["records"][0]["provenance"]["derived_from"] == ids[2:]
    assert turns > 100
