"""How far something long is: a bar on a terminal, else a line now and then, all on standard error."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from a2m_cli import rendering

_PLAIN_SECONDS = 5.0


class Tally:
    """Shows `what` is being done, and how much of `total`, which may be a guess; use as a context manager."""

    def __init__(self, what: str, total: int, *, quiet: bool) -> None:
        self._what = what
        self._total = total
        self._console: Console | None = None if quiet else rendering.console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._told = time.monotonic()
        self._waiting = False

    def __enter__(self) -> Tally:
        if self._console is not None and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, waiting: str = "") -> None:
        """Show that so much is done and, when a server has gone away, what is being waited for."""
        if self._bar is not None:
            said = f"waiting: {rendering.safe(waiting)}" if waiting else self._what
            self._bar.update(self._task, completed=done, description=said)
        elif self._console is not None:
            now = time.monotonic()
            if (waiting and not self._waiting) or now - self._told >= _PLAIN_SECONDS:
                said = f"waiting: {rendering.safe(waiting)}" if waiting else f"{done} of {self._total}"
                self._console.print(said, soft_wrap=True)
                self._told = now
        self._waiting = bool(waiting)
