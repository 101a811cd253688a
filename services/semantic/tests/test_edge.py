"""Qdrant Edge: durability, its folder, and readers beside a writer."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_semantic import edge
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Named, Page, Scope, Search

WRITER = """
import asyncio, sys
from pathlib import Path
from a2m_protocol.types import Draft
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Named

async def main(folder, start):
    store = SemanticStore(EdgeEngine(Path(folder), "cosine", 0.05))
    await store.open()
    for n in range(start, 1_000_000):
        pair = [Draft(id=f"{n}-{half}", content=f"fact {n}", embedding=[float(n), 1.0]) for half in "ab"]
        fact = Draft(id=f"{n}-k", content=str(n), key="counter")
        written = await store.write([*pair, fact], EVERYONE)
        print("written", n, flush=True)
        if n % 3 == 0:
            await store.forget(Filter(ids=(f"{n}-a",)))
            print("forgotten", n, flush=True)
        if n % 3 == 1:
            await store.delete_if([Named(w.id, w.etag) for w in written[:2]], "moved", "elsewhere")
            print("moved", n, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def draft(content: str, **fields: object) -> Draft:
    return Draft.model_validate({"id": content, "content": content, **fields})


def _run_and_kill(folder: Path, start: int, lines: int) -> dict[str, set[int]]:
    """Start a writer, kill it after some lines of acknowledgement, and collect those."""
    command = [sys.executable, "-c", WRITER, str(folder), str(start)]
    said: dict[str, set[int]] = {"written": set(), "forgotten": set(), "moved": set()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for count, line in enumerate(writer.stdout):
            word, number = line.split()
            said[word].add(int(number))
            if count == lines:
                writer.send_signal(signal.SIGKILL)
    return said


@pytest.mark.slow
async def test_a_killed_process_loses_nothing_that_it_acknowledged(edge_folder: Path) -> None:
    said: dict[str, set[int]] = {"written": set(), "forgotten": set(), "moved": set()}
    for lines in (1, 60, 140):
        start = max(said["written"], default=-1) + 2  # the one after may be there, unacknowledged
        for word, numbers in _run_and_kill(edge_folder, start, lines).items():
            said[word] |= numbers
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    ids = [f"{n}-{half}" for n in sorted(said["written"]) for half in "ab"]
    held = {record.id for record in await store.read(ids)}
    graves = {grave.id: grave.reason for grave in await store.tombstones(ids)}
    for n in said["written"]:
        a, b = f"{n}-a", f"{n}-b"
        assert (a in held) != (a in graves), "a record or its tombstone, never both and never neither"
        if n % 3 == 1:
            assert (a in held) == (b in held), "a conditional delete takes all or nothing"
        else:
            assert b in held
    assert all(graves[f"{n}-a"] == "forgotten" for n in said["forgotten"])
    assert all(graves[f"{n}-{half}"] == "moved" for n in said["moved"] for half in "ab")
    counter = (await store.fetch("counter", EVERYONE, vectors=False)).record
    assert counter is not None
    assert int(counter.content) >= max(said["written"])
    await store.close()


async def test_a_store_opened_again_is_what_it_was(edge_folder: Path) -> None:
    first = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await first.open()
    one = draft("a fact", embedding=[0.1, 3.0], key="k", metadata={"n": 2**70}, session="s")
    [written] = await first.write([one, draft("gone")][:1], EVERYONE)
    await first.write([draft("gone")], EVERYONE)
    await first.forget(Filter(ids=("gone",)))
    await first.write([draft("newer", key="k2")], EVERYONE)
    await first.close()
    again = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await again.open()
    [record] = await again.read([one.id])
    assert (record.etag, record.embedding, record.metadata) == (written.etag, one.embedding, one.metadata)
    assert [grave.reason for grave in await again.tombstones(["gone"])] == ["forgotten"]
    assert (await again.info()).dimensions == 2
    [newest] = await again.write([draft("newest", session="s")], EVERYONE)
    found = (await again.timeline(Page(Filter()))).records
    assert [r.content for r in found] == ["a fact", "newer", newest.id]
    assert [r.id for r in (await again.search(Search(Filter(), 5, text="fact"))).records] == [one.id]
    await again.close()


async def test_a_folder_serves_one_process_and_says_so(edge_folder: Path) -> None:
    first = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await first.open()
    with pytest.raises(A2MError, match="is in use by process"):
        await SemanticStore(EdgeEngine(edge_folder, "cosine")).open()
    await first.close()
    after = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await after.open()
    await after.close()


async def test_a_disk_that_is_nearly_full_takes_no_records_and_still_forgets(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    await store.write([draft("a"), draft("b")], EVERYONE)
    room = edge.ROOM
    monkeypatch.setattr(edge, "ROOM", 2**62)
    with pytest.raises(A2MError, match="its disk is full") as full:
        await store.write([draft("c")], EVERYONE)
    assert full.value.retryable
    assert [r.id for r in (await store.timeline(Page(Filter()))).records] == ["a", "b"]
    assert (await store.forget(Filter(ids=("a",)))).ids == ["a"]
    monkeypatch.setattr(edge, "ROOM", room)
    await store.write([draft("c")], EVERYONE)
    assert [r.id for r in (await store.timeline(Page(Filter()))).records] == ["b", "c"]
    await store.close()


async def test_another_metric_or_width_than_the_store_was_made_with_is_refused(edge_folder: Path) -> None:
    first = SemanticStore(EdgeEngine(edge_folder, "dot"), metric="dot")
    await first.open()
    await first.write([draft("v", embedding=[1.0, 2.0])], EVERYONE)
    await first.close()
    with pytest.raises(A2MError, match=r"made with metric dot.*A2M_SEMANTIC_METRIC"):
        await SemanticStore(EdgeEngine(edge_folder, "l2"), metric="l2").open()
    with pytest.raises(A2MError, match=r"made with dimensions 2.*A2M_SEMANTIC_DIMENSIONS"):
        await SemanticStore(EdgeEngine(edge_folder, "dot"), metric="dot", dimensions=3).open()
    again = SemanticStore(EdgeEngine(edge_folder, "dot"), metric="dot")
    await again.open()
    assert (await again.info()).dimensions == 2
    await again.close()


async def test_readers_see_a_rewritten_key_once_and_never_an_older_value(edge_folder: Path) -> None:
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    await store.write([draft("0", key="k", embedding=[1.0, 0.0])], EVERYONE)
    done = asyncio.Event()

    async def rewrite() -> None:
        for n in range(1, 200):
            fresh = Draft(id=f"w{n}", content=str(n), key="k", embedding=[float(n), 1.0])
            await store.write([fresh], EVERYONE)
        done.set()

    async def watch() -> None:
        last = -1
        while not done.is_set():
            pages = await asyncio.gather(
                store.timeline(Page(Filter(key_prefix="k"))),
                store.search(Search(Filter(), 5, embedding=[1.0, 1.0])),
            )
            for found in pages:
                assert len(found.records) == 1
            fetched = (await store.fetch("k", EVERYONE, vectors=False)).record
            assert fetched is not None
            assert int(fetched.content) >= last
            last = int(fetched.content)

    await asyncio.gather(rewrite(), watch(), watch(), watch())
    await store.close()


async def test_a_cancelled_write_is_finished_before_the_next(edge_folder: Path) -> None:
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    task = asyncio.create_task(store.write([draft("one", key="k")], EVERYONE))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [second] = await store.write([draft("two", key="k")], EVERYONE)
    assert second.outcome in ("created", "replaced")
    found = (await store.timeline(Page(Filter(key_prefix="k")))).records
    assert [record.content for record in found] == ["two"]
    await store.close()


async def test_concurrent_writers_of_one_id_or_key_make_one_record(edge_folder: Path) -> None:
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    same = [store.write([draft("same")], EVERYONE) for _ in range(10)]
    keyed = [store.write([draft(f"k{n}", key="k")], EVERYONE) for n in range(10)]
    outcomes = [written[0].outcome for written in await asyncio.gather(*same, *keyed)]
    assert (outcomes.count("created"), outcomes.count("existing"), outcomes.count("replaced")) == (2, 9, 9)
    [named] = await store.read(["same"])
    assert await store.delete_if([Named("same", named.etag)], "undo", None) == {"same": "deleted"}
    assert await store.counts(Scope()) == {"semantic": 1}
    await store.close()
