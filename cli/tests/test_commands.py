"""Every command against a server: what it prints, and how it exits."""

import asyncio
import io
import json
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2m_cli.application import main
from a2m_cli.options import metadata_of, where_of
from a2m_server.http import create_app
from a2m_server.listen import Server, bind, url_of
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings
from a2m_server.store import (
    Embedded,
    Erased,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Page,
    Remnant,
    Search,
    StoreInfo,
    TierInfo,
)

LIGHT = "import sys; import a2m_cli.application as a; a.create(); print(*sys.modules)"
HEAVY = {"pydantic", "httpx", "asyncio", "a2m_protocol", "a2m_engines", "psutil"}


class Terminal(io.TextIOWrapper):
    """Standard input with somebody there who types this."""

    def __init__(self, typed: str) -> None:
        super().__init__(io.BytesIO(typed.encode()))

    def isatty(self) -> bool:
        return True


class Cli:
    """Runs command lines in this process."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture
        self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as exited:
            main(arguments)
        said = self._capture.readouterr()
        self.err = said.err.decode()
        assert (exited.value.code or 0) == status, self.err
        return said.out.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(capsysbinary)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input with nothing in it."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))


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


class Joined(MemoryTier):
    """A store that answers for a semantic and a procedural tier, whichever is asked."""

    async def info(self) -> StoreInfo:
        tiers = (TierInfo("semantic", "semantic"), TierInfo("procedural", "procedural"))
        info = await super().info()
        return replace(info, extensions=info.extensions | {"context"}, tiers=tiers)

    async def search(self, search: Search) -> Found:
        return await super().search(replace(search, filter=_anywhere(search.filter)))

    async def timeline(self, page: Page) -> Found:
        return await super().timeline(replace(page, filter=_anywhere(page.filter)))


class Steps(MemoryTier):
    """A store that embeds two records a step, once it was asked a first time in vain."""

    def __init__(self) -> None:
        super().__init__("steps")
        self.asked: list[str | None] = []

    async def info(self) -> StoreInfo:
        info = await super().info()
        return replace(info, extensions=info.extensions | {"reembed"}, embedding_model="new")

    async def reembed(self, tier: str | None) -> Embedded:
        self.asked.append(tier)
        step = len(self.asked) - 1
        return Embedded(2, 6 - 2 * step) if step else Embedded(0, 6)


def _anywhere(selected: Filter) -> Filter:
    return replace(selected, where=selected.where.without("tier"))


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that puts a context together."""
    with serving(Joined(), monkeypatch) as url:
        yield url


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with nothing in it, which the commands talk to."""
    with serving(MemoryTier(), monkeypatch) as url:
        yield url


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """The store of a server that embeds in steps."""
    monkeypatch.setattr("a2m_cli.reembedding.PAUSE", 0.0)
    with serving(store := Steps(), monkeypatch):
        yield store


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One that keeps a history."""
    with serving(Keeping(), monkeypatch) as url:
        yield url


@contextmanager
def serving(store: MemoryTier, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    settings = ServerSettings(port=0)
    with bind(settings) as listener:
        server = Server(create_app(store, settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        monkeypatch.setenv("A2M_URL", url_of(listener))
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join()


def test_what_is_remembered_is_recalled_replayed_and_forgotten(cli: Cli, served: str) -> None:
    written = cli("remember", "the heron nests by the weir", "--session", "s1", "--role", "user").strip()
    cli("remember", "a second turn", "--session", "s1", "--id", "mine", "-m", "mood=calm", "-m", '{"n": 1}')
    assert "the heron nests by the weir" in cli("recall", "heron")
    found = cli.json("recall", "heron")["records"]
    assert [record["id"] for record in found] == [written]
    replayed = cli.json("timeline", "--session", "s1")["records"]
    assert [record["id"] for record in replayed] == [written, "mine"]
    assert replayed[1]["metadata"] == {"mood": "calm", "n": 1}
    assert cli.json("timeline", "--where", '{"mood": "calm"}')["records"][0]["id"] == "mine"
    assert "s1" in cli("sessions")
    assert "reinforced 1" in cli("reinforce", "mine", "--amount", "2")
    assert "forgotten 1" in cli("forget", written)
    assert "closed s1" in cli("close", "s1")
    assert len(cli.json("timeline", "--limit", "0")["records"]) == 1


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


def test_nothing_is_not_remembered_but_a_reference_is(cli: Cli, served: str, piped: None) -> None:
    for arguments in (["remember", ""], ["remember"]):
        cli(*arguments, status=2)
        assert "nothing to remember" in cli.err
    cli("remember", "", "--uri", "urn:x")
    assert [record["uri"] for record in cli.json("timeline")["records"]] == ["urn:x"]


def test_a_fact_lives_at_its_key(cli: Cli, served: str) -> None:
    cli("remember", "tea", "--key", "ann/drinks")
    cli("remember", "coffee", "--key", "ann/drinks")
    assert "revision=1" in cli("fetch", "ann/drinks")
    assert cli.json("fetch", "ann/drinks")["record"]["content"] == "coffee"
    cli("fetch", "ann/eats", status=1)
    assert "nothing at ann/eats" in cli.err


def test_standard_input_is_remembered(cli: Cli, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe:
        buffer = io.BytesIO("piped é\nin\n".encode())

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Pipe())
    cli("remember", "--session", "s")
    assert cli.json("timeline")["records"][0]["content"] == "piped é\nin"


def test_a_record_cannot_take_over_the_terminal(cli: Cli, served: str) -> None:
    cli("remember", "\x1b[2J\x1b]0;owned\x07 [bold]plain[/bold] \u202eback")
    said = cli("timeline")
    assert "\x1b" not in said
    assert "\\x1b[2J\\x1b]0;owned\\x07 [bold]plain[/bold] \\u202eback" in said


def test_events_go_on_from_a_cursor(cli: Cli, served: str) -> None:
    cursor = cli.json("events")["cursor"]
    cli("remember", "something", "--id", "x")
    assert "id=x" in cli("events", "--cursor", cursor)
    assert [e["kind"] for e in cli.json("events", "--cursor", cursor, "--kind", "forgotten")["events"]] == []


def test_a_server_describes_itself_and_its_state(cli: Cli, served: str) -> None:
    assert "a2m/0.1" in cli("describe")
    cli("remember", "x", "--session", "alone")
    assert "all tiers answer, 1 session\n" in cli("status")
    assert cli.json("status")["degraded"] is False
    cli("consolidate", status=1)
    assert "the server refused" in cli.err


def test_a_context_is_printed_as_the_prompt_that_it_is(cli: Cli, joined: str) -> None:
    cli("remember", "which oven is free", "--session", "s1", "--role", "user")
    cli("remember", "Ada bakes rye", "--key", "ada/bread")
    cli("remember", "how to clean an oven")
    said = cli("context", "--session", "s1", "--query", "oven", "--task", "clean")
    assert said == (
        "# Facts\n- [ada/bread] Ada bakes rye\n\n"
        "# Episodes\n- how to clean an oven\n\n"
        "# Transcript\nuser: which oven is free\n"
    )
    result = cli.json("context", "--session", "s1", "--query", "oven")
    assert [record["content"] for record in result["transcript"]] == ["which oven is free"]
    assert result["prompt"] == said.rstrip("\n")


def test_a_context_says_what_its_budget_left_out(cli: Cli, joined: str) -> None:
    for n in range(3):
        cli("remember", f"turn {n}", "--session", "s1", "--role", "user")
    for budget in (["--budget", "40"], ["--tokens", "10"]):
        said = cli("context", "--session", "s1", *budget)
        assert said == "# Transcript\nuser: turn 1\nuser: turn 2\n"
        assert "1 of the transcript" in cli.err
    cli("context", "--budget", "40", "--tokens", "10", status=2)
    assert "give one of them" in cli.err
    cli("context", "--budget", "0", status=2)


def test_records_are_embedded_anew_until_nothing_is_left(cli: Cli, steps: Steps) -> None:
    assert "6 records embedded: nothing is without a vector of new." in cli("reembed")
    assert len(steps.asked) == 4
    steps.asked.clear()
    assert cli.json("reembed") == {"model": "new", "embedded": 6}


def test_what_cannot_be_embedded_for_long_is_said(
    cli: Cli, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2m_cli.reembedding.PATIENCE", 0)
    cli("reembed", status=1)
    assert "6 records keep changing" in cli.err


def test_a_server_without_a_model_embeds_nothing_anew(cli: Cli, served: str) -> None:
    cli("reembed", status=1)
    assert "reembed" in cli.err


def test_facts_are_listed_by_key(cli: Cli, served: str) -> None:
    for key in ("b", "a"):
        cli("remember", f"fact {key}", "--key", key)
    cli("remember", "no fact")
    assert [r["key"] for r in cli.json("timeline", "--order", "key")["records"]] == ["a", "b"]
    cli("timeline", "--order", "key", "--limit", "1", status=1)
    assert "limit" in cli.err


def test_summarize_writes_a_record(cli: Cli, served: str) -> None:
    cli("remember", "The oven runs hot. It needs a technician.", "--session", "s")
    assert "read 1, written 1" in cli("summarize", "--session", "s", "--key", "summary")
    assert cli.json("fetch", "summary")["record"]["role"] == "memory"


def test_import_reports_and_resumes_and_export_gives_it_back(cli: Cli, served: str, tmp_path: Path) -> None:
    turns = tmp_path / "turns.jsonl"
    turns.write_text("".join(f'{{"id": "t{i}", "session": "s", "content": "turn {i}"}}\n' for i in range(30)))
    assert "written               30" in cli("import", str(turns), "--batch", "7")
    assert cli.json("import", str(turns))["already_there"] == 30
    target = tmp_path / "out.jsonl"
    cli("export", str(target))
    assert "30 records exported" in cli.err
    assert target.stat().st_mode & 0o077 == 0
    assert cli("export", "-").splitlines()[1:] == target.read_text().splitlines()[1:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "turns.jsonl"]
    cli("forget", "--session", "s", "--yes")
    report = cli.json("import", str(target))
    assert {refused["reason"] for refused in report["refused"]} == {"forgotten"}


def test_a_bad_line_is_named_and_nothing_is_written(cli: Cli, served: str, tmp_path: Path) -> None:
    turns = tmp_path / "turns.jsonl"
    turns.write_text('{"session": "s", "content": "fine"}\n{"session": "s", "content": 5}\n')
    cli("import", str(turns), status=1)
    assert "turns, line 2: content" in cli.err
    assert "Nothing has been written" in cli.err
    assert cli.json("timeline")["records"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["recall", "x"],
        ["timeline"],
        ["remember", "x"],
        ["fetch", "x"],
        ["forget", "x"],
        ["sessions"],
        ["close", "x"],
        ["consolidate"],
        ["promote", "x", "--to", "y"],
        ["reinforce", "x"],
        ["summarize", "x"],
        ["events"],
        ["context"],
        ["describe"],
        ["status"],
        ["export", "-"],
    ],
)
def test_without_a_server_every_command_says_how_to_start_one(
    cli: Cli, arguments: list[str], unused_tcp_port: int
) -> None:
    cli(*arguments, "--url", f"http://127.0.0.1:{unused_tcp_port}", status=3)
    assert "a2m up" in cli.err


def test_a_backup_says_what_is_in_it_and_a_restore_what_became_of_it(
    cli: Cli, served: str, tmp_path: Path
) -> None:
    for number in range(3):
        cli("remember", f"heron {number}", "--id", f"h{number}")
    cli("forget", "h1")
    said = cli("backup", str(tmp_path))
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("memory-")
    assert path.suffix == ".zip"
    assert f"written to      {path}" in said
    assert "records                2" in said
    assert "forgotten              1" in said
    assert "holds no owner's records" in said
    cli("backup", str(path), status=1)
    assert "exists already" in cli.err
    cli("forget", "h2")
    said = cli("restore", str(path))
    assert "already there          1" in said
    assert "1 x forgotten before, and not brought back" in said
    report = cli.json("restore", str(path))
    assert (report["written"], report["already_there"], report["tombstones"]) == (0, 1, 1)
    assert [record["id"] for record in cli.json("timeline")["records"]] == ["h0"]
    path.write_bytes(path.read_bytes()[:-100])
    cli("restore", str(path), status=1)
    assert "Nothing has been changed" in cli.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["recall", "x", "--where", "{"], "--where"),
        (["recall", "x", "--where", "[]"], "--where: expected a JSON object"),
        (["remember", "x", "-m", "novalue"], "--metadata"),
        (["forget"], "nothing selected"),
        (["recall", "x", "--url", "localhost"], "--url"),
        (["recall", "x", "--token-file", "/nonexistent"], "token file"),
        (["up", "--tiers", "cold"], "--tiers"),
        (["up", "--tiers", "working", "--config", "x.yaml"], "--config"),
        (["up", "--config", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read"),
        (["up", "--port-base", "70000"], "--port-base"),
    ],
)
def test_wrong_usage_is_told_apart(cli: Cli, arguments: list[str], complaint: str) -> None:
    cli(*arguments, status=2)
    assert complaint in cli.err


def test_metadata_values_that_read_as_json_are_json() -> None:
    assert metadata_of(["a=1", "b=x=y", 'c={"d": null}', '{"e": true}']) == {
        "a": 1,
        "b": "x=y",
        "c": {"d": None},
        "e": True,
    }
    assert where_of('{"role": "user"}', "s") == {"role": "user", "session": "s"}


def test_starting_loads_nothing_that_help_does_not_need() -> None:
    command = [sys.executable, "-c", LIGHT]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY.isdisjoint(loaded)


def test_a_reader_that_has_enough_is_told_nothing() -> None:
    command = f"{sys.executable} -m a2m_cli --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
