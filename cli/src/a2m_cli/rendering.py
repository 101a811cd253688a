"""What servers answer, as a person wants to read it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from a2m_protocol.errors import Json, JsonObject

_PLAIN_WIDTH = 160
_INDENT = "    "
# What a record holds must not move the cursor or change the colours of the terminal.
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)
}
_SAFE = _CONTROLS | {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def console(*, stderr: bool = False) -> Console:
    """A console that never reads its text for markup; into a file or pipe it writes wide and plain."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PLAIN_WIDTH
    return made


def print_json(result: Json) -> None:
    """The raw result, indented."""
    text = json.dumps(result, indent=2, ensure_ascii=False)
    # Lone surrogates have no UTF-8, and JSON has a way to write them.
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        text = json.dumps(result, indent=2)
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.flush()


def safe(value: Json) -> str:
    """A value as text that a terminal can be shown."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.translate(_SAFE).encode(errors="backslashreplace").decode()


def counted(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def objects(value: Json) -> list[JsonObject]:
    """The objects of an array, whatever the server sent."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def show_records(out: Console, records: Sequence[JsonObject]) -> None:
    """Each record with a line of what it is and its content beneath."""
    for record in records:
        out.print(_heading(record), soft_wrap=True)
        content = safe(record.get("content", "")) or _calls(record)
        for line in content.splitlines() or [""]:
            out.print(Text(_INDENT + line), soft_wrap=True)
    if not records:
        out.print(Text("nothing found", style="dim"))


def show_explained(out: Console, result: JsonObject) -> None:
    """What ranked the records of a recall, and the parts of each one's score."""
    out.print(Text(f"ranked by {safe(result.get('ranked_by', 'its tier'))}", style="dim"), soft_wrap=True)
    explained = result.get("explained")
    for record_id, parts in (explained if isinstance(explained, dict) else {}).items():
        told = " ".join(f"{name}={safe(value)}" for name, value in objects([parts])[0].items())
        out.print(Text(f"{safe(record_id)}  {told}"), soft_wrap=True)
    for one in objects(result.get("suppressed")):
        told = f"{safe(one.get('id'))}  stands behind: {safe(one.get('reason'))} of {safe(one.get('of'))}"
        out.print(Text(told), soft_wrap=True)


def show_degraded(result: JsonObject) -> None:
    """On standard error: which tiers did not answer, and why."""
    err = console(stderr=True)
    for entry in objects(result.get("degraded")):
        err.print(
            Text(f"incomplete: {safe(entry.get('tier'))}: {safe(entry.get('reason'))}", style="yellow"),
            soft_wrap=True,
        )


def show_tiers(out: Console, tiers: Iterable[JsonObject]) -> None:
    """A table of what each tier is and holds."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tier", "kind"):
        table.add_column(name)
    for name in ("records", "capacity"):
        table.add_column(name, justify="right")
    for name in ("spills to", "promotes to", "health"):
        table.add_column(name)
    for tier in tiers:
        table.add_row(
            safe(tier.get("name")),
            safe(tier.get("kind") or ""),
            safe(tier.get("count")) if tier.get("count") is not None else "?",
            _capacity(tier),
            safe(tier.get("spill_to") or ""),
            _promotion(tier),
            _health(tier),
        )
    out.print(table)


def show_due(out: Console, due: Sequence[JsonObject]) -> None:
    """Which tiers wait for `a2m reembed`, why, and how many records it is about."""
    if due:
        out.print(Text("\nVectors are out of date: run a2m reembed.", style="yellow"))
    for one in due:
        more = "more than " if one.get("more") is True else ""
        held = one.get("records")
        told = f" ({more}{counted(held, 'record')})" if isinstance(held, int) else ""
        out.print(Text(f"  {safe(one.get('tier'))}{told}: {safe(one.get('reason'))}"), soft_wrap=True)


def show_sessions(out: Console, sessions: Sequence[JsonObject]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    table.add_column("records", justify="right")
    for name in ("opened", "touched", "tiers"):
        table.add_column(name)
    for info in sessions:
        tiers = info.get("tiers")
        held = tiers.items() if isinstance(tiers, dict) else ()
        table.add_row(
            safe(info.get("session")),
            safe(info.get("records")),
            _short_time(info.get("opened_at")),
            _short_time(info.get("touched_at")),
            ", ".join(f"{safe(tier)} {count}" for tier, count in held),
        )
    out.print(table if sessions else Text("no sessions", style="dim"))


def show_events(out: Console, events: Iterable[JsonObject]) -> None:
    """An event a line."""
    for event in events:
        rest = {name: value for name, value in event.items() if name not in ("kind", "at")}
        line = Text.assemble(
            (_short_time(event.get("at")), "dim"),
            "  ",
            (f"{safe(event.get('kind')):<14}", "bold"),
            "  ".join(f"{name}={safe(value)}" for name, value in rest.items()),
        )
        out.print(line, soft_wrap=True)


def show_trace(out: Console, record_id: str, result: JsonObject) -> None:
    """A record between what it came from and what came of it, each a line, the furthest outside."""
    for one in reversed(objects(result.get("sources"))):
        out.print(_step(one, "from"), soft_wrap=True)
    record = result.get("record")
    if isinstance(record, dict):
        show_records(out, [record])
        out.print(Text(_INDENT + _origin(record), style="dim"), soft_wrap=True)
    else:
        out.print(Text(f"{safe(record_id)}  is no more, or never was"))
    for one in objects(result.get("derived")):
        out.print(_step(one, "into"), soft_wrap=True)


def show_pending(out: Console, result: JsonObject) -> None:
    """What is pending, each with where it comes from, and with the fact that it contradicts."""
    records = objects(result.get("records"))
    if not records:
        out.print("nothing is pending")
    facts = cast("JsonObject", result.get("facts") or {})
    for record in records:
        show_records(out, [record])
        out.print(Text(_INDENT + _origin(record), style="dim"), soft_wrap=True)
        fact = facts.get(str(record.get("id")))
        if isinstance(fact, dict):
            out.print(Text(f"{_INDENT}against  ") + _heading(fact), soft_wrap=True)
            out.print(Text(_INDENT * 2 + safe(fact.get("content")), style="dim"), soft_wrap=True)


def _step(record: JsonObject, way: str) -> Text:
    indent = _INDENT * int(cast("int", record.get("depth") or 1))
    if record.get("gone"):
        return Text(f"{indent}{way}  {safe(record.get('id'))}  (gone)")
    line = Text(f"{indent}{way}  ") + _heading(record)
    return line.append(f"  {_origin(record)}", style="dim")


def _origin(record: JsonObject) -> str:
    provenance = record.get("provenance")
    told = provenance if isinstance(provenance, dict) else {}
    return " ".join(f"{name}={safe(value)}" for name, value in told.items() if name != "derived_from")


def show_principals(out: Console, principals: Sequence[JsonObject]) -> None:
    if not principals:
        out.print("nobody")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("principal", "owner", "roles", "reads", "token", "", "until"):
        table.add_column(heading, overflow="fold")
    for principal in principals:
        reads = [*cast("list[Json]", principal["reads"]), *(["pooled"] if principal["pooled"] else [])]
        about = [safe(principal["name"]), safe(principal["owner"]), _words(principal["roles"]), _words(reads)]
        tokens = objects(principal["tokens"])
        for at, token in enumerate(tokens or [JsonObject()]):
            shown = about if at == 0 else [""] * len(about)
            told = [safe(token.get(name) or "") for name in ("id", "state", "expires")]
            table.add_row(*(Text(cell) for cell in (*shown, *told)))
    out.print(table)


def _words(values: Json) -> str:
    return " ".join(safe(value) for value in cast("list[Json]", values))


def show_figures(out: Console, result: JsonObject) -> None:
    """A small result in one line: `moved 3, promoted 0`; objects in it follow in lines of their own."""
    flat = [f"{name} {safe(value)}" for name, value in result.items() if not isinstance(value, dict | list)]
    out.print(Text(", ".join(flat)))
    for name, value in result.items():
        if isinstance(value, dict) and value:
            held = ", ".join(f"{safe(key)} {safe(count)}" for key, count in value.items())
            out.print(Text(f"{name}: {held}"), soft_wrap=True)


def _heading(record: JsonObject) -> Text:
    parts: list[tuple[str, str]] = []
    score = record.get("score")
    if isinstance(score, int | float):
        parts.append((f"{score:.3f}", "cyan"))
    if record.get("tier") is not None:
        parts.append((safe(record["tier"]), "green"))
    if record.get("role") is not None:
        parts.append((safe(record["role"]), "bold"))
    parts.append((_short_time(record.get("created_at")), "dim"))
    if record.get("session") is not None:
        parts.append((safe(record["session"]), "magenta"))
    if record.get("key") is not None:
        parts.append((f"key={safe(record['key'])} revision={safe(record.get('revision', 0))}", "yellow"))
    if record.get("uri") is not None:
        parts.append((safe(record["uri"]), "blue"))
    parts.append((safe(record.get("id")), "dim"))
    return Text("  ").join(Text(text, style=style) for text, style in parts)


def _calls(record: JsonObject) -> str:
    """What stands for the content of a message that consists of tool calls."""
    metadata = record.get("metadata")
    calls = objects(metadata.get("tool_calls")) if isinstance(metadata, dict) else []
    functions = [cast("JsonObject", call.get("function") or {}) for call in calls]
    return "\n".join(f"-> {safe(f.get('name'))}({safe(f.get('arguments') or '')})" for f in functions)


def _short_time(value: Json) -> str:
    return safe(value).replace("T", " ").removesuffix("Z").removesuffix(".000") if value is not None else ""


def _capacity(tier: JsonObject) -> str:
    capacity = tier.get("capacity")
    if not capacity:
        return ""
    return f"{safe(capacity)}{'/session' if tier.get('per_session') is True else ''}"


def _promotion(tier: JsonObject) -> str:
    target, after = tier.get("promote_to"), tier.get("promote_after")
    if target is None:
        return ""
    return safe(target) if after is None else f"{safe(target)} after {safe(after)}"


def _health(tier: JsonObject) -> Text:
    health = str(tier.get("health") or "ok")
    return Text(safe(health), style="green" if health == "ok" else "bold red")
