"""The packaged embedder alone: rate, time of a query, memory, and what the event loop notices.

Embeds turns of the conversations at hand, one thread, as the router does when records leave working; asks
questions alone, and again while documents are being embedded. The delay is how much later than asked a
sleeping task of the same process wakes up. Reads the folder in A2M_TEST_DATA, else ../shared/data beside the
checkout, else the shipped demo.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path

import psutil

import a2m_cli
from a2m_retrieval.embed.local import LocalEmbedder

TURNS = 400
QUERIES = 100
TICK = 0.005


def turns() -> list[str]:
    root = Path(os.environ.get("A2M_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    found = sorted(root.glob("locomo/*.turns.jsonl"))
    found = found or sorted((Path(a2m_cli.__file__).parent / "data").glob("*.jsonl"))
    lines = [json.loads(line) for path in found[:1] for line in path.read_text().splitlines()]
    said = [turn for line in lines for turn in line.get("messages", [line])]
    texts = [
        f"{turn.get('speaker', turn['role'])}: {turn['content']}" for turn in said if turn.get("content")
    ]
    return (texts * (TURNS // len(texts) + 1))[:TURNS]


def milliseconds(name: str, taken: list[float]) -> str:
    p95 = statistics.quantiles(taken, n=20)[-1]
    return f"{name:32} p50 {statistics.median(taken) * 1e3:6.1f} ms   p95 {p95 * 1e3:6.1f} ms"


async def queries(embedder: LocalEmbedder, texts: list[str]) -> list[float]:
    taken: list[float] = []
    for text in texts[:QUERIES]:
        begun = time.perf_counter()
        await embedder.embed([text], kind="query")
        taken.append(time.perf_counter() - begun)
    return taken


async def delays(work: Awaitable[object]) -> list[float]:
    """How late a task wakes up each `TICK` until the work is done."""
    late: list[float] = []
    task = asyncio.ensure_future(work)
    while not task.done():
        begun = time.perf_counter()
        await asyncio.sleep(TICK)
        late.append(time.perf_counter() - begun - TICK)
    await task
    return late


def megabytes() -> float:
    """Of this process and of the one that embeds documents; what they share counts twice."""
    process = psutil.Process()
    return sum(each.memory_info().rss for each in [process, *process.children()]) / 1e6


def worked() -> float:
    """Seconds of the processor that both have spent."""
    process = psutil.Process()
    times = [each.cpu_times() for each in [process, *process.children()]]
    return sum(each.user + each.system for each in times)


async def measure() -> None:
    texts = turns()
    bare = megabytes()
    embedder = LocalEmbedder()
    begun = time.perf_counter()
    await embedder.open()
    print(f"{embedder.model}: {embedder.dimensions} numbers, opened in {time.perf_counter() - begun:.2f} s")
    await queries(embedder, texts)
    print(milliseconds("a query", await queries(embedder, texts)))
    print(milliseconds("delay while nothing happens", await delays(asyncio.sleep(2))))
    begun = time.perf_counter()
    await embedder.embed(texts[:1], kind="document")
    print(f"the first document in {time.perf_counter() - begun:.2f} s, another process being started for it")
    begun, spent = time.perf_counter(), worked()
    late = await delays(embedder.embed(texts, kind="document"))
    spent, taken = worked() - spent, time.perf_counter() - begun
    print(milliseconds("delay while documents are embedded", late))
    print(f"{len(texts)} turns in {taken:.1f} s: {len(texts) / taken:.0f} a second, ", end="")
    print(f"{len(texts) / spent:.0f} a second of one core")
    documents = asyncio.create_task(embedder.embed(texts, kind="document"))
    print(milliseconds("a query meanwhile", await queries(embedder, texts)))
    documents.cancel()
    await asyncio.wait([documents])
    print(f"memory: {bare:.0f} MB without the model, {megabytes():.0f} MB now")
    await embedder.close()


if __name__ == "__main__":
    asyncio.run(measure())
