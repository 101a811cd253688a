"""A whole federation in processes of its own: `a2m up`, import over crashes, export and restore, the demo."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from a2m_cli import exporting
from a2m_cli.blueprint import Blueprint
from a2m_cli.connection import CliError
from a2m_cli.demo import free_port_base
from a2m_cli.federation import check_ports, children
from a2m_cli.importing import Importer, Report, items_of
from a2m_cli.transcripts import EPOCH_MS
from a2m_engines.process import is_running
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, JsonObject

pytestmark = pytest.mark.timeout(400)

SECONDS = 120.0
CONVERSATIONS = 8
ROUNDS = 12
CAPACITY = 20


class Up:
    """A running `a2m up`."""

    def __init__(self, data: Path, port_base: int, ready_file: Path) -> None:
        self.data = data
        self.port_base = port_base
        self.ready_file = ready_file

    @property
    def ready(self) -> JsonObject:
        return json.loads(self.ready_file.read_text())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port_base}"

    def pid(self, name: str) -> int | None:
        pids = self.ready["pids"]
        assert isinstance(pids, dict)
        pid = pids[name]
        assert pid is None or isinstance(pid, int)
        return pid

    def kill(self, name: str) -> int:
        pid = self.pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid


def a2m(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "a2m_cli", *arguments]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        a2m(*arguments), capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@contextmanager
def up(data: Path, *more: str) -> Iterator[Up]:
    base = free_port_base()
    ready_file = data.with_suffix(".ready")
    command = a2m("up", "--data", str(data), "--port-base", str(base), "--ready-file", str(ready_file))
    command += ["--quiet", *more]
    environment = {**os.environ, "A2M_ROUTER_EMBEDDING__KIND": "none"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while not ready_file.exists():
                assert process.poll() is None, process.communicate()[1].decode()
                assert time.monotonic() < deadline, "it was not ready in time"
                time.sleep(0.05)
            yield Up(data, base, ready_file)
            family = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
        assert process.communicate() == (b"", b"")
    assert not [child for child in family if is_running(child)]
    assert not ready_file.exists()
    assert not (data / "lock").exists()


def transcripts(path: Path) -> Path:
    """Conversations longer than a session's capacity, every third message a call with its answer."""
    with path.open("w") as out:
        for number in range(CONVERSATIONS):
            messages: list[JsonObject] = []
            for turn in range(ROUNDS):
                call: JsonObject = {"id": "again", "type": "function", "function": {"name": "look"}}
                messages += [
                    {"role": "user", "content": f"Question {turn} of talk {number} é"},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "again", "content": f"found {turn}"},
                ]
            out.write(json.dumps({"conversation": f"talk-{number}", "messages": messages}) + "\n")
    return path


async def bring(url: str, path: Path, *blows: tuple[int, str], killer: Up | None = None) -> Report:
    """Import a file; for each blow, kill a process once so many records are done."""
    due = list(blows)

    def told(report: Report, _: str) -> None:
        if killer is not None and due and report.done >= due[0][0]:
            killer.kill(due.pop(0)[1])

    async with Client.http(url) as client:
        report = await Importer(client, listener=told, workers=2).run(items_of([path], EPOCH_MS), size=6)
    assert not due
    return report


async def check_whole(url: str, path: Path) -> None:
    """Every record is there once, in order, as it was; no group is split; the counts agree."""
    items = list(items_of([path], EPOCH_MS))
    tiers: dict[str, int] = {}
    homes: dict[str, set[str]] = {}
    async with Client.http(url, retries=10) as client:
        for session in dict.fromkeys(str(item.session) for item in items):
            records = (await client.timeline(where={"session": session}))["records"]
            assert isinstance(records, list)
            wanted = [item.fields for item in items if item.session == session]
            for record, fields in zip(records, wanted, strict=True):
                assert isinstance(record, dict)
                assert {name: record.get(name) for name in fields} == fields
                tier = str(record["tier"])
                tiers[tier] = tiers.get(tier, 0) + 1
                if "group" in fields:
                    homes.setdefault(str(fields["group"]), set()).add(tier)
        described = await client.describe()
    assert all(len(tier) == 1 for tier in homes.values())
    counted = described["tiers"]
    assert isinstance(counted, list)
    assert {t["name"]: t["count"] for t in counted if isinstance(t, dict) and t["count"]} == tiers
    assert set(tiers) == {"working", "episodic"}


async def records_of(url: str) -> list[JsonObject]:
    async with Client.http(url) as client:
        lines = [json.loads(line) async for line in exporting.lines(client)]
    return lines[1:]


async def settled(url: str, records: int) -> None:
    """Wait until all is up and what is over capacity has spilled, so that nothing moves while we look."""
    deadline = time.monotonic() + SECONDS
    async with Client.http(url) as client:
        while True:
            try:
                counts = (await client.consolidate())["counts"]
            except A2MError as error:
                if not error.retryable:
                    raise
                counts = {}  # a process that was killed is not back yet
            assert isinstance(counts, dict)
            held = {tier: count for tier, count in counts.items() if isinstance(count, int)}
            if sum(held.values()) == records and held["working"] <= CONVERSATIONS * CAPACITY:
                return
            assert time.monotonic() < deadline, held
            await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_an_import_over_crashes_is_whole_and_is_restored_elsewhere(tmp_path: Path) -> None:
    path = transcripts(tmp_path / "talks.jsonl")
    total = CONVERSATIONS * ROUNDS * 3
    with up(tmp_path / "one") as one:
        blows = [(30, "working"), (90, "valkey"), (150, "router"), (200, "postgres"), (230, "episodic")]
        report = await bring(one.url, path, *blows, killer=one)
        assert (report.written + report.there, report.refused) == (total, [])
        await settled(one.url, total)
        await check_whole(one.url, path)
        again = await bring(one.url, path)
        assert (again.written, again.there, again.refused) == (0, total, [])
        await check_whole(one.url, path)
        async with Client.http(one.url) as client:
            await client.remember([{"content": "old", "key": "a/b", "tier": "semantic", "id": "k1"}])
            await client.remember([{"content": "new", "key": "a/b", "id": "k2", "metadata": {"n": -0.0}}])
            await client.remember([{"content": "First this.", "key": "how", "tier": "procedural"}])
        exported = tmp_path / "export.jsonl"
        done = await asyncio.to_thread(run, "export", str(exported), "--url", one.url)
        assert f"{total + 2} records" in done.stderr
        status = await asyncio.to_thread(run, "status", "--url", one.url)
        assert (status.returncode, "all tiers answer" in status.stdout) == (0, True)
        held = await records_of(one.url)
    with up(tmp_path / "two") as two:
        report = await bring(two.url, exported)
        assert (report.written, report.refused) == (total + 2, [])
        await settled(two.url, total + 2)
        assert await records_of(two.url) == held
        assert {record["tier"] for record in held} == {"working", "episodic", "semantic", "procedural"}


@pytest.mark.slow
def test_a_federation_keeps_its_data_to_itself_and_over_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data, "--tiers", "working") as running:
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "token").stat().st_mode) == 0o600
        token = (data / "token").read_text()
        assert set(running.ready) == {"url", "urls", "pids", "pid", "data", "token_file"}
        assert run("remember", "kept", "--url", running.url).returncode == 0
        died = running.kill("working")
        deadline = time.monotonic() + SECONDS
        while running.pid("working") in (died, None):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        second = run("up", "--data", str(data))
        assert second.returncode == 1
        assert "is in use by process" in second.stderr
    with up(data, "--tiers", "working") as running:
        assert "kept" in run("timeline", "--url", running.url).stdout
        assert (data / "token").read_text() == token


@pytest.mark.slow
def test_the_demo_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    done = run("demo", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    for tier in ("working", "episodic", "semantic", "procedural"):
        assert f"  {tier:<12}" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    blueprint = Blueprint(tmp_path, free_port_base())
    check_ports(blueprint)
    with socket.create_server(("127.0.0.1", blueprint.port("semantic"))):
        with pytest.raises(CliError, match=rf"port {blueprint.port('semantic')} \(semantic\).*--port-base"):
            check_ports(blueprint)
        done = run("up", "--data", str(tmp_path / "data"), "--port-base", str(blueprint.port_base))
        assert done.returncode == 1
        assert "--port-base" in done.stderr
    assert not (tmp_path / "data" / "logs").exists()


def test_the_packaged_model_embeds_unless_the_operator_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "A2M_ROUTER_EMBEDDING__KIND"

    def given() -> list[str | None]:
        services = [child for child in children(Blueprint(tmp_path)) if child.name in ("router", "semantic")]
        return [child.environment().get(kind) for child in services]

    for name in [name for name in os.environ if name.startswith("A2M_ROUTER_EMBEDDING")]:
        monkeypatch.delenv(name)
    assert given() == [None, "local"]
    for value in ("none", "openai"):
        monkeypatch.setenv(kind, value)
        assert given() == [value, value], "the environment is handed on as it is"
    monkeypatch.delenv(kind)
    monkeypatch.setenv("a2m_router_embedding__url", "http://127.0.0.1:1/v1")
    assert given() == [None, None]
