"""What is forgotten is asked about first, verified, and erased from a history."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from command_line import Cli, Terminal, serving

from a2m_server.memory import MemoryTier
from a2m_server.values import (
    Erased,
    Filter,
    Forgotten,
    Inspected,
    Remnant,
    StoreInfo,
)


class Keeping(MemoryTier):
    """A tier that keeps what it forgot in a history, until that is erased."""

    def __init__(self) -> None:
        super().__init__("keeping")
        self.past: set[str] = set()

    async def info(self) -> StoreInfo:
        info = await super().info()
        return replace(info, extensions=info.extensions | {"erase"})

    async def forget(self, selected: Filter) -> Forgotten:
        receipt = await super().forget(selected)
        self.past.update(receipt.ids)
        return replace(receipt, history={"keeping": len(receipt.ids)})

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        found = await super().remnants(ids)
        kept = [Remnant(i, "history", history=True) for i in ids if i in self.past]
        return replace(found, remnants=[*found.remnants, *kept])

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        assert not dry
        erased = self.past.intersection(ids)
        # Of one it cannot let go, as a bug would have it.
        self.past -= erased - {"stubborn"}
        return Erased(dict.fromkeys(ids, "erased"), {"keeping": len(erased)}, {"keeping": ("origin",)})


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One that keeps a history."""
    with serving(Keeping(), monkeypatch) as url:
        yield url


def test_a_selection_is_not_forgotten_without_somebody_to_ask(cli: Cli, served: str, piped: None) -> None:
    written = cli("remember", "kept", "--session", "s").strip()
    cli("forget", "--session", "s", status=2)
    assert "all records of session 's'" in cli.err
    assert "--yes" in cli.err
    cli("forget", written, "--session", "s", status=2)
    assert len(cli.json("timeline")["records"]) == 1
    assert "forgotten 1" in cli("forget", "--session", "s", "--yes")


def test_a_person_is_told_what_would_be_forgotten_and_how_much(
    cli: Cli, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        cli("remember", f"heron {number}", "--key", f"birds/{number}", "--role", "user")
    cli("remember", "heron", "--key", "birdsong")
    selectors = ["--key-prefix", "birds/", "--query", "heron", "--where", '{"role": "user"}']
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    asked = cli("forget", *selectors, status=1)
    assert (
        "Forget 3 records with keys at or beneath 'birds/', that hold every word of 'heron', "
        'where {"role": "user"}?' in asked
    )
    assert len(cli.json("timeline")["records"]) == 4
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert "forgotten 3" in cli("forget", *selectors)


def test_a_forget_is_verified_tier_by_tier(cli: Cli, served: str) -> None:
    for name in ("a", "b", "c"):
        cli("remember", f"heron {name}", "--id", name, "--session", "s")
    assert "memory  nothing" in cli("forget", "a", "--verify")
    verified = cli.json("forget", "--session", "s", "--yes", "--verify")
    assert (verified["forgotten"], verified["verified"]) == (
        2,
        {"remnants": [], "checked": ["memory"], "unverified": []},
    )
    assert "forgotten 0" in cli("forget", "a", "b", "never", "--verify")
    cli("forget", "a", "--erase", "--yes", status=1)
    assert "does not have the extension erase" in cli.err


def test_history_is_a_note_until_it_is_to_be_erased(cli: Cli, keeping: str) -> None:
    for name in ("a", "b", "stubborn"):
        cli("remember", f"heron {name}", "--id", name)
    assert "takes it out" in cli("forget", "a")
    assert "1 id: history" in cli("forget", "a", "b", "--verify").replace("2 ids", "1 id")
    said = cli("forget", "a", "b", "--erase", "--yes", "--verify")
    assert "erased: keeping 2" in said
    assert "What keeping has as origin may hold the old history." in said
    cli("forget", "stubborn", "--verify")
    said = cli("forget", "stubborn", "--erase", "--yes", "--verify", status=1)
    assert "left: stubborn in history" in said


def test_what_erasing_costs_is_said_before_it_is_done(
    cli: Cli, keeping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("remember", "heron", "--id", "a")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    cli("forget", "a", "--erase", status=2)
    assert "this would forget and erase all records among the 1 id given" in cli.err
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    asked = cli("forget", "a", "--erase", status=1)
    assert "Forget and erase all records among the 1 id given?" in asked
    for cost in ("new hash", "signatures", "reflogs", "remotes and clones keep the old history"):
        assert cost in cli.err
    assert len(cli.json("timeline")["records"]) == 1
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert "erased: keeping 1" in cli("forget", "a", "--erase")
