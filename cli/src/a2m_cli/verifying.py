"""Whether anything is left of what was forgotten, tier by tier."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from a2m_cli.connection import CliError, Server
from a2m_cli.rendering import counted, objects, safe
from a2m_protocol.client import Client
from a2m_protocol.errors import Json, JsonObject

COST = """\
--erase rewrites the history of every tier that keeps one (procedural: git). There is no way back:
- every commit since these records were first written gets a new hash; signatures on those are lost
- reflogs are emptied, and what no branch or tag leads to is deleted
- remotes and clones keep the old history: clone them anew, or whoever pushes brings it back"""

_PAGE = 1_000
_EXAMPLES = 20


def look(server: Server, ids: Sequence[str]) -> JsonObject:
    """What every tier says it still has of ids, as one answer of `memory/remnants`."""

    async def work(client: Client) -> JsonObject:
        found: dict[str, list[Json]] = {"remnants": [], "checked": [], "unverified": []}
        for at in range(0, len(ids), _PAGE):
            told = await client.call("memory/remnants", {"ids": list(ids[at : at + _PAGE])})
            found["remnants"] += objects(told.get("remnants"))
            for name in ("checked", "unverified"):
                items = told.get(name)
                found[name] += [i for i in items if i not in found[name]] if isinstance(items, list) else []
        return {**found}

    return server.run(work)


def is_clean(found: JsonObject, *, erased: bool) -> bool:
    """Whether nothing is left where nothing should be; history may keep it unless it was `erased`."""
    remnants = objects(found.get("remnants"))
    return not found.get("unverified") and all(r.get("history") is True and not erased for r in remnants)


def show(out: Console, found: JsonObject, *, erased: bool) -> None:
    """A row a tier: what was found in it, and what history keeps."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tier", "left", "history"):
        table.add_column(name, overflow="fold")
    checked = found.get("checked")
    names = [safe(name) for name in checked] if isinstance(checked, list) else []
    remnants = objects(found.get("remnants"))
    for name in names:
        # A server of one tier does not name it.
        held = [r for r in remnants if r.get("tier") in (name, None)]
        left = _places([r for r in held if r.get("history") is not True])
        past = _places([r for r in held if r.get("history") is True])
        style = "bold red" if erased else "yellow"
        table.add_row(name, Text(left, style="bold red") if left else "nothing", Text(past, style=style))
    for silent in objects(found.get("unverified")):
        why = Text(f"not checked: {safe(silent.get('reason'))}", style="bold red")
        table.add_row(safe(silent.get("tier")), why, "")
    out.print(table)
    for remnant in [r for r in remnants if r.get("history") is not True or erased][:_EXAMPLES]:
        where = ", ".join(safe(remnant[name]) for name in ("tier", "place") if name in remnant)
        out.print(Text(f"left: {safe(remnant.get('id'))} in {where}"), soft_wrap=True)


def show_kept(out: Console, result: JsonObject) -> None:
    """What a forget's answer says of what is kept elsewhere, in words."""
    if result.get("history"):
        out.print("History keeps this by design; `a2m forget ID --erase` takes it out.", soft_wrap=True)
    remotes = result.get("remotes")
    for tier, names in remotes.items() if isinstance(remotes, dict) else ():
        listed = ", ".join(safe(name) for name in names) if isinstance(names, list) else safe(names)
        out.print(Text(f"What {safe(tier)} has as {listed} may hold the old history."), soft_wrap=True)
    live = result.get("live")
    if isinstance(live, list):
        listed = ", ".join(safe(record_id) for record_id in live[:_EXAMPLES])
        out.print(Text(f"Not erased, being records again: {listed}", style="bold red"), soft_wrap=True)


def ids_of(selected: JsonObject, result: JsonObject) -> list[str]:
    """The ids to look for: those forgotten, and those named outright; raises `CliError` where not told."""
    named = selected.get("ids") if selected.keys() <= {"ids", "owner", "erase"} else None
    told = result.get("ids")
    if named is None and told is None and result.get("forgotten"):
        raise CliError("not verified: this server does not say which records it forgot; name their ids")
    ids = [*(named if isinstance(named, list) else []), *(told if isinstance(told, list) else [])]
    return list(dict.fromkeys(i for i in ids if isinstance(i, str)))


def _places(remnants: Sequence[JsonObject]) -> str:
    """`2 ids: records, vectors`, or nothing."""
    if not remnants:
        return ""
    ids = {safe(r.get("id")) for r in remnants}
    places = dict.fromkeys(safe(r.get("place")) for r in remnants)
    return f"{counted(len(ids), 'id')}: {', '.join(places)}"
