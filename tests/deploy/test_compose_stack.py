"""The compose file is brought up, asked, killed piece by piece, taken down and brought up again.

Without Docker: the services run as processes, as `stack` says. With it there is `test_compose_docker` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from compose_file import load
from ports import free_ports
from stack import Stack
from writer import Writer, absent

from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import Status
from a2m_conformance.runner import Options, run
from a2m_protocol.client import SyncClient
from a2m_retrieval.embed.minilm import MODEL

pytestmark = pytest.mark.timeout(300)

UP_SECONDS = 120.0
BACK_SECONDS = 60.0
KILLED = ("working", "episodic", "semantic", "procedural", "router", "valkey", "postgres")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Up, for all tests of this module, which therefore run in their order."""
    stack = Stack(load(), tmp_path_factory.mktemp("compose"), free_ports())
    try:
        stack.up(UP_SECONDS)
        yield stack
    finally:
        stack.down()


def token(stack: Stack) -> Path:
    return stack.volume("you-secrets") / "token"


def client(stack: Stack) -> SyncClient:
    return SyncClient.http(stack.url, token_file=token(stack), timeout=20.0, retries=4)


def test_services_start_in_the_order_of_what_they_need(stack: Stack) -> None:
    at = {name: stack.started.index(name) for name in stack.containers}
    assert at["init"] == 0
    assert at["router"] == len(at) - 1
    assert at["valkey"] < at["working"]
    assert at["postgres"] < at["episodic"]
    assert at["qdrant"] < at["semantic"]


def test_nobody_is_taken_without_a_token_by_the_router_or_by_a_tier(stack: Stack) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "memory/describe", "params": {}}
    ports = [stack.url, *(stack.url_of(name) for name in ("working", "episodic", "semantic", "procedural"))]
    mine = token(stack).read_text().strip()
    for url in ports:
        assert httpx.post(url, json=call).status_code == 401
        shown = httpx.post(url, json=call, headers={"Authorization": f"Bearer {mine}"})
        # An operator's is for the router alone.
        assert shown.status_code == (200 if url == stack.url else 401)


def test_the_token_for_metrics_reads_those_of_every_server_and_no_record(stack: Stack) -> None:
    shown = {"Authorization": f"Bearer {(stack.volume('metrics-secrets') / 'token').read_text().strip()}"}
    with client(stack) as memory:
        written = memory.remember([{"content": "not for metrics"}])["ids"]
    params = {"where": {"id": written[0]}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "memory/timeline", "params": params}
    for name in ("router", "working", "episodic", "semantic", "procedural"):
        answer = httpx.get(f"{stack.url_of(name)}/metrics", headers=shown)
        assert answer.status_code == 200
        assert "a2m_requests" in answer.text
        assert httpx.post(stack.url_of(name), json=asked, headers=shown).json()["result"]["records"] == []


def test_the_command_line_in_its_container_has_the_token_of_the_operator(stack: Stack) -> None:
    assert "all tiers answer" in stack.run("a2m", "status")


async def test_the_router_conforms_to_an_agent_beside_another(stack: Stack) -> None:
    """The tokens are made by `docker compose run --rm a2m token create`, while the router runs."""
    agent, other = (stack.run("a2m", "token", "create", name).strip() for name in ("agent", "other"))
    wire = HttpWire(stack.url, agent, other, timeout=60.0)
    try:
        finished = await run(wire, Options(timeout=60.0, slow=False))
    finally:
        await wire.close()
    failed = {o.requirement.id: o.detail for o in finished.outcomes if o.status == Status.failed}
    assert failed == {}
    assert finished.count(Status.passed) > finished.count(Status.skipped)


def test_whatever_is_killed_comes_back_and_nothing_acknowledged_is_lost(stack: Stack) -> None:
    writer = Writer(stack.url, token(stack))
    writer.start()
    try:
        for name in KILLED:
            before = len(writer.acknowledged)
            pid = stack.kill(name)
            stack.wait(f"{name} is back", lambda name=name, pid=pid: stack.back(name, pid), BACK_SECONDS)
            goes_on = lambda before=before: len(writer.acknowledged) > before  # noqa: E731
            stack.wait("writes are taken", goes_on, BACK_SECONDS)
    finally:
        writer.stop()
    stack.wait("everything is healthy", stack.is_up, BACK_SECONDS)
    assert all(stack.containers[name].restarts >= 1 for name in KILLED)
    assert len(writer.acknowledged) > len(KILLED)
    assert writer.lost() == []


def test_down_and_up_again_loses_nothing_and_makes_no_new_secrets(stack: Stack) -> None:
    with client(stack) as memory:
        kept = memory.remember(
            [{"content": "said before", "session": "kept"}, {"content": "a fact", "key": "kept/fact"}]
        )["ids"]
        memory.close_session("kept")
        procedure = memory.remember([{"content": "how to", "key": "kept/how", "tier": "procedural"}])["ids"]
    secrets = {path: path.read_bytes() for path in stack.volume("").glob("*-secrets/*")}
    stack.down()
    stack.up(UP_SECONDS)
    assert {path: path.read_bytes() for path in stack.volume("").glob("*-secrets/*")} == secrets
    with client(stack) as memory:
        assert absent(memory, [*kept, *procedure]) == []
        assert memory.describe()["embeddings"]["model"] == MODEL


def test_nothing_is_written_but_into_volumes_and_the_folder_for_temporary_files(stack: Stack) -> None:
    for container in stack.containers.values():
        configs = {container.view / target.lstrip("/") for _, target in container.service.configs}
        written = {path for path in container.view.rglob("*") if path.is_file()} - configs
        assert {path for path in written if path.parent != container.view / "tmp"} == set(), container.service
