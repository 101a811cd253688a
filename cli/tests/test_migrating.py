"""`a2m migrate` against a router that takes its steps."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from command_line import Cli, serving

from a2m_protocol.errors import A2MError, Code, invalid_params
from a2m_protocol.types import Capability
from a2m_server.memory import MemoryTier
from a2m_server.values import Relocated, StoreInfo, TierInfo

OLD, NEW = "http://old:1", "http://new:1"


class Steps(MemoryTier):
    """A store that moves a tier in three steps, of which `failures` fail first."""

    def __init__(self) -> None:
        super().__init__("steps")
        self.asked: list[tuple[str, str, float, bool]] = []
        self.failures: list[A2MError] = []
        self.strays = 0

    async def info(self) -> StoreInfo:
        info = await super().info()
        tiers = (TierInfo("episodic", "episodic"),)
        extensions = info.extensions | {"relocate"}
        return replace(info, capabilities=frozenset(Capability), extensions=extensions, tiers=tiers)

    async def relocate(self, tier: str, url: str, *, pause: float, dry: bool = False) -> Relocated:
        self.asked.append((tier, url, pause, dry))
        if self.failures:
            raise self.failures.pop()
        assert tier == "episodic"
        if dry:
            return Relocated(tier, OLD, url, "ready", records=4)
        if len(self.asked) < 3:
            return Relocated(tier, OLD, url, "copying", records=4, verified=2)
        return Relocated(
            tier, OLD, url, "switched", 4, 4, 5, 3, 2, took=2.0, held=0.25, digest="abc", strays=self.strays
        )


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    with serving(store := Steps(), monkeypatch):
        yield store


def test_a_tier_is_moved_step_by_step_and_what_was_done_is_said(cli: Cli, steps: Steps) -> None:
    said = cli("migrate", "episodic", "--to", NEW, "--pause", "3")
    assert steps.asked == [("episodic", NEW, 3.0, False)] * 3
    for part in ("from http://old:1 to http://new:1", "4 compared", "2 a second", "0.25 s", "abc", "stop it"):
        assert part.replace("2 a second", "2 records a second") in said
    steps.asked.clear()
    told = cli.json("migrate", "episodic", "--to", NEW)
    assert (told["state"], told["from"], told["verified"], told["digest"]) == ("switched", OLD, 4, "abc")


def test_a_dry_run_asks_once(cli: Cli, steps: Steps) -> None:
    assert "4 records" in cli("migrate", "episodic", "--to", NEW, "--dry-run")
    assert steps.asked == [("episodic", NEW, 10.0, True)]


def test_what_may_pass_is_tried_again_and_what_may_not_is_told(cli: Cli, steps: Steps) -> None:
    steps.failures = [A2MError(Code.INTERNAL, "a tier is away", {"retryable": True})]
    assert "moved" in cli("migrate", "episodic", "--to", NEW)
    steps.failures = [invalid_params("url: it is not empty")]
    cli("migrate", "episodic", "--to", NEW, status=1)
    assert "not empty" in cli.err


def test_who_writes_past_the_router_is_told_of_and_fails_the_command(cli: Cli, steps: Steps) -> None:
    steps.strays = 2
    assert "2 records of the old service changed" in cli("migrate", "episodic", "--to", NEW, status=1)


def test_an_unknown_tier_and_a_server_without_tiers_are_refused(cli: Cli, steps: Steps) -> None:
    cli("migrate", "nowhere", "--to", NEW, status=1)
    assert "nowhere" in cli.err
    cli("migrate", "episodic", "--to", NEW, "--pause", "0", status=2)


def test_a_single_service_has_no_tier_to_move(cli: Cli, served: str) -> None:
    cli("migrate", "episodic", "--to", NEW, status=1)
    assert "relocate" in cli.err
