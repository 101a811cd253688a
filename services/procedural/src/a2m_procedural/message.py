"""Commit messages: what happened to which skills, and who asked for it.

Whatever comes from a client is written as a JSON string in ASCII, so that it is one line and cannot pass for
a header, a trailer or a terminal's control sequence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from a2m_protocol.types import Record

MAX_LISTED = 50
MAX_QUOTED = 200

Verb = Literal["Add", "Rewrite", "Remove"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One file's change."""

    verb: Verb
    folder: str
    record: Record


def message(edits: Sequence[Edit], call: str) -> str:
    """A subject line, a line a skill, and trailers that name the call, the owners and the principals."""
    if not edits:
        subject = "What this changed was erased"
    elif len(edits) == 1:
        subject = f"{edits[0].verb} {edits[0].folder or 'the skill at the root'}"[:72]
    else:
        counts = {verb: sum(e.verb == verb for e in edits) for verb in ("Add", "Rewrite", "Remove")}
        subject = ", ".join(f"{verb.lower()} {count}" for verb, count in counts.items() if count)
        subject = subject[0].upper() + subject[1:] + " skills"
    lines = [f"{e.verb.lower()} {_safe(e.folder)}: id {quoted(e.record.id)}" for e in edits[:MAX_LISTED]]
    if len(edits) > MAX_LISTED:
        lines.append(f"and {len(edits) - MAX_LISTED} more")
    given = [e.record.provenance for e in edits if e.record.provenance is not None]
    trailers = [
        f"A2M-Call: {call}",
        *_trailers("A2M-Owner", (e.record.owner for e in edits)),
        *_trailers("A2M-Principal", (p.principal for p in given)),
        *_trailers("A2M-Source", (p.source for p in given)),
    ]
    return "\n".join([_safe(subject), "", *lines, "", *trailers, ""])


def quoted(text: str) -> str:
    return json.dumps(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…")


def _trailers(name: str, values: Iterable[str | None]) -> list[str]:
    return [f"{name}: {quoted(value)}" for value in dict.fromkeys(values) if value is not None][:MAX_LISTED]


def _safe(text: str) -> str:
    """A folder's name as it is if it is plain, else quoted; a person's may hold anything."""
    return text if text.isascii() and text.isprintable() else quoted(text.encode(errors="replace").decode())
