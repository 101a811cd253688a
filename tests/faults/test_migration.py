"""`a2m migrate` over real engines while clients write, whatever is killed meanwhile."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from caller import Caller
from harness import Federation
from migration import Clients, adopt, check, command, migrate, place, whole
from nursery import Nursery
from pausing import poll

from a2m_protocol.errors import A2MError

FEW, MANY = 500, 20_000
VICTIMS = ["command", *(pytest.param(who, marks=pytest.mark.faults) for who in ("router", "old", "new"))]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def federation(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("migration")
    with Federation(folder, nursery, tier_timeout=10.0) as federation:
        yield federation


@pytest.fixture
def another(
    federation: Federation, postgres_database: Callable[[], str], tmp_path: Path
) -> Callable[[str], Caller]:
    """Starts another service of a kind, over an empty store of its own."""

    def start(tier: str) -> Caller:
        match tier:
            case "episodic":
                settings = {"URL": postgres_database()}
            case "working":
                settings = {"URL": federation.valkey.url, "PREFIX": f"m-{uuid4().hex[:8]}:"}
            case _:
                settings = {"PATH": str(tmp_path / tier)}
        return place(federation, tier, settings)

    return start


@pytest.mark.parametrize("tier", ["episodic", "semantic", "working"])
def test_a_tier_is_brought_to_another_engine_while_clients_write(
    federation: Federation, another: Callable[[str], Caller], tier: str
) -> None:
    old, new = federation.tiers[tier], another(tier)
    clients = Clients(federation, tier)
    clients.fill(FEW)
    told = migrate(federation, tier, new.url, "--dry-run")
    assert (told["state"], told["to"]) == ("ready", new.url)
    assert new.entries() == []
    with clients.busy():
        told = migrate(federation, tier, new.url)
        calls = clients.calls
        poll("clients go on", lambda: clients.calls > calls + 30)
    assert told["records"] == told["verified"] > 0
    assert told["strays"] == 0
    adopt(federation, tier, new)
    check(federation, clients)
    # Who starts anew finds the tier at its new place, and what is left at the old one is nobody's any more.
    before = whole(old)
    federation.restart("router")
    [late] = federation.router.call("remember", records=[{"content": "late", "tier": tier}])["ids"]
    assert [entry["id"] for entry in new.entries(ids=[late])] == [late]
    assert whole(old) == before
    check(federation, clients)
    assert migrate(federation, tier, new.url)["state"] == "switched"


def test_all_of_a_quiet_tier_is_the_same_afterwards(
    federation: Federation, another: Callable[[str], Caller]
) -> None:
    old, new = federation.tiers["episodic"], another("episodic")
    clients = Clients(federation, "episodic")
    clients.fill(FEW)
    federation.settle()
    told = migrate(federation, "episodic", new.url)
    adopt(federation, "episodic", new)
    assert whole(new) == whole(old)
    assert told["verified"] == len(whole(old))
    graves = [caller.call("tombstones", limit=1_000)["tombstones"] for caller in (old, new)]
    assert graves[0] == graves[1] != []


@pytest.mark.parametrize("who", VICTIMS)
def test_what_is_killed_in_mid_way_goes_on_when_it_is_run_again(
    federation: Federation, another: Callable[[str], Caller], who: str
) -> None:
    old, new = federation.tiers["episodic"], another("episodic")
    clients = Clients(federation, "episodic")
    clients.fill(2 * FEW)
    running = command(federation, "episodic", new.url)
    try:
        with clients.busy():
            for part in (100, 600):
                poll("some is copied", partial(_copied, new, part, running))
                if who == "command":
                    running.send_signal(signal.SIGKILL)
                    running.communicate()
                    running = command(federation, "episodic", new.url)
                else:
                    victim = {"router": "router", "old": old.name, "new": new.name}[who]
                    federation.kill(victim)
                    federation.start(victim, wait=False)
            _, said = running.communicate(timeout=200)
            told = migrate(federation, "episodic", new.url)
    finally:
        running.kill()
        running.communicate()
    assert told["state"] == "switched", said
    adopt(federation, "episodic", new)
    check(federation, clients)


def _copied(new: Caller, part: int, running: subprocess.Popen[str]) -> bool:
    try:
        return len(new.entries()) > part or running.poll() is not None
    except A2MError:
        return False  # it was killed a moment ago


def test_several_routers_refuse_it(
    nursery: Nursery, tmp_path: Path, postgres_database: Callable[[], str]
) -> None:
    with Federation(tmp_path / "two", nursery, routers=2) as pair:
        new = place(pair, "episodic", {"URL": postgres_database()})
        running = command(pair, "episodic", new.url)
        _, said = running.communicate(timeout=60)
        assert running.returncode == 1
        assert "2 routers" in said


@pytest.mark.faults
@pytest.mark.timeout(1_200)
def test_twenty_thousand_records_under_writes(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory, postgres_database: Callable[[], str]
) -> None:
    folder = tmp_path_factory.mktemp("many")
    with Federation(folder, nursery, tier_timeout=10.0) as federation:
        new = place(federation, "episodic", {"URL": postgres_database()})
        clients = Clients(federation, "episodic")
        clients.fill(MANY + MANY // 10)  # of which it forgets some
        begun, before = time.monotonic(), clients.calls
        clients.slowest = 0.0
        with clients.busy():
            told = migrate(federation, "episodic", new.url)
            took, calls = time.monotonic() - begun, clients.calls - before
        adopt(federation, "episodic", new)
        check(federation, clients)
    print(
        f"\n{told['records']} records, {told['verified']} compared, {told['tombstones']} tombstones, "
        f"{told['copied']} copied in {told['passes']} passes and {told['took']:.1f} s "
        f"({told['copied'] / told['took']:.0f} a second); writes waited for {told['held']:.2f} s; "
        f"{calls} calls of clients ({calls / took:.0f} a second, the slowest {clients.slowest:.2f} s); "
        f"digest {told['digest']}"
    )
    assert told["records"] >= MANY
    assert told["strays"] == 0
    shutil.rmtree(folder, ignore_errors=True)
