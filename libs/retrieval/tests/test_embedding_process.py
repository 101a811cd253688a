"""The process that embeds documents: when there is one, what it gives way to, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from a2m_protocol.errors import A2MError
from a2m_retrieval.embed import local, process, worker
from a2m_retrieval.embed.local import BATCH, LocalEmbedder

SECONDS = 20.0
TEXTS = ["The boat is in the harbour.", "", "We moved the release to Friday.", "tea " * 600]

PARENT = """
import asyncio, psutil
from a2m_retrieval.embed.local import LocalEmbedder

async def main():
    embedder = LocalEmbedder()
    await embedder.open()
    await embedder.embed(["x"], kind="document")
    print(psutil.Process().children()[0].pid, flush=True)
    await embedder.embed(["word " * 200] * 10_000, kind="document")

asyncio.run(main())
"""

LOUD = """
import os, sys
from a2m_retrieval.embed import minilm, worker

class Loud(minilm.MiniLM):
    def encode(self, texts):
        print("so many texts:", len(texts), flush=True)
        os.write(1, b"and so say the libraries")
        return super().encode(texts)

minilm.MiniLM = Loud
sys.argv[1:] = ["1", "60"]
worker.main()
"""


@pytest.fixture
async def embedder() -> AsyncIterator[LocalEmbedder]:
    made = LocalEmbedder()
    await made.open()
    yield made
    await made.close()
    assert workers() == []


def workers() -> list[psutil.Process]:
    """Those of this process that run."""
    return [
        child
        for child in psutil.Process().children()
        if is_running(child) and worker.__name__ in child.cmdline()
    ]


def is_running(child: psutil.Process) -> bool:
    try:
        return child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def priority_of_session(child: psutil.Process) -> int | None:
    """None where sessions have none."""
    told = Path(f"/proc/{child.pid}/autogroup")
    return int(told.read_text().split()[-1]) if told.exists() else None


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


async def started(embedder: LocalEmbedder) -> psutil.Process:
    """The process, once it has embedded something."""
    await embedder.embed(["x"], kind="document")
    [child] = workers()
    return child


async def stuck(embedder: LocalEmbedder) -> tuple[psutil.Process, asyncio.Task[list[list[float]]]]:
    """The process, stopped while it is asked for the vectors of `TEXTS`."""
    child = await started(embedder)
    child.suspend()
    asked = asyncio.create_task(embedder.embed(TEXTS, kind="document"))
    await until(lambda: any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))
    return child, asked


async def test_queries_alone_start_no_process(embedder: LocalEmbedder) -> None:
    await embedder.embed(TEXTS, kind="query")
    assert workers() == []


async def test_it_sees_in_a_document_what_a_query_of_the_same_words_shows(embedder: LocalEmbedder) -> None:
    documents = await embedder.encode(TEXTS, kind="document")
    for document, query in zip(documents, await embedder.encode(TEXTS, kind="query"), strict=True):
        assert document.vector == pytest.approx(query.vector, abs=1e-5)
        assert query.tokens is not None
        assert document.features is not None
        kept = embedder.tokens("", document.features)
        assert kept.ids.tolist() == query.tokens.ids.tolist()
        assert kept.states is not None


async def test_it_is_of_lower_priority(embedder: LocalEmbedder) -> None:
    child = await started(embedder)
    assert child.nice() == psutil.Process().nice() + worker.NICE
    assert priority_of_session(child) in (worker.NICE, None)


async def test_an_interrupt_from_the_terminal_does_not_reach_it(embedder: LocalEmbedder) -> None:
    assert os.getpgid((await started(embedder)).pid) != os.getpgid(0)


async def test_one_that_is_killed_in_the_middle_of_a_batch_is_replaced(
    embedder: LocalEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    child, asked = await stuck(embedder)
    child.kill()
    expected = await embedder.embed(TEXTS, kind="query")
    for vector, other in zip(await asked, expected, strict=True):
        assert vector == pytest.approx(other, abs=1e-5)
    assert "status -9" in caplog.text
    assert [other.pid for other in workers()] != [child.pid]


async def test_one_that_was_killed_between_two_batches_is_replaced(embedder: LocalEmbedder) -> None:
    child = await started(embedder)
    child.kill()
    await until(lambda: not is_running(child))
    assert len(await embedder.embed(TEXTS, kind="document")) == len(TEXTS)


async def test_one_that_does_not_start_is_told_of_as_what_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    embedder = LocalEmbedder()
    await embedder.open()
    with pytest.raises(A2MError, match=r"its process failed \(status 1\); try again") as caught:
        await embedder.embed(TEXTS, kind="document")
    assert caught.value.retryable
    assert len(await embedder.embed(TEXTS, kind="query")) == len(TEXTS)
    await embedder.close()


async def test_one_that_gives_no_answer_is_ended(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(embedder)
    monkeypatch.setattr(process, "PATIENCE", 0.5)
    child, asked = await stuck(embedder)
    # Its successor may be too slow for so little patience.
    await asyncio.wait([asked], timeout=SECONDS)
    assert asked.done()
    assert asked.exception() is None or isinstance(asked.exception(), A2MError)
    assert not is_running(child)


async def test_a_call_that_was_cancelled_leaves_no_answer_for_the_next(embedder: LocalEmbedder) -> None:
    [expected] = await embedder.embed(["When does the plane arrive?"], kind="query")
    child, asked = await stuck(embedder)
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    child.resume()
    [vector] = await embedder.embed(["When does the plane arrive?"], kind="document")
    assert vector == pytest.approx(expected, abs=1e-5)
    assert workers() == [child]


async def test_one_without_documents_ends_and_comes_back_with_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "IDLE", 0.5)
    embedder = LocalEmbedder()
    await embedder.open()
    child = await started(embedder)
    await until(lambda: not psutil.pid_exists(child.pid))
    assert len(await embedder.embed(TEXTS, kind="document")) == len(TEXTS)
    assert caplog.text == ""
    await embedder.close()


def test_what_is_printed_meanwhile_does_not_come_between_the_answers() -> None:
    command = [sys.executable, "-c", LOUD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(2):
            worker.send(child.stdin, b'["a plane"]')
            answer = worker.receive(child.stdout)
            assert len(json.loads(answer[4 * LocalEmbedder.dimensions :])) == 1
        said = child.communicate()[1]
    assert child.returncode == 0
    assert said.count(b"so many texts: 1") == said.count(b"and so say the libraries") == 2


def test_it_does_not_outlive_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert worker.__name__ in child.cmdline()
        parent.send_signal(signal.SIGKILL)
    asyncio.run(until(lambda: not is_running(child)))


async def test_closing_finishes_what_was_begun_and_ends_it(embedder: LocalEmbedder) -> None:
    child = await started(embedder)
    asked = asyncio.create_task(embedder.embed(["The boat is in the harbour."] * BATCH, kind="document"))
    await asyncio.sleep(0)
    await embedder.close()
    assert len(await asked) == BATCH
    assert not psutil.pid_exists(child.pid)


async def test_closing_does_not_wait_for_ever_for_one_that_gives_no_answer(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GRACE", 0.2)
    child, asked = await stuck(embedder)
    await embedder.close()
    with pytest.raises(A2MError, match="not open"):
        await asked
    assert not psutil.pid_exists(child.pid)
