import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from a2m_protocol.errors import unavailable
from a2m_server.memory import MemoryTier
from a2m_server.params import MAX_QUERY
from a2m_server.values import Degraded, Found, Page, Search, StoreInfo

BAD_LIMITS = [-1, 1.5, True, "8", [], {}]


@pytest.fixture
async def filled(memory: Any) -> Any:
    await memory.remember(
        *({"id": f"r{n}", "content": f"note {n} about tea", "role": "user"} for n in range(12)),
        {"id": "v", "content": "a vector", "embedding": [0.1, 0.2]},
    )
    return memory


async def test_recall_gives_eight_best_first(filled: Any) -> None:
    records = (await filled.ok("recall", query="tea"))["records"]
    assert len(records) == 8
    scores = [r["score"] for r in records]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


async def test_of_what_is_searched_for_the_first_characters_count(memory: Any) -> None:
    await memory.remember({"id": "t", "content": "tea"}, {"id": "c", "content": "coffee"})
    query = f"  tea {' ' * MAX_QUERY} coffee"
    assert [r["id"] for r in (await memory.ok("recall", query=query))["records"]] == ["t"]


@pytest.mark.parametrize("query", [None, "", "  \n"])
async def test_recall_without_a_query_is_newest_first(filled: Any, query: object) -> None:
    records = (await filled.ok("recall", query=query, limit=3))["records"]
    assert [r["id"] for r in records] == ["v", "r11", "r10"]


async def test_recall_by_a_vector(filled: Any) -> None:
    records = (await filled.ok("recall", embedding=[0.1, 0.2], embeddings=True))["records"]
    assert [r["id"] for r in records] == ["v"]
    assert records[0]["embedding"] == pytest.approx([0.1, 0.2])
    assert await filled.code("recall", embedding=[0.1, 0.2, 0.3]) == -32008


async def test_vectors_come_back_on_request_alone(filled: Any) -> None:
    for method in ("recall", "timeline"):
        records = (await filled.ok(method, limit=20))["records"]
        assert not any("embedding" in r for r in records)
        records = (await filled.ok(method, limit=20, embeddings=True))["records"]
        assert sum("embedding" in r for r in records) == 1


async def test_limit_zero_of_recall_is_as_many_as_the_server_gives(filled: Any) -> None:
    assert len((await filled.ok("recall", limit=0))["records"]) == 13
    assert await filled.code("recall", limit=1001) == -32602


async def test_timeline_takes_the_newest_in_the_order_of_writing(filled: Any) -> None:
    assert len(await filled.contents()) == 13
    assert len(await filled.contents(limit=0)) == 13
    assert len(await filled.contents(limit=10**30)) == 13
    assert await filled.contents(limit=2) == ["note 11 about tea", "a vector"]


@pytest.mark.parametrize("method", ["recall", "timeline"])
@pytest.mark.parametrize("limit", BAD_LIMITS)
async def test_a_limit_is_an_integer_that_is_not_negative(memory: Any, method: str, limit: object) -> None:
    assert await memory.code(method, limit=limit) == -32602


@pytest.mark.parametrize(
    "params",
    [
        {"query": 5},
        {"query": ["x"]},
        {"query": "\x00"},
        {"query": "\ud800"},
        {"min_score": "0.5"},
        {"min_score": True},
        {"min_score": 10**400},
        {"owner": 5},
        {"owner": ""},
        {"where": "x"},
        {"where": {"role": {}}},
        {"where": {"role": {"like": 1}}},
        {"where": {"\ud800": 1}},
        {"embedding": "x"},
        {"embedding": []},
        {"embedding": [None]},
        {"embeddings": "yes"},
        {"key_prefix": 5},
        {"key_prefix": ""},
        {"key_prefix": "/"},
        {"touch": 1},
        {"prompt": "yes"},
    ],
)
async def test_a_parameter_of_a_wrong_type_is_invalid(memory: Any, params: Any) -> None:
    assert await memory.code("recall", **params) == -32602


async def test_a_key_prefix_matches_at_and_beneath(memory: Any) -> None:
    for key in ("a", "a/b", "a/b/c", "ab", "a%"):
        await memory.remember({"content": key, "key": key})
    for prefix in ("a", "a/", "a//"):
        assert await memory.contents(key_prefix=prefix) == ["a", "a/b", "a/b/c"]
    assert await memory.contents(key_prefix="a/b") == ["a/b", "a/b/c"]


async def test_where_falls_back_to_metadata(memory: Any) -> None:
    await memory.remember({"content": "a", "metadata": {"lang": "cs"}}, {"content": "b"})
    assert await memory.contents(where={"lang": "cs"}) == ["a"]
    assert await memory.contents(where={"lang": None}) == ["b"]
    assert await memory.contents(where={"lang": [None, "cs"]}) == ["a", "b"]


async def test_min_score_drops_what_scores_lower(filled: Any) -> None:
    assert (await filled.ok("recall", query="tea", min_score=0.99))["records"] == []
    assert len((await filled.ok("recall", query="tea", min_score=0))["records"]) == 8


async def test_recall_counts_an_access_and_the_next_read_shows_it(filled: Any) -> None:
    first = (await filled.ok("recall", query="tea"))["records"]
    again = (await filled.ok("recall", query="tea"))["records"]
    assert [r["id"] for r in first] == [r["id"] for r in again]
    assert {r["access_count"] for r in again} == {1}
    assert all(r["accessed_at"] >= r["created_at"] for r in again)
    after = (await filled.ok("recall", query="tea", touch=False))["records"]
    assert {r["access_count"] for r in after} == {2}


async def test_reads_that_are_no_recall_count_nothing(filled: Any) -> None:
    await filled.ok("timeline")
    await filled.ok("recall", touch=False)
    assert {r["access_count"] for r in (await filled.ok("timeline"))["records"]} == {0}


class Slow(MemoryTier):
    """Counts no access until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.calls: list[Sequence[str]] = []
        self.broken = False

    async def touch(self, ids: Sequence[str], at: str) -> None:
        self.calls.append(ids)
        await self.gate.wait()
        if self.broken:
            raise unavailable("the database", "it went away")
        await super().touch(ids, at)


async def test_accesses_are_counted_together_and_written_before_closing(connect: Any) -> None:
    store = Slow()
    memory = connect(store)
    await memory.remember({"id": "a", "content": "x"})
    for _ in range(5):
        await memory.ok("recall")
    store.gate.set()
    await memory.dispatcher.close()
    assert [len(ids) for ids in store.calls] == [1, 4]
    assert (await store.read(["a"]))[0].access_count == 5


async def test_a_store_that_cannot_count_does_not_fail_the_recall(connect: Any) -> None:
    store = Slow()
    store.broken = True
    store.gate.set()
    memory = connect(store)
    await memory.remember({"id": "a", "content": "x"})
    await memory.ok("recall")
    assert (await memory.ok("recall"))["records"][0]["access_count"] == 0


class Partial(MemoryTier):
    """Half of it does not answer."""

    async def search(self, search: Search) -> Found:
        return Found([], degraded=(Degraded("semantic", "no answer in 2 s"),))

    async def timeline(self, page: Page) -> Found:
        return Found([], elsewhere=True, degraded=(Degraded("semantic", "no answer in 2 s"),))


async def test_a_read_says_which_tier_did_not_answer(connect: Any) -> None:
    memory = connect(Partial())
    degraded = [{"tier": "semantic", "reason": "no answer in 2 s"}]
    assert await memory.ok("recall") == {"records": [], "degraded": degraded}
    assert await memory.ok("timeline") == {"records": [], "degraded": degraded, "elsewhere": True}


async def test_sessions_are_listed_and_closing_one_flushes_nothing_where_there_is_no_tier_below(
    memory: Any,
) -> None:
    await memory.remember(
        {"content": "x", "session": "s"}, {"content": "y", "session": "t"}, {"content": "z"}
    )
    listed = (await memory.ok("session/list"))["sessions"]
    assert [(s["session"], s["records"]) for s in listed] == [("s", 1), ("t", 1)]
    assert listed[0]["opened_at"] <= listed[0]["touched_at"]
    closed = await memory.ok("session/close", session="s")
    assert closed == {
        "moved": 0,
        "promoted": 0,
        "dropped": 0,
        "summarized": 0,
        "counts": {"memory": 3},
        "closed": "s",
        "flushed": 0,
    }
    assert (await memory.ok("session/close", session="never"))["flushed"] == 0
    for session in (None, "", 5):
        assert await memory.code("session/close", session=session) == -32602


class Asked(MemoryTier):
    """Counts how often it is asked what it is."""

    asked = 0

    async def info(self) -> StoreInfo:
        self.asked += 1
        return await super().info()


async def test_a_call_costs_the_store_no_question_of_what_it_is(connect: Any) -> None:
    store = Asked()
    memory = connect(store)
    for _ in range(20):
        await memory.remember({"content": "x"})
        await memory.ok("timeline")
    assert store.asked == 1
    await memory.remember({"content": "x", "embedding": [1.0]})
    assert (await memory.ok("describe"))["embeddings"]["dimensions"] == 1
