"""A backup is whole or it is refused; what is in it is what was put in."""

from __future__ import annotations

import asyncio
import hashlib
import random
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from a2m_cli.archive import MANIFEST, RECORDS, TOMBSTONES, Archive, ArchiveError, Manifest, Part, Writer
from a2m_cli.connection import CliError, Server
from a2m_cli.files import whole_file
from a2m_cli.restore import Wanted, restore
from a2m_protocol.errors import JsonObject

HEADER: JsonObject = {"format": "a2m-export", "version": 1}
VALUES: list[JsonObject] = [{"id": f"r{at}", "content": f"naïve \u2028 {at}\n" * at} for at in range(50)]


async def each(values: Iterable[JsonObject]) -> AsyncIterator[JsonObject]:
    for value in values:
        yield value


async def write(path: Path, **changed: object) -> None:
    with whole_file(path) as out, Writer(out) as writer:
        await writer.add(RECORDS, each(VALUES), HEADER)
        await writer.add(TOMBSTONES, each([{"id": "gone", "seq": 2**53 - 1}]))
        about = {"format": "a2m-backup", "version": 1, "name": "n", "began_at": "t", "as_of": "t"}
        about |= {"scope": "everything", "tiers": {"working": 50}, "files": writer.parts}
        writer.finish(Manifest.model_validate({**about, **changed}))


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "b.zip"
    await write(path)
    return path


def test_what_was_put_in_is_read_out(path: Path) -> None:
    archive = Archive.checked(path)
    assert list(archive.values(RECORDS)) == [HEADER, *VALUES]
    assert list(archive.values(TOMBSTONES)) == [{"id": "gone", "seq": 2**53 - 1}]
    assert archive.manifest.files[RECORDS].count == 50
    assert path.stat().st_mode & 0o777 == 0o600


def test_standard_tools_read_it(path: Path) -> None:
    with zipfile.ZipFile(path) as opened:
        assert opened.namelist() == [RECORDS, TOMBSTONES, MANIFEST]
        assert opened.testzip() is None


def test_one_wrong_byte_anywhere_is_noticed_or_means_nothing(path: Path) -> None:
    whole = path.read_bytes()
    expected = [HEADER, *VALUES]
    chosen = random.Random(7)
    for at in sorted(chosen.sample(range(len(whole)), min(len(whole), 600))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chosen.randrange(8))]) + whole[at + 1 :])
        with suppress(ArchiveError):
            assert list(Archive.checked(path).values(RECORDS)) == expected


def test_a_file_that_was_cut_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for at in [*range(0, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:at])
        with pytest.raises(ArchiveError):
            Archive.checked(path)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"format": "other"}, "expected 'a2m-backup'"),
        ({"version": 2}, "this release reads version 1"),
        ({"files": {}}, "does not tell of records.jsonl, tombstones.jsonl"),
    ],
)
async def test_what_another_release_wrote_is_refused(
    tmp_path: Path, changed: dict[str, object], complaint: str
) -> None:
    await write(tmp_path / "other.zip", **changed)
    with pytest.raises(ArchiveError, match=complaint):
        Archive.checked(tmp_path / "other.zip")


def test_a_missing_file_or_another_zip_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"cannot read .*none\.zip"):
        Archive.checked(tmp_path / "none.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("a.txt", "a")
    with pytest.raises(ArchiveError, match=r"other\.zip is damaged, or no backup"):
        Archive.checked(tmp_path / "other.zip")


def test_a_file_that_failed_half_way_leaves_nothing(tmp_path: Path) -> None:
    async def fail() -> AsyncIterator[JsonObject]:
        yield {"id": "a"}
        raise CliError("the server has gone")

    async def attempt() -> None:
        with whole_file(tmp_path / "b.zip") as out, Writer(out) as writer:
            await writer.add(RECORDS, fail())

    with pytest.raises(CliError, match="gone"):
        asyncio.run(attempt())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CliError, match="cannot write"), whole_file(tmp_path / "no" / "folder"):
        pass


async def test_what_claims_to_be_small_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    await write(path)
    manifest = Archive.checked(path).manifest
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for part in (RECORDS, TOMBSTONES):
            made.writestr(part, b"\n" * 2**26)
        made.writestr(MANIFEST, manifest.model_dump_json())
    other = tmp_path / "c.zip"
    with zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(MANIFEST, manifest.model_dump_json() + " " * 2**26)
    tracemalloc.start()
    for bomb in (path, other):
        with pytest.raises(ArchiveError):
            Archive.checked(bomb)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


async def test_tombstones_that_are_no_json_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with whole_file(path) as out, Writer(out) as writer:
        await writer.add(RECORDS, each([]), HEADER)
        await writer.add(TOMBSTONES, each([{"id": "gone", "seq": 1}]))
        about = {"format": "a2m-backup", "version": 1, "name": "n", "began_at": "t", "as_of": "t"}
        about |= {"scope": "everything", "tiers": {}, "files": writer.parts}
        manifest = Manifest.model_validate(about)
    wrong = b'{"id": "gone", "seq": NaN}\n'
    part = Part(sha256=hashlib.sha256(wrong).hexdigest(), bytes=len(wrong), count=1)
    files = {**manifest.files, TOMBSTONES: part}
    with zipfile.ZipFile(path) as read:
        records = read.read(RECORDS)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(RECORDS, records)
        made.writestr(TOMBSTONES, wrong)
        made.writestr(MANIFEST, manifest.model_copy(update={"files": files}).model_dump_json())
    with pytest.raises(CliError, match="Nothing has been changed"):
        await asyncio.to_thread(restore, Server("http://127.0.0.1:1"), Wanted(path))
