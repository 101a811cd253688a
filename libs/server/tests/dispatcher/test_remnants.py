from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from a2m_server.identity import ANONYMOUS, LOOPBACK
from a2m_server.memory import MemoryTier
from a2m_server.values import Erased, Filter, Forgotten, StoreInfo


class Keeping(MemoryTier):
    """A tier with a history, which says of what it was asked."""

    def __init__(self) -> None:
        super().__init__("keeping")
        self.asked: list[tuple[list[str], bool]] = []

    async def info(self) -> StoreInfo:
        info = await super().info()
        return replace(info, extensions=info.extensions | {"erase"})

    async def forget(self, selected: Filter) -> Forgotten:
        receipt = await super().forget(selected)
        return replace(receipt, history={"keeping": len(receipt.ids)} if receipt.ids else {})

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        self.asked.append(([*ids], dry))
        live = {record.id for record in await self.read(ids)}
        outcomes = {i: "live" if i in live else "held" if dry else "erased" for i in ids}
        return Erased(outcomes, {} if dry else {"keeping": len(ids)})  # pyright: ignore[reportArgumentType] words


@pytest.fixture
def keeping() -> Keeping:
    return Keeping()


@pytest.fixture
def caller(connect: Any, keeping: Keeping) -> Any:
    return connect(keeping)


async def test_remnants_are_told_by_id_and_place(memory: Any) -> None:
    await memory.remember({"id": "a", "content": "x", "key": "k"}, {"id": "b", "content": "y"})
    found = await memory.ok("remnants", ids=["a", "a", "none"])
    assert found["checked"] == ["memory"]
    places = {(r["id"], r["place"]) for r in found["remnants"]}
    assert places == {("a", "records"), ("a", "order"), ("a", "keys")}
    await memory.ok("forget", ids=["a"])
    assert await memory.ok("remnants", ids=["a"]) == {"remnants": [], "checked": ["memory"]}
    assert await memory.ok("remnants", ids=[]) == {"remnants": [], "checked": []}


@pytest.mark.parametrize("method", ["remnants", "erase"])
async def test_ids_are_demanded_and_bounded(caller: Any, method: str) -> None:
    assert await caller.code(method) == -32602
    assert await caller.code(method, ids="a") == -32602
    assert await caller.code(method, ids=[str(n) for n in range(1_001)]) == -32602


async def test_nobody_asks_after_another_owners_records(connect: Any, keeping: Keeping, caller: Any) -> None:
    await caller.remember({"id": "hers", "content": "x"}, {"id": "gone", "content": "y"}, owner="ann")
    await caller.ok("forget", ids=["gone"])
    pooled = connect(to=caller, caller=LOOPBACK)
    for record_id in ("hers", "gone"):
        for method, params in (("remnants", {}), ("erase", {}), ("forget", {"erase": True})):
            assert await pooled.code(method, ids=[record_id], **params) == -32005
            assert await caller.code(method, ids=[record_id], owner="bob", **params) == -32005
    assert keeping.asked == []
    assert await caller.ok("remnants", ids=["gone"], owner="ann") == {"remnants": [], "checked": ["keeping"]}


async def test_a_forget_that_erases_takes_along_what_it_names(caller: Any, keeping: Keeping) -> None:
    await caller.remember({"id": "a", "content": "heron"}, {"id": "b", "content": "weir"})
    assert (await caller.ok("forget", ids=["b"]))["history"] == {"keeping": 1}
    told = await caller.ok("forget", ids=["a", "b"], erase=True)
    assert told == {"forgotten": 1, "ids": ["a"], "erased": {"keeping": 2}}
    await caller.remember({"id": "c", "content": "heron"})
    told = await caller.ok("forget", ids=["a", "c"], query="heron", erase=True)
    assert told["erased"] == {"keeping": 1}
    assert keeping.asked == [(["a", "b"], False), (["c"], False)]
    assert await caller.ok("forget", ids=[], erase=True) == {"forgotten": 0}


async def test_a_dry_run_erases_nothing_and_a_record_that_is_there_is_named(
    caller: Any, keeping: Keeping
) -> None:
    await caller.remember({"id": "a", "content": "heron"})
    assert await caller.ok("erase", ids=["a", "b"], dry=True) == {
        "outcomes": {"a": "live", "b": "held"},
        "tiers": {},
    }
    assert keeping.asked == [(["a", "b"], True)]
    assert (await caller.ok("erase", ids=["a"]))["outcomes"] == {"a": "live"}


async def test_erasing_is_for_those_who_may_where_there_is_a_history(
    connect: Any, keeping: Keeping, caller: Any, memory: Any
) -> None:
    await caller.remember({"id": "a", "content": "heron"})
    stranger = connect(to=caller, caller=ANONYMOUS)
    for method in ("remnants", "erase", "forget"):
        assert await stranger.code(method, ids=["a"], erase=True) == -32005
    assert (await stranger.ok("forget", ids=["none"])) == {"forgotten": 0}
    assert await memory.code("forget", ids=["a"], erase=True) == -32003
    assert await memory.code("erase", ids=["a"]) == -32003
    assert await caller.contents() == ["heron"]
