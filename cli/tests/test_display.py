"""What `a2m up` shows of its processes on a terminal and elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from a2m_cli.blueprint import Blueprint
from a2m_cli.children import State, Status
from a2m_cli.display import Lines, LiveTable
from a2m_cli.federation import Display

BLUEPRINT = Blueprint(Path("/data"), 9000)


def play(display: Display) -> None:
    display.starting(BLUEPRINT)
    display.status(Status("router", State.WAITING))
    display.status(Status("router", State.STARTING))
    display.status(Status("router", State.STARTING, 7))
    display.status(Status("router", State.READY, 7))
    display.ready(BLUEPRINT)
    display.status(Status("router", State.BACKING_OFF, None, 1, "ended by SIGKILL"))
    display.stopped()


@pytest.mark.parametrize(("kind", "terminal"), [(Lines, False), (LiveTable, True)])
def test_processes_and_urls_are_shown(kind: type[Lines | LiveTable], terminal: bool) -> None:
    out = io.StringIO()
    play(kind(Console(file=out, force_terminal=terminal, width=120, color_system=None, highlight=False)))
    said = out.getvalue()
    assert "http://127.0.0.1:9000" in said
    assert "backing off" in said
    assert "ended by SIGKILL" in said


def test_a_change_that_is_none_takes_no_line() -> None:
    out = io.StringIO()
    play(Lines(Console(file=out, width=120, highlight=False)))
    assert sum("starting" in line and "router" in line for line in out.getvalue().splitlines()) == 1
