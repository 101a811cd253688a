"""A store on a real server, apart from those of other tests by its prefix."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore


@pytest.fixture(params=["single", "cluster"])
def settings(valkey_url: str, request: pytest.FixtureRequest) -> WorkingSettings:
    """Both layouts; that of a Cluster works on one server too."""
    return WorkingSettings(url=valkey_url, prefix=f"t-{uuid4().hex[:8]}:", layout=request.param)


@pytest.fixture
async def store(settings: WorkingSettings) -> AsyncIterator[WorkingStore]:
    opened = WorkingStore(settings)
    await opened.open()
    yield opened
    await opened.close()
