from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[EpisodicStore]:
    """An open store over the module's database."""
    opened = EpisodicStore(EpisodicSettings(url=SecretStr(postgres_url)))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def fresh(postgres_database: Callable[[], str]) -> AsyncIterator[EpisodicStore]:
    """An open store over an empty database of its own."""
    opened = EpisodicStore(EpisodicSettings(url=SecretStr(postgres_database())))
    await opened.open()
    yield opened
    await opened.close()
