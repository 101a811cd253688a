"""Every command against a server: what it prints."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import Cli, serving

from a2m_server.memory import MemoryTier
from a2m_server.values import Degraded, Found, Search


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


def test_a_recall_is_explained(cli: Cli, served: str) -> None:
    written = cli("remember", "the heron nests by the weir", "--session", "s1").strip()
    told = cli("recall", "heron", "--explain")
    assert "ranked by" in told
    assert f"{written}  tier=" in told
    assert "score=" in told
    assert [*cli.json("recall", "heron", "--explain")["explained"]] == [written]


def test_what_was_said_in_a_span_of_time_is_found_in_one_call(cli: Cli, served: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    lines = [
        {
            "session": "s",
            "role": role,
            "content": f"the deployment of {days} days ago, said the {role}",
            "created_at": f"{now - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}",
        }
        for days in (20, 3, 1)
        for role in ("user", "assistant")
    ]
    path = tmp_path / "said.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    cli("import", str(path))

    def found(*options: str) -> set[str]:
        records = cli.json("recall", "deployment", "--where", '{"role": "user"}', *options)["records"]
        return {record["content"].split()[3] for record in records}

    assert found() == {"20", "3", "1"}
    assert found("--since", "7d") == {"3", "1"}
    assert found("--since", "4w", "--until", "48h") == {"20", "3"}
    day = f"{now - timedelta(days=3):%Y-%m-%d}"
    assert found("--since", day, "--until", f"{now:%Y-%m-%dT%H:%M:%SZ}") == {"3", "1"}
    assert len(cli.json("timeline", "--since", "7d")["records"]) == 4
    for wrong in ("7", "yesterday", "2026-13-01", ""):
        cli("recall", "--since", wrong, status=2)
        assert "--since" in cli.err
    cli("recall", "--since", "7d", "--where", '{"created_at": {"gte": "2026-01-01T00:00:00Z"}}', status=2)
    assert "leave them out" in cli.err


def test_a_recall_says_what_it_had_to_do_without(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(MemoryTier):
        async def search(self, search: Search) -> Found:
            found = await super().search(search)
            return replace(found, degraded=(Degraded("embedder", "found by words alone: it is away"),))

    with serving(Blind(), monkeypatch):
        cli("remember", "the heron nests")
        assert "the heron nests" in cli("recall", "heron")
        assert "incomplete: embedder: found by words alone: it is away" in cli.err


def test_an_owner_that_makes_no_difference_is_not_passed_over_in_silence(cli: Cli, served: str) -> None:
    for arguments in (["remember", "tea", "--owner", "ann"], ["recall", "tea", "--owner", "bob"]):
        cli(*arguments)
        assert "the owner makes no difference" in cli.err
    cli("recall", "tea")
    assert "owner" not in cli.err


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
