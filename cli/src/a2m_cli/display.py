"""What a person sees of `a2m up`: a live table on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import shlex
import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from a2m_cli import rendering
from a2m_cli.blueprint import ROUTER, Blueprint
from a2m_cli.children import State, Status
from a2m_cli.federation import Display
from a2m_cli.options import DATA

_STYLES = {
    State.READY: "green",
    State.FAILED: "bold red",
    State.BACKING_OFF: "yellow",
    State.STOPPED: "dim",
}
_REFRESHES_PER_SECOND = 8


def display(*, quiet: bool) -> Display:
    """The display that suits standard output."""
    if quiet:
        return Silence()
    out = rendering.console()
    return LiveTable(out) if out.is_terminal else Lines(out)


class Silence:
    """Shows nothing."""

    def starting(self, blueprint: Blueprint) -> None: ...

    def status(self, status: Status) -> None: ...

    def ready(self, blueprint: Blueprint) -> None: ...

    def stopped(self) -> None: ...


class Lines:
    """A line for each change."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._began = time.monotonic()
        self._states: dict[str, State] = {}

    def starting(self, blueprint: Blueprint) -> None:
        self._out.print(f"starting a federation in {blueprint.data}", soft_wrap=True)

    def status(self, status: Status) -> None:
        if self._states.get(status.name) is not status.state and status.state is not State.WAITING:
            detail = f": {rendering.safe(status.detail)}" if status.detail else ""
            at = time.monotonic() - self._began
            self._out.print(f"{at:6.1f} s  {status.name:<11}{status.state.value}{detail}", soft_wrap=True)
        self._states[status.name] = status.state

    def ready(self, blueprint: Blueprint) -> None:
        self._out.print(f"ready in {time.monotonic() - self._began:.1f} s")
        for name, url in blueprint.urls.items():
            self._out.print(f"  {name:<11}{url}", soft_wrap=True)
        for line in who_may(blueprint):
            self._out.print(line, soft_wrap=True)

    def stopped(self) -> None:
        self._out.print("stopped")


def who_may(blueprint: Blueprint) -> list[str]:
    """How somebody is given a token, where one is asked for."""
    if not blueprint.auth:
        return []
    data = shlex.quote(str(blueprint.data))
    return [
        f"a token for an agent: a2m token create NAME --data {data}",
        f"your own: {blueprint.own_token_file}, which a2m finds by itself for this server in {DATA}",
    ]


class LiveTable:
    """One table that changes in place, a process a row."""

    def __init__(self, out: Console) -> None:
        self._began = time.monotonic()
        self._took: float | None = None
        self._urls: dict[str, str] = {}
        self._notes: list[str] = []
        self._statuses: dict[str, Status] = {}
        self._spinners = {
            state: Spinner("dots", text=state.value) for state in (State.STARTING, State.STOPPING)
        }
        # Last, because it draws at once.
        self._live = Live(console=out, refresh_per_second=_REFRESHES_PER_SECOND, get_renderable=self._render)

    def starting(self, blueprint: Blueprint) -> None:
        self._urls = blueprint.urls
        self._live.start()

    def status(self, status: Status) -> None:
        self._statuses[status.name] = status

    def ready(self, blueprint: Blueprint) -> None:
        self._notes = who_may(blueprint)
        self._took = time.monotonic() - self._began

    def stopped(self) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, show_header=False)
        for status in self._statuses.values():
            still = Text(status.state.value, style=_STYLES.get(status.state, ""))
            state: RenderableType = self._spinners.get(status.state, still)
            detail = status.detail or self._urls.get(status.name, "")
            restarts = f"restarted {status.restarts} x" if status.restarts else ""
            table.add_row(status.name, state, Text(rendering.safe(detail)), Text(restarts, style="yellow"))
        return Group(table, self._foot())

    def _foot(self) -> Text:
        if self._took is None:
            return Text("")
        url = self._urls.get(ROUTER, "")
        return Text.assemble(
            "\nready in ",
            f"{self._took:.1f} s: ",
            (url, "bold green"),
            "   Ctrl-C stops it\n",
            *(f"{note}\n" for note in self._notes),
        )
