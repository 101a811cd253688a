"""A store on a real server, apart from those of other tests by its prefix."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from a2m_engines.valkey import Valkey
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore


@pytest.fixture(params=["single", "cluster"])
def settings(valkey_url: str, request: pytest.FixtureRequest) -> WorkingSettings:
    """Both layouts; that of a Cluster works on one server too."""
    return WorkingSettings(url=valkey_url, prefix=f"t-{uuid4().hex[:8]}:", layout=request.param)


@pytest.fixture
async def store(settings: WorkingSettings) -> AsyncIterator[WorkingStore]:
    async for opened in _opened(settings):
        yield opened


@pytest.fixture
async def single(valkey_url: str) -> AsyncIterator[WorkingStore]:
    """A store in the layout of one server."""
    async for opened in _opened(WorkingSettings(url=valkey_url, prefix=f"t-{uuid4().hex[:8]}:")):
        yield opened


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A server of a test's own, to be killed and starved."""
    with Valkey(tmp_path / "valkey") as engine:
        yield engine


@pytest.fixture
async def own(own_valkey: Valkey) -> AsyncIterator[WorkingStore]:
    async for opened in _opened(WorkingSettings(url=own_valkey.url)):
        yield opened


async def _opened(settings: WorkingSettings) -> AsyncIterator[WorkingStore]:
    store = WorkingStore(settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
