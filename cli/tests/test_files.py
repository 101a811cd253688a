"""Import, export, backup and restore: what they report, and what they refuse."""

import json
from pathlib import Path

from command_line import Cli


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


def test_an_import_says_how_much_of_it_has_no_time_of_its_own(cli: Cli, served: str, tmp_path: Path) -> None:
    dated, undated = tmp_path / "dated.jsonl", tmp_path / "undated.jsonl"
    said = {"session": "dated", "content": "the gate", "created_at": "2026-07-28T10:15:30Z"}
    dated.write_text(json.dumps(said) + "\n" + json.dumps({"session": "dated", "content": "after it"}))
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    late = {"role": "user", "content": "three", "created_at": "2026-07-28T10:15:30Z"}
    lines = [
        {"conversation": "a", "messages": messages},
        {"conversation": "b", "messages": [*messages, late]},
    ]
    undated.write_text("\n".join(map(json.dumps, lines)))
    assert "no time of" not in cli("import", str(dated))
    told = cli("import", str(undated))
    assert "4 records have no time of their own: dated in order from 2000-01-01 on; --start" in told
    assert cli.json("import", str(undated))["undated"] == 4
    turns = tmp_path / "turns.jsonl"
    turns.write_text(json.dumps({"session": "t", "content": "a turn"}))
    assert "1 record has no time of its own" in cli("import", str(turns), "--start", "2026-01-01")
    [turn] = cli.json("timeline", "--session", "t")["records"]
    assert turn["created_at"].startswith("2026-01-01")
    again = cli.json("import", str(turns), "--start", "2026-02-01")
    assert (again["written"], again["already_there"]) == (0, 1), "the same turn, whatever the start"


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
