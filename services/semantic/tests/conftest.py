from __future__ import annotations

import asyncio
import importlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from a2m_engines.containers import docker_answers
from a2m_semantic.edge import EdgeEngine
from a2m_semantic.engine import Engine
from a2m_semantic.server import IN_MEMORY, ServerEngine
from a2m_semantic.store import SemanticStore

IMAGE = "qdrant/qdrant:v1.20.0"


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


ENGINES = ["edge", "memory", "server"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the three engines in turn, empty."""
    folder = request.getfixturevalue("edge_folder") if request.param == "edge" else None
    return make_engine(request, folder)


def make_engine(request: pytest.FixtureRequest, folder: Path | None) -> Engine:
    """The engine of a parameter: Edge in a folder, the client's memory, or a server's new collection."""
    if folder is not None:
        return EdgeEngine(folder, "cosine")
    if request.param == "memory":
        return ServerEngine(IN_MEMORY, "memories", "cosine")
    return ServerEngine(request.getfixturevalue("qdrant_url"), f"test_{uuid4().hex}", "cosine")


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[SemanticStore]:
    store = SemanticStore(engine)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture(params=ENGINES, scope="module", loop_scope="module")
async def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SemanticStore]:
    """One store on each engine for all tests of a module, which must run on the module's loop."""
    folder = tmp_path_factory.mktemp("shared") if request.param == "edge" else None
    store = SemanticStore(make_engine(request, folder))
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture(params=ENGINES, loop_scope="module")
async def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SemanticStore]:
    """An empty store of its own on each engine, for tests on the module's loop."""
    store = SemanticStore(make_engine(request, tmp_path / "fresh" if request.param == "edge" else None))
    await store.open()
    yield store
    await store.close()
