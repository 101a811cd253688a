"""Qdrant Edge: a shard that is loaded anew while it serves, and the memory that this frees."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_semantic import edge, shard
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Page, Search

TOMBSTONES = 8_000
MOST_BYTES = 700
GRAVES = """
import asyncio, sys
from pathlib import Path
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import Tombstone

def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("RssAnon:"))

async def main(folder, count):
    engine = EdgeEngine(Path(folder), "cosine", 0.1)
    store = SemanticStore(engine)
    await store.open()
    async def bury(start, end):
        for first in range(start, end, 100):
            numbers = range(first, first + 100)
            await store.bury([Tombstone(f"record-{n}", "forgotten", n, "ana", session="s") for n in numbers])
        await engine.renew()
        await store.ready()
    await bury(0, 4_000)
    before = memory()
    await bury(4_000, 4_000 + count)
    print((memory() - before) / count)
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def draft(name: str) -> Draft:
    return Draft(id=name, content=f"fact {name}", embedding=[1.0, 2.0])


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folder of each load of a shard."""
    loaded: list[Path] = []
    load = shard.load

    def watched(folder: Path) -> object:
        loaded.append(folder)
        return load(folder)

    monkeypatch.setattr(shard, "load", watched)
    return loaded


async def test_readers_and_writers_do_not_notice_that_the_shard_is_loaded_anew(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch, loads: list[Path]
) -> None:
    monkeypatch.setattr(edge, "RENEW_AFTER", 1)
    store = SemanticStore(EdgeEngine(edge_folder, "cosine", 0.01))
    await store.open()
    await store.write([draft("first")], EVERYONE)
    over = asyncio.Event()

    async def read() -> None:
        while not over.is_set():
            found = await store.search(Search(Filter(ids=("first",)), 5, embedding=[1.0, 2.0]))
            assert [record.id for record in found.records] == ["first"]

    reading = [asyncio.create_task(read()) for _ in range(3)]
    written = 0
    async with asyncio.timeout(20):
        while len(loads) < 4:
            await store.write([draft(f"n{written}"), draft(f"gone{written}")], EVERYONE)
            await store.forget(Filter(ids=(f"gone{written}",)))
            written += 1
    over.set()
    await asyncio.gather(*reading)
    await store.close()
    again = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await again.open()
    held = {record.id for record in (await again.timeline(Page(Filter()))).records}
    assert held == {"first", *(f"n{n}" for n in range(written))}
    assert len(await again.tombstones([f"gone{n}" for n in range(written)])) == written
    await again.close()


async def test_a_shard_is_not_loaded_anew_for_a_small_part_of_what_it_holds(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch, loads: list[Path]
) -> None:
    monkeypatch.setattr(edge, "RENEW_AFTER", 1)
    engine = EdgeEngine(edge_folder, "cosine", 10_000.0)
    store = SemanticStore(engine)
    await store.open()
    await store.write([draft(f"old{n}") for n in range(80)], EVERYONE)
    await engine.renew()
    await store.write([draft("new")], EVERYONE)
    await engine.tend()
    await store.ready()
    assert len(loads) == 2
    await store.write([draft(f"new{n}") for n in range(20)], EVERYONE)
    await engine.tend()
    await store.ready()
    assert len(loads) == 3
    await store.close()


async def test_a_shard_that_cannot_be_loaded_anew_is_an_error_that_passes(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EdgeEngine(edge_folder, "cosine")
    store = SemanticStore(engine)
    await store.open()
    await store.write([draft("a")], EVERYONE)
    await engine.renew()
    (edge_folder / shard.SHARD).rename(edge_folder / "away")
    with pytest.raises(A2MError) as failed:
        await store.read(["a"])
    assert failed.value.retryable
    (edge_folder / "away").rename(edge_folder / shard.SHARD)
    assert [record.id for record in await store.read(["a"])] == ["a"]
    await store.close()


async def test_a_closed_store_stays_closed(edge_folder: Path) -> None:
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    await store.close()
    with pytest.raises(A2MError, match="it is not open"):
        await store.read(["a"])


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="needs /proc to see what memory is its own"
)
def test_a_tombstone_takes_few_bytes_of_memory(edge_folder: Path) -> None:
    command = [sys.executable, "-c", GRAVES, str(edge_folder), str(TOMBSTONES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < MOST_BYTES
