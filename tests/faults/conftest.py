"""What the tests of faults share: where processes come from, and a federation a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Federation
from nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Forks the processes of this worker's federations."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def federation(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation of one router, shared by the tests of a module."""
    with Federation(tmp_path_factory.mktemp("federation"), nursery) as federation:
        yield federation
