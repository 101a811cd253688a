"""A backup holds everything, a restore gives it back as it was, and nothing forgotten returns."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2m_cli import exporting
from a2m_cli.backup import back_up
from a2m_cli.connection import CliError
from a2m_cli.restore import Wanted, restore
from a2m_protocol.client import Client
from a2m_protocol.errors import JsonObject

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

EXTREMES: list[JsonObject] = [
    {
        "content": "naïve 東京 \U0001f9ed e\u0301 \u2028 \x7f",
        "metadata": {"": "", "ü": ["\u0001", {"a": [None]}]},
    },
    {
        "content": "numbers",
        "metadata": {"big": 2**70, "small": -0.0, "exact": 0.1, "huge": 1e308, "n": -(2**63)},
    },
    {"content": "", "uri": "file:///a b?c#d", "media_type": "text/plain; charset=utf-8"},
    {"content": "x" * 100_000, "role": "tool", "metadata": {"deep": [[[[[[[[[[1]]]]]]]]]]}},
    {"content": "odd", "id": "../../etc/passwd", "group": "*", "session": "{x}", "key": "a%20b/$(x)"},
    {"content": "long", "id": "猫" * 512, "session": "s" * 512, "group": "g" * 512, "key": "k" * 512},
    {"content": "low", "salience": -1e15, "embedding": [1e-38, -3.4e38, 0.0, 1.0]},
    {"content": "zero", "salience": 1e-300, "embedding": [0.0, 0.0, 0.0, 0.0]},
]


def fill(client: Any) -> None:
    """Records of every kind in every tier, moved, rewritten, recalled, reinforced and forgotten."""
    for owner in (None, "ann", "bob"):
        for session in ("s1", "s2", None):
            for at in range(9):
                turn = {"content": f"{owner} {session} {at}", "role": "user", "metadata": {"at": at}}
                turn |= {"embedding": [float(at), 0.25, -1.5, 1 / 3]} if at % 3 == 0 else {}
                turn |= {"group": f"g{at // 2}"} if at % 4 else {}
                client.remember([turn], owner=owner, session=session)
        for at in range(4):
            for version in range(at + 1):
                fact = {
                    "content": f"fact {at} version {version}",
                    "key": f"facts/{at}",
                    "id": f"{owner}-{at}-{version}",
                }
                client.remember([fact | ({"tier": "semantic"} if at % 2 else {})], owner=owner)
        client.remember(
            [{"content": f"how to {owner}", "key": "skill/one", "tier": "procedural"}], owner=owner
        )
        client.remember([{"content": f"episode of {owner}", "tier": "episodic"}], owner=owner)
    client.remember(EXTREMES)
    client.remember(
        [
            {
                "id": "imported",
                "content": "of old",
                "created_at": "1999-12-31T23:59:59.999Z",
                "seq": 946684799999123,
                "access_count": 2,
                "accessed_at": "2001-01-01T00:00:00.000Z",
                "salience": 7.25,
                "status": "superseded",
                "provenance": {"source": "s", "method": "m", "derived_from": ["x"]},
                "embedding": [0.1, 0.2, 0.3, 0.4],
                "embedding_model": "model-1",
                "features": "AAECAw==",
                "aliases": ["once"],
                "key": "old/fact",
                "revision": 5,
                "moves": 3,
                "tier": "semantic",
            }
        ],
        transfer=True,
    )
    client.close_session("s2", owner="ann")
    for _ in range(4):
        client.recall("episode of ann", owner="ann", limit=2)
    client.reinforce(["ann-1-0"], amount=2.5, owner="ann")
    client.remember([{"id": f"gone{n}", "content": "to be forgotten", "owner": "bob"} for n in range(5)])
    client.forget(where={"owner": "bob"}, query="to be forgotten")
    client.forget(ids=["never-seen"])


def contents(path: Path) -> tuple[list[bytes], list[bytes]]:
    """The records and the tombstones of a backup, line by line."""
    with zipfile.ZipFile(path) as archive:
        return (
            archive.read("records.jsonl").splitlines(keepends=True)[1:],
            archive.read("tombstones.jsonl").splitlines(keepends=True),
        )


def test_a_restored_federation_is_the_one_that_was_backed_up_byte_for_byte(
    make_federation: Callable[[], Any], tmp_path: Path, poll: Callable[..., Any]
) -> None:
    first, second = make_federation(), make_federation()
    fill(first.client)
    first.settle(poll)
    archive, again = tmp_path / "backup.zip", tmp_path / "again.zip"
    told = first.json("backup", archive)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup.zip"]
    assert (told["scope"], set(told["tiers"]), told["left_out"]) == ("everything", set(first.tiers), {})
    records, graves = contents(archive)
    assert (len(records), len(graves)) == (told["files"]["records.jsonl"]["count"], 6)
    restored = second.json("restore", archive)
    assert (restored["written"], restored["already_there"], restored["refused"]) == (len(records), 0, [])
    assert (restored["tombstones"], restored["removed"], restored["consolidated"]) == (6, 0, True)
    assert second.held() == first.held()
    assert {len(tiers) for tiers in second.places().values()} == {1}
    second.json("backup", again)
    assert contents(again) == (records, graves)
    repeated = second.json("restore", archive)
    assert (repeated["written"], repeated["already_there"]) == (0, len(records))
    assert second.held() == first.held()
    # What only a whole memory has: a retry finds its record, an alias its fact, and a fact its next revision.
    moved = next(r for r in map(json.loads, records) if r["tier"] == "episodic" and r.get("owner") == "ann")
    retry = second.client.remember([{"id": moved["id"], "content": "late", "owner": "ann"}])
    assert retry["written"][0]["outcome"] == "existing"
    assert second.client.remember([{"id": "once", "content": "late", "key": "old/fact"}])["ids"] == [
        "imported"
    ]
    fact = second.client.remember([{"content": "new", "key": "facts/3", "owner": "bob"}])["written"][0]
    assert (fact["id"], fact["outcome"], fact["revision"]) == ("bob-3-0", "replaced", 4)


def test_one_tier_is_backed_up_and_restored_by_itself(
    make_federation: Callable[[], Any], tmp_path: Path
) -> None:
    first, second = make_federation(), make_federation()
    for tier in first.tiers:
        with first.client_of(tier) as one:
            one.remember(EXTREMES)
            one.remember([{"content": "x", "id": "gone", "owner": "ann"}, {"content": "y", "owner": "ann"}])
            one.forget(ids=["gone"])
        made = back_up(first.target(tier), tmp_path / f"{tier}.zip", quiet=True)
        assert made.manifest.tiers == {"": len(EXTREMES) + 1}
        done = restore(second.target(tier), Wanted(made.path), quiet=True)
        assert (done.report.written, done.report.refused) == (len(EXTREMES) + 1, [])
        assert second.held(tier) == first.held(tier)
        assert second.forgotten(tier) == first.forgotten(tier) != {}


def test_what_is_forgotten_during_a_backup_is_not_in_it_to_come_back(
    make_federation: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_federation(), make_federation()
    drafts = [{"id": f"r{at}", "content": str(at), "session": f"s{at % 3}"} for at in range(30)]
    first.client.remember(drafts)
    first.client.forget(ids=["r0"])
    original = exporting.tombstones

    async def later(client: Client) -> Any:
        await client.forget(ids=["r1"])
        async for grave in original(client):
            # While the tombstones are read, too.
            if grave["id"] == "r0":
                await client.forget(where={"session": "s2"})
            yield grave

    monkeypatch.setattr(exporting, "tombstones", later)
    monkeypatch.setattr(exporting, "_GRAVES", 1)
    made = back_up(first.target(), tmp_path / "b.zip", quiet=True)
    gone = {"r0", "r1", *(f"r{at}" for at in range(2, 30, 3))}
    assert made.manifest.files["records.jsonl"].count == 29
    restored = second.json("restore", made.path)
    assert {refusal["id"] for refusal in restored["refused"]} == gone - {"r0"}
    assert {r["id"] for r in second.held()} == {d["id"] for d in drafts} - gone
    assert second.forgotten().keys() == gone


def test_a_restore_over_the_living_federation_brings_nothing_back_and_overwrites_nothing(
    make_federation: Callable[[], Any], tmp_path: Path, poll: Callable[..., Any]
) -> None:
    federation = make_federation()
    fill(federation.client)
    federation.settle(poll)
    archive = tmp_path / "b.zip"
    federation.cli("backup", archive)
    before = {r["id"]: r for r in federation.held()}
    federation.client.remember([{"content": "newer", "key": "facts/2", "owner": "ann"}])
    federation.client.forget(where={"session": "s1"}, owner="bob")
    federation.client.forget(ids=["imported", "None-1-0"])
    federation.client.remember([{"id": "imported", "content": "anew"}])
    # Forgotten, and its key another record's by now.
    federation.client.remember([{"id": "successor", "content": "anew", "key": "facts/1", "tier": "episodic"}])
    federation.client.promote([next(i for i, r in before.items() if r["tier"] == "working")], "episodic")
    federation.settle(poll)
    held, graves = federation.held(), federation.forgotten()
    said = federation.cli("restore", archive)
    assert "forgotten before, and not brought back" in said
    assert federation.held() == held
    assert federation.forgotten() == graves
    assert {len(tiers) for tiers in federation.places().values()} == {1}


def test_a_record_that_cannot_be_restored_is_named_and_makes_the_restore_fail(
    make_federation: Callable[[], Any], tmp_path: Path
) -> None:
    first, second = make_federation(), make_federation()
    first.client.remember([{"id": "a", "content": "theirs", "key": "k"}, {"id": "b", "content": "other"}])
    second.client.remember([{"id": "c", "content": "mine", "key": "k"}])
    first.cli("backup", tmp_path / "b.zip")
    said = second.cli("restore", tmp_path / "b.zip", status=1)
    assert "refused                1" in said
    assert "for example a," in said
    assert {r["id"] for r in second.held()} == {"b", "c"}


def test_what_was_forgotten_since_is_carried_over_while_the_old_federation_answers(
    make_federation: Callable[[], Any], tmp_path: Path
) -> None:
    first, second = make_federation(), make_federation()
    first.client.remember([{"id": f"r{at}", "content": str(at)} for at in range(8)])
    first.cli("backup", tmp_path / "b.zip")
    first.client.forget(ids=["r2", "r3"])
    second.cli("restore", tmp_path / "b.zip", "--forgotten-from", first.url)
    assert {r["id"] for r in second.held()} == {f"r{at}" for at in range(8) if at not in (2, 3)}


def test_a_damaged_backup_changes_nothing(make_federation: Callable[[], Any], tmp_path: Path) -> None:
    federation = make_federation()
    federation.client.remember([{"id": f"r{at}", "content": str(at)} for at in range(40)])
    federation.client.forget(ids=["r39"])
    whole = tmp_path / "b.zip"
    federation.cli("backup", whole)
    federation.client.forget(ids=["r1"])
    held, graves = federation.held(), federation.forgotten()
    for kind in ("cut", "flipped", "swapped", "no backup", "later version"):
        archive = Path(shutil.copy(whole, tmp_path / f"{kind}.zip"))
        spoil(archive, kind)
        with pytest.raises(CliError, match="Nothing has been changed") as refused:
            restore(federation.target(), Wanted(archive), quiet=True)
        assert str(archive) in str(refused.value)
    assert (federation.held(), federation.forgotten()) == (held, graves)


def spoil(archive: Path, kind: str) -> None:
    data = archive.read_bytes()
    if kind == "cut":
        archive.write_bytes(data[: len(data) // 2])
    elif kind == "flipped":
        archive.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif kind == "no backup":
        archive.write_bytes(b'{"format": "a2m-export"}\n')
    else:
        with zipfile.ZipFile(archive) as old:
            files = {name: old.read(name) for name in old.namelist()}
        if kind == "swapped":
            files["records.jsonl"] = files["records.jsonl"].replace(b'"r7"', b'"r8"')
        else:
            files["manifest.json"] = files["manifest.json"].replace(b'"version": 1', b'"version": 2')
        with zipfile.ZipFile(archive, "w") as fresh:
            for name, held in files.items():
                fresh.writestr(name, held)


def test_a_restore_that_is_killed_is_finished_by_the_next_one(
    make_federation: Callable[[], Any], tmp_path: Path, poll: Callable[..., Any]
) -> None:
    first, second = make_federation(), make_federation()
    for session in range(20):
        turns = [{"content": f"{session} {at}", "key": f"k/{session}/{at}"} for at in range(30)]
        first.client.remember(turns, session=f"s{session}", owner=random.choice(["ann", "bob"]))
    first.client.forget(where={"session": "s7"})
    first.settle(poll)
    first.cli("backup", tmp_path / "b.zip")
    for share in (0.1, 0.6):
        with subprocess.Popen(
            second.command("restore", tmp_path / "b.zip"), stderr=subprocess.DEVNULL
        ) as process:
            poll("part of the restore", lambda s=share: _count(second) >= s * 19 * 30)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    report = second.json("restore", tmp_path / "b.zip")
    assert report["refused"] == []
    assert 0 < report["written"] < 19 * 30 == report["written"] + report["already_there"]
    second.settle(poll)
    assert second.held() == first.held()


def _count(federation: Any) -> int:
    return sum(tier["count"] for tier in federation.client.describe()["tiers"])


def test_a_federation_of_a2m_up_is_backed_up_by_its_command_line(
    federation: Any, audit: Any, tmp_path: Path, make_conversations: Callable[[str], Any]
) -> None:
    def a2m(*arguments: object) -> Any:
        command = [sys.executable, "-m", "a2m_cli", *map(str, arguments), "--json", "--url", federation.url]
        return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)

    given = make_conversations("shipped")
    a2m("import", *given.files)
    before = audit.settle(list(given.sessions))
    made = a2m("backup", tmp_path)
    assert made["scope"] == "pooled"
    assert made["files"]["records.jsonl"]["count"] >= given.turns
    restored = a2m("restore", made["path"])
    assert (restored["written"], restored["refused"]) == (0, [])
    assert audit.settle(list(given.sessions)) == before
    audit.check(given)
