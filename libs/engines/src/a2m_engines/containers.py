"""Engines from Docker for tests, where testcontainers is installed and a Docker engine answers."""

import importlib
import importlib.util
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from urllib.parse import urlsplit

_VALKEY_IMAGE = "valkey/valkey:9"
_POSTGRES_IMAGE = "pgvector/pgvector:pg18"
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_PROBE_SECONDS = 2.0


@cache
def docker_answers() -> bool:
    """Tell whether containers can be started here; asked once a process."""
    if importlib.util.find_spec("testcontainers") is None:
        return False
    # A bare connection: a Docker client that finds nobody leaks its socket, and warnings are errors in tests.
    address = urlsplit(os.environ.get("DOCKER_HOST") or _DEFAULT_HOST)
    try:
        if address.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_PROBE_SECONDS)
                connection.connect(address.path)
        else:
            socket.create_connection((address.hostname, address.port or 2375), _PROBE_SECONDS).close()
    except OSError:
        return False
    return True


@contextmanager
def valkey_container() -> Generator[str]:
    """Run a Valkey server and give its `redis://` URL."""
    module = importlib.import_module("testcontainers.redis")
    with module.RedisContainer(_VALKEY_IMAGE).with_command("valkey-server --appendonly yes") as container:
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"


@contextmanager
def postgres_container() -> Generator[str]:
    """Run a PostgreSQL server with pgvector and give its `postgresql://` URL."""
    module = importlib.import_module("testcontainers.postgres")
    with module.PostgresContainer(_POSTGRES_IMAGE, username="a2m", dbname="postgres") as container:
        yield str(container.get_connection_url(driver=None))
