from __future__ import annotations

import asyncio
import importlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from a2m_engines.containers import docker_answers
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.engine import Engine
from a2m_semantic.server import IN_MEMORY, ServerEngine
from a2m_semantic.store import SemanticStore

IMAGE = "qdrant/qdrant:v1.20.0"

MakeEngine = Callable[[], Engine]


@pytest.fixture(scope="session")
def qdrant_url() -> Iterator[str]:
    """The URL of a real server: `A2M_TEST_QDRANT_URL`, or a container where Docker answers."""
    url = os.environ.get("A2M_TEST_QDRANT_URL")
    if url:
        yield url
    elif docker_answers():
        module = importlib.import_module("testcontainers.qdrant")
        with module.QdrantContainer(IMAGE) as container:
            yield f"http://{container.rest_host_address}"
    else:
        pytest.skip("needs a Qdrant server: Docker does not answer and A2M_TEST_QDRANT_URL is not set")


@pytest.fixture(scope="session")
def empty_edge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an empty Edge store, to be copied: making one syncs the disk many times."""
    folder = tmp_path_factory.mktemp("empty") / "edge"

    async def make() -> None:
        engine = EdgeEngine(folder, "cosine")
        await engine.open()
        await engine.close()

    asyncio.run(make())
    return folder


@pytest.fixture
def edge_folder(empty_edge: Path, tmp_path: Path) -> Path:
    """A folder with an empty Edge store."""
    return Path(shutil.copytree(empty_edge, tmp_path / "edge"))


@pytest.fixture(params=["edge", "memory", "server"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the three engines in turn, empty."""
    if request.param == "edge":
        return EdgeEngine(request.getfixturevalue("edge_folder"), "cosine")
    if request.param == "memory":
        return ServerEngine(IN_MEMORY, "memories", "cosine")
    return ServerEngine(request.getfixturevalue("qdrant_url"), f"test_{uuid4().hex}", "cosine")


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[SemanticStore]:
    store = SemanticStore(engine)
    await store.open()
    yield store
    await store.close()
