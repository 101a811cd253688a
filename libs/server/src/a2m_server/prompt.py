"""Records as text for a model's prompt: deterministic, and never more than what the records say.

Recalled text is data. Only a record's own entry starts at the beginning of a line; every further line of its
content is indented, so that no content can pass for another entry or speaker. In `facts`, a leading `[` is
escaped where entries are cited.

`auto` is `transcript` for a timeline and for a recall of turns (all have a role and a session), else `facts`.
A recall's facts stand most relevant first, a transcript always in the order of writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from a2m_protocol.errors import Json, JsonObject, invalid_params
from a2m_protocol.types import Record
from a2m_server.params import Params, kind_of

STYLES = ("facts", "transcript", "auto")
METHODS = ("template", "none")
NOBODY = "memory"
"""Who speaks a record without a role."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """How to render: a style, at most `budget` characters (None for any number), with citations or not."""

    style: str = "auto"
    budget: int | None = None
    cite: bool = False

    def render(self, records: Sequence[Record], *, newest_first: bool) -> JsonObject:
        """`{prompt, prompt_ids}` of records in the order of a result.

        Where the budget does not take all, whole records are left out: of a timeline the oldest
        (`newest_first`), of a recall the least relevant, which stand last.
        """
        style = self._style(records, timeline=newest_first)
        entries = {record.id: entry(record, style, cite=self.cite) for record in records}
        kept = self._fitting([*reversed(records)] if newest_first else records, entries)
        if style == "transcript":
            order = sorted((r for r in records if r.id in kept), key=lambda r: (r.seq, r.id))
        else:
            order = [r for r in records if r.id in kept]
        ids: list[Json] = [record.id for record in order]
        return {"prompt": "\n".join(entries[record.id] for record in order), "prompt_ids": ids}

    def _style(self, records: Sequence[Record], *, timeline: bool) -> str:
        if self.style != "auto":
            return self.style
        return "transcript" if timeline or in_turns(records) else "facts"

    def _fitting(self, records: Sequence[Record], entries: dict[str, str]) -> set[str]:
        if self.budget is None:
            return set(entries)
        kept: set[str] = set()
        left = self.budget + 1
        for record in records:
            cost = len(entries[record.id]) + 1
            if cost <= left:
                kept.add(record.id)
                left -= cost
        return kept


def in_turns(records: Sequence[Record]) -> bool:
    """Whether all records are turns of conversations: they have a role and a session."""
    return all(record.role is not None and record.session is not None for record in records)


def entry(record: Record, style: str, *, cite: bool, when: str = "") -> str:
    """One record as text; only its first line starts at the beginning of a line, and never with a `#`.

    `when` is its date, if it is to be told, and stands in front of what is cited.
    """
    source = _line(record.key or record.uri or "") if cite else ""
    cited = f"[{' '.join(filter(None, (when, source)))}]" if when or source else ""
    content = record.content or _line(record.uri or "")
    if style == "transcript":
        speaker = _speaker(record.role) + (f" {cited}" if cited else "")
        return f"{speaker}: {_indented(content)}"
    if (cite or when) and content.startswith("["):
        content = "\\" + content
    return f"- {cited} {_indented(content)}" if cited else f"- {_indented(content)}"


def parse(value: object) -> Rendering | None:
    """The `prompt` parameter, or None where no prompt is asked for; raises `A2MError` (-32602)."""
    if value is None or value is False:
        return None
    if value is True:
        return Rendering()
    if not isinstance(value, dict):
        raise invalid_params(f"prompt: expected true or an object, not {kind_of(value)}")
    params = Params(cast("dict[str, object]", value))
    method = _one_of("method", params.text("method"), METHODS, "template")
    if params.raw("model") is not None:
        raise invalid_params("prompt.model: this server has no model; leave it out for a template")
    style = _one_of("style", params.text("style"), STYLES, "auto")
    budget = params.integer("budget")
    cite = params.flag("cite")
    return None if method == "none" else Rendering(style, budget, cite)


def _one_of(name: str, value: str | None, known: Sequence[str], default: str) -> str:
    if value is None:
        return default
    if value not in known:
        raise invalid_params(
            f"prompt.{name}: {value[:40]!r} is not available; expected one of {', '.join(known)}"
        )
    return value


def _indented(content: str) -> str:
    return "\n  ".join(content.splitlines()) if content else ""


def _line(text: str) -> str:
    return " ".join(text.split())


def _speaker(role: str | None) -> str:
    """A role on one line, without what ends it or marks a source or a heading."""
    return _line((role or "").translate(_DELIMITERS)) or NOBODY


_DELIMITERS = str.maketrans(":[]#", "    ")
