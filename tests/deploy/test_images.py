"""Every image that `make images` built starts, serves, drains and is of its size: `make images-test`.

Needs root, buildah and the images. The databases are those of `databases`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from compose_file import ROOT, load
from images import Images, settings_of, shell
from ports import free_ports
from stack import Stack

from a2m_protocol.client import SyncClient
from a2m_retrieval.embed.minilm import MODEL

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]

UP_SECONDS = 240.0
SERVERS = ("working", "episodic", "semantic", "procedural", "router")
MOST_MEGABYTES = 250
TOOLS = {"procedural": {"git", "ssh"}}


@pytest.fixture(scope="module")
def images() -> ModuleType:
    """`tools/images.py`."""
    spec = importlib.util.spec_from_file_location("tools_images", ROOT / "tools/images.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tools_images"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Images]]:
    file = load({"A2M_REGISTRY": os.environ.get("A2M_REGISTRY", "a2m")})
    ours = {service.raw["image"] for service in file.default.values() if service.ours}
    runner = Images({image: settings_of(image) for image in ours}, lambda service: stack.mounts(service))
    stack = Stack(file, tmp_path_factory.mktemp("images"), free_ports(), runner)
    try:
        stack.up(UP_SECONDS)
        yield stack, runner
    finally:
        stack.down()
        runner.remove()


def test_the_images_serve_the_compose_file(running: tuple[Stack, Images]) -> None:
    stack, _ = running
    token = stack.volume("you-secrets") / "token"
    with SyncClient.http(stack.url, token_file=token, timeout=30.0, retries=4) as memory:
        assert memory.describe()["embeddings"]["model"] == MODEL
        memory.remember([{"content": "Ada prefers window seats", "session": "trip"}])
        memory.remember([{"content": "how to book", "key": "book", "tier": "procedural"}])
        memory.remember([{"content": "Ada is vegan", "key": "ada/diet", "tier": "semantic"}])
        memory.close_session("trip")
        found = memory.recall("where does Ada like to sit", limit=3)
    assert found["records"][0]["content"] == "Ada prefers window seats"
    assert {record["tier"] for record in found["records"]} >= {"episodic", "semantic"}


@pytest.mark.parametrize("name", SERVERS)
def test_a_service_can_write_into_its_volumes_and_temporary_files_alone(
    name: str, running: tuple[Stack, Images]
) -> None:
    _, runner = running
    seen = "! -type l ! -path '/proc/*' ! -path '/sys/*' ! -path '/dev/*'"
    *places, user = shell(runner.containers[name], f"find / -xdev -writable {seen} 2>/dev/null; id -u")
    assert user == "10001"
    allowed = ("/data", "/secrets", "/tmp", "/var/tmp", "/run/lock")
    assert [place for place in places if not place.startswith(allowed)] == []


@pytest.mark.parametrize("name", SERVERS)
def test_an_image_has_the_programs_of_its_own_package_alone(name: str, running: tuple[Stack, Images]) -> None:
    _, runner = running
    look = "for p in git ssh gcc uv pip a2m; do command -v $p; done; ls /app/lib/python3*/site-packages"
    lines = shell(runner.containers[name], look)
    assert {line.rpartition("/")[2] for line in lines if line.startswith("/")} == TOOLS.get(name, set())
    ours = {line for line in lines if line.startswith("a2m_") and not line.endswith(".dist-info")}
    assert ours == {"a2m_protocol", "a2m_retrieval", "a2m_server", f"a2m_{name}"}


def test_an_image_says_what_it_is_and_who_it_runs_as(images: ModuleType) -> None:
    for image in images.IMAGES:
        settings = settings_of(images.tag_of(image))
        labels = settings["Labels"]
        assert labels["org.opencontainers.image.title"] == f"a2m-{image.package}"
        assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
        assert labels["org.opencontainers.image.version"] == images.version()
        assert len(labels["org.opencontainers.image.revision"]) == 40
        assert settings["User"] == "10001:10001"
        if image.port:
            assert set(settings["ExposedPorts"]) == {f"{image.port}/tcp"}


def test_an_image_without_a_model_is_less_than_250_mb_above_its_base(images: ModuleType) -> None:
    base = os.environ["BASE"]
    below = images.size("buildah", base)
    plain = [image for image in images.IMAGES if not image.extra]
    above = {i.name: (images.size("buildah", images.tag_of(i)) - below) / 1e6 for i in plain}
    assert {name: size for name, size in above.items() if size >= MOST_MEGABYTES} == {}


def test_a_service_that_is_asked_to_stop_ends_by_itself(running: tuple[Stack, Images]) -> None:
    stack, _ = running
    stack.down()
    assert {name: stack.statuses[name] for name in SERVERS} == dict.fromkeys(SERVERS, 0)
