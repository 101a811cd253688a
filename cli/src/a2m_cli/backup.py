"""Puts everything that a server remembers, and what it was told to forget, into one file.

Over a federation a backup is of all its tiers at once. It holds every record that was acknowledged before it
began, but for those that were forgotten before its records were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from a2m_cli import exporting, rendering
from a2m_cli.archive import FORMAT, RECORDS, TOMBSTONES, VERSION, Manifest, Writer
from a2m_cli.connection import CliError, Server, require_extensions
from a2m_cli.files import whole_file
from a2m_cli.formats import header
from a2m_cli.tally import Tally
from a2m_protocol.client import Client
from a2m_protocol.errors import JsonObject

EXTENSIONS = ("list", "transfer", "tombstones")
EVERYTHING, POOLED = "everything", "pooled"


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made, and the tiers of which it holds nothing although they hold records."""

    path: Path
    manifest: Manifest
    left_out: dict[str, int]


def back_up(server: Server, target: Path, *, quiet: bool = False) -> Backup:
    """Write a backup to `target`, or into it where it is a folder; raises `CliError`."""
    described = server.call("describe", {})
    require_extensions(described, EXTENSIONS, "be backed up")
    path = target / _file_name(described) if target.is_dir() else target
    if path.exists():
        raise CliError(f"{path} exists already: name another file, or a folder")
    held = _counts(described)
    with whole_file(path) as out, Tally("reading records", sum(held.values()), quiet=quiet) as tally:
        manifest = server.run(lambda client: _write(client, described, out, tally))
    left_out = {tier: count for tier, count in held.items() if count and not manifest.tiers.get(tier)}
    return Backup(path, manifest, left_out)


def show(backup: Backup) -> None:
    """Say what was backed up, and what was not."""
    out, manifest = rendering.console(), backup.manifest
    records, forgotten = manifest.files[RECORDS].count, manifest.files[TOMBSTONES].count
    out.print(f"written to      {rendering.safe(str(backup.path))}", soft_wrap=True)
    tiers = ", ".join(f"{rendering.safe(tier)} {count}" for tier, count in manifest.tiers.items() if tier)
    out.print(f"records         {records:>8}{'  ' + tiers if tiers else ''}", soft_wrap=True)
    out.print(f"forgotten       {forgotten:>8}  and not to be brought back")
    if manifest.scope == POOLED:
        out.print("It holds no owner's records: to this caller the server shows none.")
    for tier, count in backup.left_out.items():
        out.print(f"{rendering.safe(tier)}: its {count} records are not in it; back it up by its own means")


async def _write(client: Client, described: JsonObject, out: BinaryIO, tally: Tally) -> Manifest:
    tiers: Counter[str] = Counter()

    async def counted(records: AsyncIterable[JsonObject]) -> AsyncGenerator[JsonObject]:
        async for record in records:
            tiers[str(record.get("tier", ""))] += 1
            tally.update(tiers.total())
            yield record

    began_at = exporting.now()
    with Writer(out) as writer:
        records = counted(exporting.records(client))
        await writer.add(RECORDS, records, header(described.get("name"), began_at))
        # After the records, so that what is forgotten meanwhile is among them.
        as_of = exporting.now()
        await writer.add(TOMBSTONES, exporting.tombstones(client))
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            name=str(described.get("name")),
            began_at=began_at,
            as_of=as_of,
            scope=EVERYTHING if "scopes" in cast("list[str]", described.get("capabilities")) else POOLED,
            tiers=dict(tiers),
            files=writer.parts,
        )
        writer.finish(manifest)
    return manifest


def _counts(described: JsonObject) -> dict[str, int]:
    """How many records a server holds, by tier; those of a server without tiers have no name."""
    tiers = cast("list[JsonObject]", described.get("tiers") or [])
    if not tiers:
        return {"": cast("int", described.get("count") or 0)}
    return {str(tier["name"]): cast("int", tier["count"]) for tier in tiers}


def _file_name(described: JsonObject) -> str:
    """A name that says what of and when, such as `a2m-20260728T101530Z.zip`."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in str(described.get("name"))) or "a2m"
    stamp = exporting.now().partition(".")[0].replace("-", "").replace(":", "")
    return f"{name[:80]}-{stamp}Z.zip"
