"""The table that a run of conformance ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROWS = pytest.StashKey[list[tuple[str, ...]]]()

COLUMNS = ("server", "transport", "caller", "passed", "failed", "warned", "skipped", "seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []


@pytest.fixture(scope="session")
def add_row(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Puts one run into the table."""
    rows = request.config.stash[ROWS]

    def add(*cells: Any) -> None:
        rows.append(tuple(map(str, cells)))

    return add


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash[ROWS]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    terminalreporter.section("conformance to A2M 0.1")
    for row in (COLUMNS, *rows):
        terminalreporter.write_line("  ".join(map(str.ljust, row, widths)).rstrip())
