"""`docker compose` without Docker: the file's services as processes of this machine.

Each of ours gets the file's own command, environment and health check, started in the order of its
`depends_on` and brought back by its restart policy. What has to differ is this: host names and ports become
ports of loopback, paths of volumes and configs become folders of the test, `0.0.0.0` becomes 127.0.0.1, and
databases are what `databases` says. A container's file system is new at each `up`; volumes stay.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from compose_file import ComposeFile, Health, Service
from databases import Database, PostgresServer, ValkeyServer

from a2m_engines.process import owned

PORTS = {
    "router": 8778,
    "working": 8781,
    "episodic": 8782,
    "semantic": 8783,
    "procedural": 8784,
    "valkey": 6379,
    "postgres": 5432,
}
ABSENT = "qdrant"
"""No process stands in for it: see `databases`."""

_TICK_SECONDS = 0.02
_FIRST_DELAY, _LAST_DELAY, _SETTLED = 0.1, 60.0, 10.0
"""As Docker: a restart waits 100 ms, twice as long each time, until a container has run for 10 s."""
_WHOLE_PATH = r"(?<![\w./-]){}(?=/|$)"


@dataclass
class Container:
    """One service as it runs. `up` is the wish, the rest what is."""

    service: Service
    view: Path
    command: list[str]
    environment: dict[str, str]
    health: Health | None
    database: Database | None = None
    process: subprocess.Popen[bytes] | None = None
    probe: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    probed: float = 0.0
    failures: int = 0
    healthy: bool = False
    finished: bool = False
    restarts: int = 0
    delay: float = _FIRST_DELAY
    due: float = 0.0
    order: list[str] = field(default_factory=list)


class Runner(Protocol):
    """How a service of ours becomes a process of this machine."""

    def path(self, view: Path, target: str) -> str:
        """Where the service finds what is mounted at `target` of its container."""
        ...

    def volume(self, folder: Path) -> None:
        """Make a new volume fit for the user of the services."""
        ...

    def command(self, container: Container) -> list[str]: ...

    def probe(self, container: Container, test: Sequence[str]) -> list[str]: ...

    def environment(self, container: Container) -> dict[str, str]: ...

    def terminate(self, container: Container) -> None:
        """Ask it to end, as a stop of its container would."""
        ...


class Processes:
    """The installed packages, run by this Python."""

    def path(self, view: Path, target: str) -> str:
        return f"{view}{target}"

    def volume(self, folder: Path) -> None:
        pass

    def command(self, container: Container) -> list[str]:
        words = container.command
        tool = container.service.raw["build"]["target"] == "tool"
        # Ends with the thread that starts it, should that be lost.
        return owned([sys.executable, "-m", "a2m_cli", *words] if tool else [sys.executable, *words[1:]])

    def probe(self, container: Container, test: Sequence[str]) -> list[str]:
        return [sys.executable, *test[1:]]

    def environment(self, container: Container) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(container.view / "data")}
        own |= {"TMPDIR": str(container.view / "tmp")}
        return own | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **container.environment}

    def terminate(self, container: Container) -> None:
        assert container.process is not None
        container.process.terminate()


class Stack:
    """A project of a compose file. `up` and `down` may alternate; `root` keeps the volumes between them."""

    def __init__(
        self, file: ComposeFile, root: Path, ports: Mapping[str, int], runner: Runner | None = None
    ) -> None:
        """`ports` are those of loopback, by service."""
        self._runner = runner or Processes()
        self.file = file
        self._root = root
        self._ports = ports
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.containers: dict[str, Container] = {}
        self.started: list[str] = []
        self.statuses: dict[str, int] = {}

    @property
    def url(self) -> str:
        return self.url_of("router")

    def url_of(self, service: str) -> str:
        return f"http://127.0.0.1:{self._ports[service]}"

    def volume(self, name: str) -> Path:
        return self._root / "volumes" / name

    def up(self, seconds: float) -> None:
        """Start everything and return when all is healthy; raises `AssertionError` with the logs."""
        self.containers = {name: self._made(service) for name, service in self.file.default.items()}
        self.started = []
        self._stop.clear()
        self._thread = threading.Thread(target=self._tend, name="stack")
        self._thread.start()
        self.wait("everything is healthy", self.is_up, seconds)

    def is_up(self) -> bool:
        return all(c.healthy or c.finished for c in self.containers.values())

    def wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._failure is None, f"{self._failure!r}\n{self.logs()}"
            late = time.monotonic() > deadline
            assert not late, f"{what}: not within {seconds:g} s\n{self.state()}\n{self.logs()}"
            time.sleep(_TICK_SECONDS)

    def kill(self, name: str) -> int:
        """End a service as a crash would, and return the pid that it had."""
        process = self.containers[name].process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        return process.pid

    def back(self, name: str, pid: int) -> bool:
        """Whether a service that had this pid runs again and is healthy."""
        container = self.containers[name]
        process = container.process
        return process is not None and process.pid != pid and container.healthy

    def down(self) -> None:
        """Stop everything in the order that Compose does, and remove all but the volumes."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        assert self._failure is None, f"{self._failure!r}\n{self.logs()}"
        for container in self.containers.values():
            shutil.rmtree(container.view)

    def run(self, name: str, *words: str) -> str:
        """What a service with a profile prints, run once: `docker compose run --rm NAME WORDS`."""
        container = self._made(self.file.services[name])
        container.command = [*words]
        try:
            done = subprocess.run(
                self._runner.command(container),
                env=self._runner.environment(container),
                cwd=container.view / "data",
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            shutil.rmtree(container.view)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def state(self) -> str:
        return ", ".join(
            f"{name}: {'finished' if c.finished else 'healthy' if c.healthy else 'not healthy'}"
            for name, c in self.containers.items()
        )

    def logs(self) -> str:
        found = sorted((self._root / "logs").glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2_000:]}" for path in found)

    def mounts(self, service: Service) -> list[tuple[str, str, bool]]:
        """The service's volumes; the embedded engine of semantic has that of the server."""
        more = [("qdrant-data", "/data", True)] if service.name == "semantic" else []
        return [*service.mounts, *more]

    # The container of a service.

    def _made(self, service: Service) -> Container:
        view = self._root / "containers" / service.name
        (view / "tmp").mkdir(parents=True)
        tops = {"/data"}
        (view / "data").mkdir()
        for source, target, _ in self.mounts(service):
            place = view / target.lstrip("/")
            if not self.volume(source).exists():
                self.volume(source).mkdir(parents=True)
                self._runner.volume(self.volume(source))
            if place.is_dir():
                place.rmdir()
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(self.volume(source))
            tops.add("/" + target.split("/")[1])
        for source, target in service.configs:
            place = view / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._with_ports(self.file.config(source).read_text(), service.name))
            tops.add("/" + target.split("/")[1])

        def here(text: str) -> str:
            text = self._with_ports(text, service.name)
            for top in sorted(tops):
                place = self._runner.path(view, top)
                text = re.sub(_WHOLE_PATH.format(re.escape(top)), lambda _, place=place: place, text)
            return text

        environment = {name: here(value) for name, value in service.environment.items()}
        return Container(
            service,
            view,
            [here(word) for word in service.command],
            self._environment(service, environment),
            self._checked(service.health, here),
            self._database(service, view),
        )

    def _environment(self, service: Service, given: dict[str, str]) -> dict[str, str]:
        own = dict(given)
        prefix = f"A2M_{service.name.upper()}_"
        if service.ours and service.name in PORTS:
            assert given[f"{prefix}HOST"] == "0.0.0.0"
            own |= {f"{prefix}HOST": "127.0.0.1", f"{prefix}PORT": str(self._ports[service.name])}
        if service.name == "semantic":
            del own["A2M_SEMANTIC_URL"], own["A2M_SEMANTIC_API_KEY_FILE"]
            if url := os.environ.get("A2M_TEST_QDRANT_URL"):
                own["A2M_SEMANTIC_URL"] = url
            else:
                own["A2M_SEMANTIC_PATH"] = self._runner.path(self._root / "containers/semantic", "/data/edge")
        return own

    def _checked(self, health: Health | None, here: Callable[[str], str]) -> Health | None:
        if health is None:
            return None
        return Health(tuple(map(here, health.test)), *list(vars(health).values())[1:])

    def _database(self, service: Service, view: Path) -> Database | None:
        if service.name == "valkey":
            mounted = [word.replace("/secrets", f"{view}/secrets") for word in service.command]
            password = view / "secrets/valkey/password"
            return ValkeyServer(mounted, self.volume("valkey-data"), self._ports["valkey"], password)
        if service.name == "postgres":
            folder = self.volume("postgres-data")
            return PostgresServer(folder, self._ports["postgres"], service.environment["POSTGRES_DB"])
        return None

    def _with_ports(self, text: str, own: str) -> str:
        for name, port in PORTS.items():
            text = re.sub(rf"\b{name}:{port}\b", f"127.0.0.1:{self._ports[name]}", text)
        if own in PORTS:
            text = text.replace(f"127.0.0.1:{PORTS[own]}", f"127.0.0.1:{self._ports[own]}")
        return text

    # The daemon. All processes are started by its thread, with whose end they would end too.

    def _tend(self) -> None:
        try:
            while not self._stop.is_set():
                for container in self.containers.values():
                    self._advance(container)
                time.sleep(_TICK_SECONDS)
        except BaseException as error:  # noqa: BLE001 told to whoever waits
            self._failure = error
        finally:
            self._end_all()

    def _advance(self, container: Container) -> None:
        now = time.monotonic()
        name = container.service.name
        if name == ABSENT:
            if not container.healthy and self._may_start(container):
                self.started.append(name)
                container.healthy = True
        elif container.finished:
            return
        elif container.process is None:
            if now >= container.due and (container.restarts or self._may_start(container)):
                self._start(container)
        elif (status := container.process.poll()) is not None:
            self._ended(container, status)
        else:
            self._check(container, now)

    def _may_start(self, container: Container) -> bool:
        conditions = {
            "service_healthy": lambda one: one.healthy,
            "service_completed_successfully": lambda one: one.finished,
        }
        needed = container.service.depends_on.items()
        return all(conditions[condition](self.containers[name]) for name, condition in needed)

    def _start(self, container: Container) -> None:
        name = container.service.name
        logs = self._root / "logs"
        logs.mkdir(exist_ok=True)
        database = container.database
        if database is not None:
            database.prepare()
            command, environment = database.command(), database.environment()
            folder = database.folder
        else:
            command, environment = self._runner.command(container), self._runner.environment(container)
            folder = container.view / "data"
        with (logs / f"{name}.log").open("ab") as log:
            container.process = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        container.started = container.probed = time.monotonic()
        container.failures = 0
        if not container.restarts:
            self.started.append(name)

    def _ended(self, container: Container, status: int) -> None:
        container.process = None
        container.healthy = False
        self._drop_probe(container)
        policy = container.service.restart
        if policy == "no":
            assert status == 0, f"{container.service.name} ended with status {status}"
            container.finished = True
            return
        assert policy == "unless-stopped", policy
        now = time.monotonic()
        if now - container.started > _SETTLED:
            container.delay = _FIRST_DELAY
        container.due = now + container.delay
        container.delay = min(container.delay * 2, _LAST_DELAY)
        container.restarts += 1

    def _check(self, container: Container, now: float) -> None:
        health = container.health
        if health is None:
            return
        if container.probe is not None:
            passed = container.probe.poll()
            if passed is None and now - container.probed < health.timeout:
                return
            self._drop_probe(container)
            self._judge(container, health, now, passed == 0)
            return
        young = now - container.started < health.start_period and not container.healthy
        if now - container.probed < (health.start_interval if young else health.interval):
            return
        container.probed = now
        if container.database is not None:
            self._judge(container, health, now, container.database.healthy())
        else:
            assert health.test[:2] == ("CMD", "python"), health.test
            container.probe = subprocess.Popen(
                self._runner.probe(container, health.test[1:]),
                env=self._runner.environment(container),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def _judge(self, container: Container, health: Health, now: float, passed: bool) -> None:
        if passed:
            container.healthy, container.failures = True, 0
        elif container.healthy or now - container.started > health.start_period:
            container.failures += 1
            if container.failures >= health.retries:
                container.healthy = False

    def _drop_probe(self, container: Container) -> None:
        if container.probe is not None:
            container.probe.kill()
            container.probe.wait()
            container.probe = None

    def _end_all(self) -> None:
        """Those that others depend on last."""
        for name in reversed(self.started):
            container = self.containers[name]
            self._drop_probe(container)
            if (process := container.process) is not None:
                # Postgres' image asks for the fast shutdown by its own STOPSIGNAL.
                if name == "postgres":
                    process.send_signal(signal.SIGINT)
                else:
                    self._runner.terminate(container)
                try:
                    process.wait(container.service.grace)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    self._failure = self._failure or AssertionError(f"{name} had to be killed at the end")
                self.statuses[name] = process.returncode
                container.process = None
            if container.database is not None:
                container.database.release()
