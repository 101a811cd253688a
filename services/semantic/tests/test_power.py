"""What a loss of power leaves of Qdrant Edge: the log as it was synced, and any mixture of other pages."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter

NEVER = 10_000.0
PAGE = 4_096


class Disk:
    """What is on disk for sure: each file as it was when it was synced last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.synced: dict[Path, bytes] = {}
        fsync = os.fsync

        def watched(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_file() and path.is_relative_to(folder):
                self.synced[path.relative_to(folder)] = path.read_bytes()

        monkeypatch.setattr(os, "fsync", watched)

    def image(self, flushed: Path, target: Path, chosen: random.Random) -> None:
        """The folder after a loss of power: of what was not synced each page is old or new."""
        shutil.copytree(self.folder, target)
        for path in [path for path in target.rglob("*") if path.is_file()]:
            name = path.relative_to(target)
            if "wal" in name.parts:
                if name in self.synced:
                    path.write_bytes(self.synced[name])
                else:
                    path.unlink()
            elif not (flushed / name).exists():
                if chosen.random() < 0.5:
                    path.unlink()
            else:
                path.write_bytes(mixed((flushed / name).read_bytes(), path.read_bytes(), chosen))


def mixed(old: bytes, new: bytes, chosen: random.Random) -> bytes:
    if old == new:
        return new
    size = chosen.choice([len(old), len(new)])
    pair = [data.ljust(max(len(old), len(new)), b"\0") for data in (old, new)]
    pages = (chosen.choice(pair)[at : at + PAGE] for at in range(0, len(pair[0]), PAGE))
    return b"".join(pages)[:size]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see what is synced")
@pytest.mark.parametrize("renewed", [False, True])
async def test_a_loss_of_power_takes_nothing_that_was_acknowledged(
    edge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    engine = EdgeEngine(edge_folder, "cosine", NEVER)
    store = SemanticStore(engine)
    await store.open()
    old = [Draft(id=f"old{n}", content=f"old {n}", key=f"k{n}", embedding=[float(n), 1.0]) for n in range(60)]
    await store.write(old, EVERYONE)
    await engine.flush()
    if renewed:
        await engine.renew()
        await store.ready()
    flushed = Path(shutil.copytree(edge_folder, tmp_path / "flushed"))
    disk = Disk(monkeypatch, edge_folder)
    for n in range(12):
        await store.write(
            [Draft(id=f"new{n}-{m}", content=f"new {n} {m} " * 40) for m in range(20)], EVERYONE
        )
        await store.write([Draft(id=f"w{n}", content="rewritten", key=f"k{n}")], EVERYONE)
        await store.forget(Filter(ids=(f"old{20 + n}",)))
    for trial in range(4):
        image = tmp_path / f"image{trial}"
        disk.image(flushed, image, random.Random(trial))
        again = SemanticStore(EdgeEngine(image, "cosine", NEVER))
        await again.open()
        found = {r.id: r for r in await again.read([f"new{n}-{m}" for n in range(12) for m in range(20)])}
        assert len(found) == 240
        kept = {r.id: r.content for r in await again.read([d.id for d in old])}
        assert [kept[f"old{n}"] for n in range(12)] == ["rewritten"] * 12
        assert kept.keys() == {d.id for d in old if not 20 <= int(d.id[3:]) < 32}
        assert len(await again.tombstones([f"old{20 + n}" for n in range(12)])) == 12
        assert await again.counts(EVERYONE) == {"semantic": 240 + 48}
        await again.close()
    await store.close()


async def test_a_write_that_could_not_be_synced_is_an_error_that_may_be_tried_again(
    edge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SemanticStore(EdgeEngine(edge_folder, "cosine"))
    await store.open()
    fsync = os.fsync

    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(A2MError, match="Input/output error") as failed:
        await store.write([Draft(id="a", content="a")], EVERYONE)
    assert failed.value.retryable
    monkeypatch.setattr(os, "fsync", fsync)
    [written] = await store.write([Draft(id="a", content="a")], EVERYONE)
    assert written.outcome in ("created", "existing")
    assert len(await store.read(["a"])) == 1
    await store.close()
