"""`a2m import` and `a2m export`: files, progress and reports around `importing` and `exporting`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from a2m_cli import exporting, rendering
from a2m_cli.connection import WRONG_USAGE, CliError, Server, explain
from a2m_cli.files import whole_file
from a2m_cli.formats import FormatError
from a2m_cli.importing import PATIENCE_SECONDS, Importer, Report, check, items_of, survey
from a2m_cli.tally import Tally
from a2m_cli.transcripts import EPOCH_MS
from a2m_protocol.client import Client
from a2m_protocol.clock import format_ms, parse_ms
from a2m_protocol.errors import A2MError, Json, JsonObject

_EXAMPLES = 5
_DESCRIBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Import:
    """What to import and how; see the options of `a2m import`."""

    files: Sequence[Path]
    start: str | None = None
    keep_tiers: bool = True
    batch: int = 100
    patience: float = PATIENCE_SECONDS


def import_files(server: Server, wanted: Import, *, as_json: bool = False) -> Report:
    """Check all files, then write their records; raises `CliError`."""
    start = _start(wanted.start)
    try:
        found = survey(items_of(wanted.files, start))
    except (FormatError, OSError) as error:
        raise CliError(f"{error}\nNothing has been written.") from error
    if not found.records:
        raise CliError("there is nothing in these files")
    tally = Tally("importing", found.records, quiet=as_json)

    async def work(client: Client) -> Report:
        described = await client.describe(timeout=_DESCRIBE_SECONDS)
        check(found if wanted.keep_tiers else found.without_tiers(), described)
        limits = described.get("limits")
        most = limits.get("max_records_per_call") if isinstance(limits, dict) else None
        importer = Importer(
            client,
            listener=lambda report, waiting: tally.update(report.done, waiting),
            patience=wanted.patience,
            keep_tiers=wanted.keep_tiers,
            longest=most if isinstance(most, int) else wanted.batch,
        )
        try:
            return await importer.run(items_of(wanted.files, start), size=wanted.batch)
        except A2MError as error:
            raise CliError(
                f"{explain(error, server.url)}\nThe import stopped after {importer.report.done} of "
                f"{found.records} records; run it again to go on."
            ) from error

    with tally:
        report = server.run(work)
    if as_json:
        told = wire_report(report, found.records, found.sessions)
        rendering.print_json({**told, "undated": found.undated})
    else:
        show_report(report, found.records, found.sessions)
        if found.undated:
            rendering.console().print(_undated(found.undated, start, wanted.start), soft_wrap=True)
    return report


def export_to(server: Server, target: str, *, where: JsonObject | None = None) -> None:
    """Write an export to a file, which appears when it is whole, or to standard output for `-`."""
    if target == "-":
        server.run(lambda client: _copy(client, sys.stdout.buffer, where))
        return
    with whole_file(Path(target)) as out:
        count = server.run(lambda client: _copy(client, out, where))
    said = f"{rendering.counted(count, 'record')} exported to {target}"
    rendering.console(stderr=True).print(said, soft_wrap=True)


async def _copy(client: Client, out: BinaryIO, where: JsonObject | None) -> int:
    written = -1  # the header is no record
    async for line in exporting.lines(client, where=where):
        out.write(line)
        written += 1
    return written


def _undated(count: int, start: int, given: str | None) -> str:
    """What is said of records without a time of their own."""
    have = "has no time of its own" if count == 1 else "have no time of their own"
    said = f"{rendering.counted(count, 'record')} {have}: dated in order from {format_ms(start)[:10]} on"
    return said if given is not None else f"{said}; --start names another day for what is not there yet"


def _start(text: str | None) -> int:
    if text is None:
        return EPOCH_MS
    try:
        return parse_ms(text if "T" in text else f"{text}T00:00:00Z")
    except ValueError as error:
        raise CliError(f"--start: {error}", WRONG_USAGE) from error


def show_report(report: Report, records: int, sessions: int) -> None:
    """Say what became of records that were read."""
    out = rendering.console()
    rate = report.done / report.seconds if report.seconds else 0.0
    out.print(f"read            {records:>8}  in {rendering.counted(sessions, 'session')}")
    out.print(f"written         {report.written:>8}")
    out.print(f"already there   {report.there:>8}")
    out.print(f"refused         {len(report.refused):>8}")
    for reason, count in report.reasons.most_common(_EXAMPLES):
        example = next(refusal.item for refusal in report.refused if refusal.reason == reason)
        meaning = (
            "forgotten before, and not brought back" if reason == "forgotten" else rendering.safe(reason)
        )
        out.print(
            f"  {count} x {meaning}; for example {rendering.safe(example.id)}, line {example.line}",
            soft_wrap=True,
        )
    out.print(f"in {report.seconds:.1f} s, {rate:.0f} records a second")


def wire_report(report: Report, records: int, sessions: int) -> JsonObject:
    """The same as JSON."""
    refusals: list[Json] = [
        {"id": refused.item.id, "line": refused.item.line, "reason": refused.reason}
        for refused in report.refused
    ]
    return {
        "read": records,
        "sessions": sessions,
        "written": report.written,
        "already_there": report.there,
        "refused": refusals,
        "seconds": round(report.seconds, 3),
    }
