"""`a2m up`: the engines and services of a blueprint as children of a supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import stat
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Protocol

from a2m_cli.blueprint import HOST, ROUTER, Blueprint
from a2m_cli.children import Child, Status, engine_child, service_child
from a2m_cli.connection import CliError
from a2m_cli.runner import SupervisorError
from a2m_cli.supervisor import Supervisor
from a2m_cli.tokens import ensure_you, write_access
from a2m_engines.engine import Engine
from a2m_engines.errors import EngineError
from a2m_engines.lock import FolderLock
from a2m_engines.postgres import Postgres
from a2m_engines.valkey import Valkey

EMBEDDER = {"A2M_ROUTER_EMBEDDING__KIND": "local"}
"""The router's setting where the operator says nothing: the packaged model makes the vectors."""

_ENGINES: dict[str, type[Engine]] = {"working": Valkey, "episodic": Postgres}


class Display(Protocol):
    """Is told how a federation fares."""

    def starting(self, blueprint: Blueprint) -> None: ...

    def status(self, status: Status) -> None: ...

    def ready(self, blueprint: Blueprint) -> None: ...

    def stopped(self) -> None: ...


def run(
    blueprint: Blueprint,
    display: Display,
    *,
    ready_file: Path | None = None,
    work: Callable[[Blueprint], Coroutine[None, None, None]] | None = None,
) -> None:
    """Serve a federation until SIGINT or SIGTERM, or until `work`, called once it is ready, has returned.

    Raises `CliError` when it cannot start, before anything does where that can be told.
    """
    try:
        asyncio.run(_serve(blueprint, display, ready_file, work))
    except (SupervisorError, EngineError) as error:
        raise CliError(str(error)) from error


def prepare(blueprint: Blueprint) -> None:
    """Make the data folder, the tokens and the router's configuration; raises `CliError`."""
    try:
        blueprint.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        blueprint.data.chmod(0o700)
        lock = FolderLock(blueprint.data)
        lock.acquire()  # before the ports: of a second start in one folder, this is the better explanation
        lock.release()
        check_ports(blueprint)
        _ensure_token(blueprint.token_file)
        _replace(blueprint.config_file, blueprint.config())
        if blueprint.auth:
            ensure_you(blueprint.principals_file, blueprint.own_token_file)
            write_access(blueprint.access_file, blueprint.url(ROUTER), blueprint.own_token_file)
        else:
            _remove(blueprint.access_file)
    except EngineError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(f"cannot use {blueprint.data}: {error.strerror or error}") from error


def check_ports(blueprint: Blueprint) -> None:
    """Raise `CliError` that names each port that is taken."""
    taken = [f"{port} ({service})" for service, port in blueprint.ports.items() if not is_free(port)]
    if taken:
        raise CliError(
            f"already in use on {HOST}: {'ports' if len(taken) > 1 else 'port'} {', '.join(taken)}. "
            "Stop what listens there, or choose other ports with --port-base."
        )


def is_free(port: int) -> bool:
    """Whether a server could listen on a loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as our servers do
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def children(blueprint: Blueprint) -> list[Child]:
    """The processes of a federation, engines first."""
    engines: list[Child] = []
    services: list[Child] = []
    for tier in blueprint.tiers:
        kind = _ENGINES.get(tier)
        engine = None if kind is None else kind(blueprint.folder(kind.name))
        if engine is not None:
            engines.append(engine_child(engine))
        services.append(_service(blueprint, tier, engine))
    # The router waits for its tiers by itself, and is ready when they answer.
    return [*engines, *services, _service(blueprint, ROUTER, None)]


async def _serve(
    blueprint: Blueprint,
    display: Display,
    ready_file: Path | None,
    work: Callable[[Blueprint], Coroutine[None, None, None]] | None,
) -> None:
    await asyncio.to_thread(prepare, blueprint)
    announced = False

    def told(status: Status) -> None:
        display.status(status)
        if announced and not supervisor.stopping:
            announce()  # a child that ended has no pid, and one that came back another

    def announce() -> None:
        if ready_file is not None:
            pids = {status.name: status.pid for status in supervisor.statuses}
            _replace(ready_file, _ready(blueprint, pids))

    async def ready() -> None:
        nonlocal announced
        announced = True
        announce()
        display.ready(blueprint)
        if work is not None:
            await _until_stopped(supervisor, work(blueprint))

    supervisor = Supervisor(blueprint.data, children(blueprint), on_status=told)
    display.starting(blueprint)
    try:
        await supervisor.run(ready)
    finally:
        if ready_file is not None and announced:
            _remove(ready_file)
        display.stopped()


async def _until_stopped(supervisor: Supervisor, work: Coroutine[None, None, None]) -> None:
    """Do the work and ask for a stop, or give the work up when a stop is asked for; raises its error."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(supervisor.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not supervisor.stopping:
        supervisor.request_stop()
    working.cancel()
    results = await asyncio.gather(working, stopping, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


def _service(blueprint: Blueprint, name: str, engine: Engine | None) -> Child:
    return service_child(
        name,
        [sys.executable, "-P", "-m", f"a2m_{name}"],
        # Asked at each start, because an engine knows its socket only once it is prepared.
        settings=lambda: {
            **({} if name != ROUTER or _names_embedder(os.environ) else EMBEDDER),
            **blueprint.settings(name, None if engine is None else engine.url),
        },
        ready=f"{blueprint.url(name)}/readyz",
        after=() if engine is None else (engine.name,),
    )


def _names_embedder(environment: Mapping[str, str]) -> bool:
    """Whether the operator says what makes vectors, be it none."""
    return any(name.upper().startswith("A2M_ROUTER_EMBEDDING") for name in environment)


def _ready(blueprint: Blueprint, pids: dict[str, int | None]) -> str:
    document = {
        "url": blueprint.url(ROUTER),
        "urls": blueprint.urls,
        "pids": pids,
        "pid": os.getpid(),
        "data": str(blueprint.data),
        "token_file": str(blueprint.token_file),
    }
    return json.dumps(document, indent=2) + "\n"


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _ensure_token(path: Path) -> None:
    """Make the token by which tiers know the router, once; it is only ever for its owner to read."""
    try:
        if path.read_text(encoding="ascii").strip():
            if stat.S_IMODE(path.stat().st_mode) != 0o600:
                path.chmod(0o600)
            return
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    _replace(path, secrets.token_urlsafe(32) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write a file of mode 0600 whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    fresh.replace(path)
