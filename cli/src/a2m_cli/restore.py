"""Brings a backup into a server: repeatable, never over what is newer, never back what was forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from a2m_cli import exporting, rendering
from a2m_cli.archive import RECORDS, TOMBSTONES, Archive, ArchiveError
from a2m_cli.backup import EXTENSIONS
from a2m_cli.carrying import show_report, wire_report
from a2m_cli.connection import CliError, Server, explain, require_extensions
from a2m_cli.formats import FormatError, Item, read_items
from a2m_cli.importing import PATIENCE_SECONDS, Importer, Report, check, survey
from a2m_cli.tally import Tally
from a2m_cli.transcripts import EPOCH_MS
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, Json, JsonObject

_GRAVES = 500
_RETRIES = 30
_CONSOLIDATE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to restore and how; see the options of `a2m restore`."""

    path: Path
    keep_tiers: bool = True
    patience: float = PATIENCE_SECONDS
    forgotten_from: Server | None = None


@dataclass(slots=True)
class Restored:
    """What a restore did. `removed` is what the tombstones ended; `unsettled` why it was not consolidated."""

    records: int
    sessions: int
    tombstones: int = 0
    removed: int = 0
    report: Report = field(default_factory=Report)
    unsettled: str = ""

    @property
    def failed(self) -> bool:
        return self.report.failed


def restore(server: Server, wanted: Wanted, *, quiet: bool = False) -> Restored:
    """Check a backup, put its tombstones, then write its records; raises `CliError`.

    A backup that is damaged or that the server could not keep changes nothing.
    """
    try:
        archive = Archive.checked(wanted.path)
        found = survey(_items(archive))
        for _ in archive.values(TOMBSTONES):
            pass
    except (ArchiveError, FormatError) as error:
        raise CliError(f"{error}\nNothing has been changed.") from error
    done = Restored(found.records, found.sessions)
    # What writes records has a patience of its own.
    patient = replace(server, retries=_RETRIES)

    async def prepare(client: Client) -> JsonObject:
        described = await client.describe()
        require_extensions(described, EXTENSIONS, "restore")
        check(found if wanted.keep_tiers else found.without_tiers(), described)
        await _bury(client, _each(archive.values(TOMBSTONES)), done)
        if wanted.forgotten_from is not None:
            async with wanted.forgotten_from.client() as other:
                await _bury(client, exporting.tombstones(other), done)
        return described

    async def write(client: Client) -> None:
        importer = Importer(
            client,
            listener=lambda report, waiting: tally.update(report.done, waiting),
            patience=wanted.patience,
            keep_tiers=wanted.keep_tiers,
        )
        done.report = importer.report
        try:
            await importer.run(_items(archive))
        except A2MError as error:
            raise CliError(
                f"{explain(error, server.url)}\nThe restore stopped after {importer.report.done} of "
                f"{found.records} records; run it again to go on."
            ) from error

    described = patient.run(prepare)
    with Tally("restoring", found.records, quiet=quiet) as tally:
        server.run(write)
    patient.run(lambda client: _excuse_forgotten(client, done.report))
    done.unsettled = server.run(lambda client: _consolidate(client, described))
    return done


def show(done: Restored) -> None:
    """Say what became of everything."""
    out = rendering.console()
    out.print(f"forgotten       {done.tombstones:>8}  of which {done.removed} were here until now")
    show_report(done.report, done.records, done.sessions)
    if done.unsettled:
        out.print(f"The server has not settled it yet, and will by itself: {rendering.safe(done.unsettled)}")


def wire(done: Restored) -> JsonObject:
    return {
        "tombstones": done.tombstones,
        "removed": done.removed,
        **wire_report(done.report, done.records, done.sessions),
        "consolidated": not done.unsettled,
    }


def _items(archive: Archive) -> Iterable[Item]:
    return read_items(archive.lines(RECORDS), f"{archive.path}, {RECORDS}", start=EPOCH_MS)


async def _bury(client: Client, graves: AsyncIterable[JsonObject], done: Restored) -> None:
    page: list[Json] = []
    async for grave in graves:
        page.append(grave)
        if len(page) == _GRAVES:
            await _put(client, page, done)
            page = []
    if page:
        await _put(client, page, done)


async def _put(client: Client, graves: list[Json], done: Restored) -> None:
    told = await client.call("memory/tombstones", {"tombstones": graves})
    outcomes = cast("JsonObject", told.get("outcomes") or {})
    done.tombstones += len(graves)
    done.removed += sum(outcome == "forgotten" for outcome in outcomes.values())


async def _excuse_forgotten(client: Client, report: Report) -> None:
    """Tell what another record's key kept out although it had been forgotten before: that is no failure."""
    seqs = {r.item.id: cast("int", r.item.fields.get("seq", 0)) for r in report.refused if r.reason == "key"}
    ids = [*seqs]
    gone: set[str] = set()
    for at in range(0, len(ids), _GRAVES):
        told = await client.call("memory/tombstones", {"ids": cast("Json", ids[at : at + _GRAVES])})
        for grave in cast("list[JsonObject]", told.get("tombstones") or []):
            record_id, seq = str(grave["id"]), cast("int", grave["seq"])
            if grave["reason"] == "forgotten" and seq >= seqs[record_id]:
                gone.add(record_id)
    report.refused = [replace(r, reason="forgotten") if r.item.id in gone else r for r in report.refused]


async def _consolidate(client: Client, described: JsonObject) -> str:
    """Ask for what moves and groups still need; why it was not done, or nothing."""
    if "memory/consolidate" not in cast("list[str]", described.get("methods") or []):
        return ""
    try:
        await client.call("memory/consolidate", {}, timeout=_CONSOLIDATE_SECONDS)
    except A2MError as error:
        return error.message
    return ""


async def _each(values: Iterable[JsonObject]) -> AsyncIterator[JsonObject]:
    for value in values:
        yield value
