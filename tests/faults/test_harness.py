"""The harness itself: what is killed comes back with its data, pauses hold, the network is cut and healed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from uuid import uuid4

import pytest
from cutter import Mode
from harness import TIERS, Federation
from nursery import Nursery
from pausing import poll


@pytest.mark.parametrize("victim", ["valkey", "postgres", *TIERS, "router"])
def test_what_is_killed_comes_back_with_its_data(federation: Federation, victim: str) -> None:
    session = uuid4().hex
    records = [{"id": f"{session}/{n}", "content": f"turn {n}"} for n in range(federation.capacity + 2)]
    federation.router.call("remember", records=records, session=session, owner="ana")
    federation.settle()
    federation.restart(victim)
    federation.settle()
    found = federation.router.call("timeline", where={"session": session}, owner="ana")["records"]
    assert [record["id"] for record in found] == [record["id"] for record in records]
    assert [len(entries) for entries in federation.held(where={"session": session}).values()] == [6, 2, 0, 0]


def test_a_router_stops_at_a_step_until_it_is_told_to_go_on(federation: Federation) -> None:
    session = uuid4().hex
    federation.router.call("remember", records=[{"content": "hello"}], session=session)
    with federation.pause("move: copied") as pause:
        closing = federation.later(federation.router.call, "session/close", session=session)
        pause.reached()
        held = federation.held(where={"session": session})
        assert [len(held[tier]) for tier in ("working", "episodic")] == [1, 1]
        assert not closing.done()
    assert closing.result(10)["flushed"] == 1


@pytest.fixture(scope="module")
def cuttable(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("cuttable")
    with Federation(folder, nursery, proxied=["episodic"], tier_timeout=1.0) as federation:
        yield federation


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_cut_network_is_healed(cuttable: Federation, mode: Mode) -> None:
    record = {"id": uuid4().hex, "content": "hello", "tier": "episodic"}
    assert cuttable.router.call("remember", records=[record])["ids"] == [record["id"]]
    cutter = cuttable.cutters["episodic"]
    cutter.cut(mode, 3.0)
    found = cuttable.router.call("timeline")
    if mode == "pass":
        assert "degraded" not in found
    else:
        assert [silent["tier"] for silent in found["degraded"]] == ["episodic"]
    cutter.heal()
    poll("episodic answers", lambda: "degraded" not in cuttable.router.call("timeline"))
    assert record["id"] in [held["id"] for held in cuttable.router.call("timeline")["records"]]
    cuttable.settle()


def test_three_routers_serve_one_federation(nursery: Nursery, tmp_path: Path) -> None:
    with Federation(tmp_path, nursery, routers=3) as federation:
        for router in federation.routers:
            router.call("remember", records=[{"content": router.name}], session="s")
        federation.restart("router2")
        federation.settle()
        for router in federation.routers:
            found = router.call("timeline", where={"session": "s"})["records"]
            assert [record["content"] for record in found] == ["router", "router2", "router3"]
