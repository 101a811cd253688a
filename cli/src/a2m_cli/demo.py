"""`a2m demo`: a federation at work in half a minute, in a folder and on ports that nobody else uses."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.text import Text

from a2m_cli import rendering
from a2m_cli.blueprint import ROUTER, Blueprint
from a2m_cli.connection import CliError, explain
from a2m_cli.display import Silence
from a2m_cli.federation import is_free
from a2m_cli.federation import run as serve
from a2m_cli.importing import Importer, items_of
from a2m_cli.status import look
from a2m_cli.transcripts import EPOCH_MS
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, JsonObject

_CLOSED = ("harbour-bakery/monday", "harbour-bakery/wednesday")
_OPEN = "harbour-bakery/friday"
_ALLERGY = "customers/marta-oliveira/allergies"
_PROCEDURE = """\
Before a market day: look up what sold at the last one, add a quarter when the forecast is dry, and write the
numbers on the board before closing. Mix the focaccia dough in the evening so that it can prove in the cold.
"""
_QUESTIONS = (
    "baguettes dark oven",
    "rye rests overnight",
    "allergic hazelnuts",
    "spring buns",
    "dry forecast",
)
_ANSWERS = 3
_SHOWN = 110
_LOWEST_PORT, _HIGHEST_PORT = 20_000, 60_000
_TRIES = 200


def run(data: Path | None = None) -> None:
    """Run the demo to its end; without `data` nothing of it is left. Raises `CliError`."""
    folder = data.absolute() if data is not None else Path(tempfile.mkdtemp(prefix="a2m-demo-"))
    out = rendering.console()
    try:
        blueprint = Blueprint(folder, free_port_base())
        began = time.monotonic()
        out.print("Starting Valkey, Postgres, four tiers and the router ...")

        async def work(ready: Blueprint) -> None:
            out.print(
                f"They serve after {time.monotonic() - began:.1f} s, the router at {ready.url(ROUTER)}\n"
            )
            await _show(out, ready)

        serve(blueprint, Silence(), work=work)
    finally:
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)
    out.print("\nStopped." if data is not None else "\nStopped, and nothing of it is left.")


def free_port_base() -> int:
    """A port base of which every port is free now; raises `CliError` when none is found."""
    for _ in range(_TRIES):
        base = random.randrange(_LOWEST_PORT, _HIGHEST_PORT)  # noqa: S311 no secret
        if all(map(is_free, Blueprint(Path(), base).ports.values())):
            return base
    raise CliError("no seven free ports were found on this machine")


async def _show(out: Console, blueprint: Blueprint) -> None:
    url = blueprint.url(ROUTER)
    try:
        async with Client.http(url) as client:
            await _fill(out, client)
            await _ask(out, client)
    except A2MError as error:
        raise explain(error, url) from error


async def _fill(out: Console, client: Client) -> None:
    with as_file(files("a2m_cli") / "data" / "bakery.jsonl") as path:
        report = await Importer(client).run(items_of([path], EPOCH_MS))
    _say(out, f"Imported {report.written} turns of 3 sessions of a bakery's assistant into working.")
    for session in _CLOSED:
        closed = await client.close_session(session)
        _say(out, f"Closed {session}: {closed.get('flushed')} turns went to episodic memory.")
    _say(out, f"{_OPEN} goes on, so it stays in working memory.\n")
    await client.remember(
        [
            {
                "id": "fact-allergy",
                "key": _ALLERGY,
                "tier": "semantic",
                "content": "Marta Oliveira's daughter Clara is allergic to nuts.",
            },
            {
                "id": "how-to-market",
                "key": "market-day",
                "tier": "procedural",
                "content": _PROCEDURE,
                "metadata": {"description": "Prepare the bakery for a market day"},
            },
        ]
    )
    _say(out, "A fact was written to semantic memory, and a procedure to the git repository.")
    await client.remember(
        [
            {
                "id": "fact-allergy-2",
                "key": _ALLERGY,
                "content": "Marta Oliveira's daughter Clara is allergic to hazelnuts, not to other nuts.",
            }
        ]
    )
    fact = cast("JsonObject", (await client.fetch(_ALLERGY)).get("record") or {})
    _say(out, f"The fact was rewritten at its key; it is now at revision {fact.get('revision')}.")
    found = rendering.objects((await client.recall("spring buns cardamom orange", limit=1)).get("records"))
    promoted = await client.promote([str(record["id"]) for record in found], "semantic")
    _say(
        out,
        f"Promoted from episodic to semantic: {promoted['promoted']}, about spring buns.",
    )
    out.print()
    rendering.show_tiers(out, (await look(client)).tiers)


async def _ask(out: Console, client: Client) -> None:
    for question in _QUESTIONS:
        out.print(Text(f"\na2m recall {question!r}", style="bold"))
        found = rendering.objects((await client.recall(question, limit=_ANSWERS)).get("records"))
        for record in found:
            content = " ".join(rendering.safe(record.get("content")).split())
            shown = content if len(content) <= _SHOWN else f"{content[: _SHOWN - 1]}…"
            out.print(Text.assemble((f"  {rendering.safe(record.get('tier')):<12}", "green"), shown))
    timeline = await client.timeline(where={"session": _CLOSED[1]})
    turns = len(rendering.objects(timeline.get("records")))
    out.print(f"\nThe closed session {_CLOSED[1]} still replays whole: {turns} turns in order.")


def _say(out: Console, text: str) -> None:
    out.print(text, soft_wrap=True)
