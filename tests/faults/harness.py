"""A federation made for faults: every process is real, and each can be killed and started again on its own.

    with Nursery() as nursery, Federation(folder, nursery, routers=3) as federation:
        federation.router.call("remember", records=[{"content": "hello"}], owner="ana", session="s")
        federation.kill("valkey")            # SIGKILL: valkey, postgres, a tier, router, router2, router3
        federation.start("valkey")           # the same data, port and socket; returns when it serves
        federation.settle()                  # nothing is under way or left over any more
        federation.held(where={"session": "s"})   # {"working": [entry, ...], "episodic": [...], ...}

Processes: two engines (Valkey, Postgres), four tiers, `routers` routers. All of it is synchronous. Calls are
safe from several threads; `kill` and `start` belong to the main thread, since what a thread starts ends with
it. In pytest take the fixture `nursery` (one a worker) and make one federation a module: it takes about 2 s
to start, 4 with the nursery. A tier or router that was killed is back in about 0.3 s, Postgres in about 1 s.

`router` and `routers` are callers of the routers, `tiers` of the tiers, `others` of what else is
served, all with the service token, so that
`owner` is believed. A call raises `A2MError`, and `TransportError` where no answer came.

With `proxied=("episodic", ...)` the routers reach those tiers through a `Cutter`:
`federation.cutters["episodic"].cut("black hole")`, then `.heal()`.

`pause("move: copied")` stops the first router when it next reaches that step (`a2m_router.steps`):

    with federation.pause("move: copied", nth=1) as pause:
        closing = federation.later(federation.router.call, "session/close", session="s")
        pause.reached()                      # waits for it, fails after some seconds
        federation.kill("episodic")
    closing.result()                         # the router went on when the block ended
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

import httpx
from caller import Caller
from cutter import Cutter
from nursery import Nursery
from pausing import FaultError, Pause, poll

from a2m_cli.federation import is_free
from a2m_engines.engine import Engine
from a2m_engines.postgres import Postgres
from a2m_engines.valkey import Valkey
from a2m_protocol.errors import A2MError

TIERS = ("working", "episodic", "semantic", "procedural")
ENGINES = ("valkey", "postgres")
HOST = "127.0.0.1"
CAPACITY = 6
PROMOTE_AFTER = 3

_PORTS = range(12_000, 30_000)
"""Below the ephemeral ports of Linux and macOS, so that no client of ours takes one meanwhile."""
_START_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
_TOKEN = "a-token-for-tests"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Service:
    """A tier or a router: what runs it, and how it fares. `pid` is None while it is not running."""

    name: str
    program: str
    port: int
    environment: Callable[[], Mapping[str, str]]
    log: Path
    pid: int | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def runs(self) -> bool:
        return self.pid is not None and _exists(self.pid)


class Federation:
    """Engines, tiers and routers over `folder`; use as a context manager, in the main thread.

    `capacity` is of a session in working, `promote_after` of episodic's promotion to semantic. `tier_timeout`
    (of a router's call to a tier), `sweep` (the pause between sweeps) and `lease` are seconds. `settings` are
    more settings of the routers (`{"PROBE_INTERVAL": "1"}`), `policy` more policy by tier. Several routers
    share locks through Valkey; one does with `coordinated=True`.
    """

    def __init__(
        self,
        folder: Path,
        nursery: Nursery,
        *,
        routers: int = 1,
        proxied: Iterable[str] = (),
        capacity: int = CAPACITY,
        promote_after: int = PROMOTE_AFTER,
        tier_timeout: float = 2.0,
        sweep: float = 1.0,
        lease: float = 2.0,
        coordinated: bool | None = None,
        settings: Mapping[str, str] | None = None,
        policy: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.folder = folder
        self.capacity = capacity
        self.promote_after = promote_after
        self.tier_timeout = tier_timeout
        self.valkey = Valkey(folder / "valkey")
        self.postgres = Postgres(folder / "postgres", durable=False)
        self._nursery = nursery
        self._sweep = sweep
        self._lease = lease
        self._settings = dict(settings or {})
        self._policy = policy or {}
        self._coordinated = routers > 1 if coordinated is None else coordinated
        self._stack = ExitStack()
        self._killed: set[str] = set()
        router_names = ["router", *(f"router{number}" for number in range(2, routers + 1))]
        proxied = tuple(proxied)
        ports = free_ports(len(TIERS) + routers + len(proxied))
        self.services = {tier: self._tier(tier, ports.pop()) for tier in TIERS}
        self.cutters = {tier: Cutter(ports.pop(), self.services[tier].port) for tier in proxied}
        self.services |= {name: self._router(name, ports.pop()) for name in router_names}
        self.tiers = {name: Caller(name, self.services[name].url, _TOKEN) for name in TIERS}
        self.routers = [Caller(name, self.services[name].url, _TOKEN) for name in router_names]
        self.others: list[Caller] = []
        self._http = httpx.Client(timeout=30.0, trust_env=False)
        self._threads = ThreadPoolExecutor(64)

    @property
    def router(self) -> Caller:
        """The first router."""
        return self.routers[0]

    @property
    def _callers(self) -> tuple[Caller, ...]:
        return (*self.tiers.values(), *self.routers, *self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that can be killed."""
        return (*ENGINES, *self.services)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._close)
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "logs").mkdir(exist_ok=True)
            (self.folder / "token").write_text(_TOKEN)
            (self.folder / "federation.yaml").write_text(json.dumps(self._config()))
            for cutter in self.cutters.values():
                stack.enter_context(cutter)
            for name in ENGINES:
                stack.callback(self._engine(name).stop)
                self._engine(name).start()
            for name in self.services:
                self._spawn(name)
            for name in self.services:
                self.wait_ready(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def kill(self, name: str) -> None:
        """End a process as a crash would; returns when it is gone."""
        if name in ENGINES:
            self._engine(name).kill()
            self._killed.add(name)
            return
        service = self.services[name]
        if service.pid is not None:
            _end(service.pid)
        service.pid = None

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start what was killed, and wait until it serves, and with it the tier of an engine."""
        if name in ENGINES:
            self._engine(name).start()
            self._killed.discard(name)
        else:
            self._spawn(name)
        if wait:
            self.wait_ready({"valkey": "working", "postgres": "episodic"}.get(name, name))

    def mend(self) -> None:
        """Start whatever does not run, after a test that failed half way."""
        for name in ENGINES:
            if name in self._killed:
                self.start(name)
        for name, service in self.services.items():
            if not service.runs():
                self.start(name)

    def restart(self, name: str) -> None:
        """Kill and start."""
        self.kill(name)
        self.start(name)

    def wait_ready(self, name: str, seconds: float = _START_SECONDS) -> None:
        """Wait until a tier or a router says that it is ready; raises `FaultError` with its log."""
        service = self.services[name]
        caller = next(c for c in self._callers if c.name == name)

        def ready() -> bool:
            if not service.runs():
                raise FaultError(f"{name} ended by itself:\n{self.log(name)}")
            return caller.is_ready()

        poll(f"{name} is ready", ready, seconds)

    def pid(self, name: str) -> int:
        """The pid of a process that runs."""
        pid = self._engine(name).pid if name in ENGINES else self.services[name].pid
        assert pid is not None, f"{name} does not run"
        return pid

    def log(self, name: str, length: int = 3_000) -> str:
        """The end of a tier's or router's log."""
        path = self.services[name].log
        return path.read_text(errors="replace")[-length:] if path.exists() else ""

    @contextmanager
    def pause(self, step: str, *, nth: int = 1, router: str = "router") -> Generator[Pause]:
        """Stop a router when it reaches `step` for the `nth` time from now on; see the module's text."""
        url = self.services[router].url
        told = self._http.post(f"{url}/pauses", json={"step": step, "nth": nth}).json()
        pause = Pause(step, self._http, url, told["pause"])
        try:
            yield pause
        finally:
            pause.go()

    def later(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do something in a thread."""
        return self._threads.submit(work, *args, **kwargs)

    def held(self, **selected: Any) -> dict[str, list[dict[str, Any]]]:
        """What each tier itself holds of what is selected (`where`, `ids`, `owner`), without contents."""
        return {name: tier.entries(**selected) for name, tier in self.tiers.items()}

    def settle(self, seconds: float = _SETTLE_SECONDS) -> None:
        """Wait until all are ready and nothing is under way or left to do: consolidating changes nothing."""
        for name in self.services:
            self.wait_ready(name)
        last: object = None
        failure: A2MError | None = None

        def quiet() -> bool:
            nonlocal last, failure
            before = last
            try:
                done = self.router.call("consolidate")
                moved = sum(done[figure] for figure in ("moved", "promoted", "dropped"))
                arrived = [tier.entries(arrived=True) for tier in self.tiers.values()]
                last = done["counts"]
            except A2MError as error:
                failure = error
                return False
            failure = None
            return moved == 0 and not any(arrived) and last == before

        try:
            poll("the federation settles", quiet, seconds)
        except FaultError as error:
            reason = f"; the last failure: {failure.message}" if failure is not None else ""
            raise FaultError(f"{error}{reason}\n{self.log('router')}") from failure

    def _engine(self, name: str) -> Engine:
        return {"valkey": self.valkey, "postgres": self.postgres}[name]

    def _spawn(self, name: str) -> None:
        service = self.services[name]
        service.pid = self._nursery.start(service.program, service.environment(), service.log)

    def _close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for name in self.services:
            self.kill(name)
        for caller in self._callers:
            caller.close()
        self._http.close()

    def _tier(self, name: str, port: int) -> Service:
        def environment() -> dict[str, str]:
            values = {"HOST": HOST, "PORT": str(port), "TOKEN_FILE": str(self.folder / "token")}
            match name:
                case "working":
                    values["URL"] = self.valkey.url
                case "episodic":
                    values["URL"] = self.postgres.url
                case _:
                    values["PATH"] = str(self.folder / name)
            return {f"A2M_{name.upper()}_{key}": value for key, value in values.items()}

        return Service(name, f"a2m_{name}", port, environment, self.folder / "logs" / f"{name}.log")

    def _router(self, name: str, port: int) -> Service:
        def environment() -> dict[str, str]:
            token = str(self.folder / "token")
            values = {
                "HOST": HOST,
                "PORT": str(port),
                "TOKEN_FILE": token,
                "TIER_TOKEN_FILE": token,
                "CONFIG": str(self.folder / "federation.yaml"),
                "TIER_TIMEOUT": str(self.tier_timeout),
                "SWEEP_INTERVAL": str(self._sweep),
                "LEASE_SECONDS": str(self._lease),
            }
            if self._coordinated:
                values["COORDINATION_URL"] = self.valkey.url
            return {f"A2M_ROUTER_{key}": value for key, value in (values | self._settings).items()}

        program = str(Path(__file__).with_name("pausable_router.py"))
        return Service(name, program, port, environment, self.folder / "logs" / f"{name}.log")

    def _config(self) -> dict[str, Any]:
        policy: dict[str, dict[str, Any]] = {
            "working": {"capacity": self.capacity, "per_session": True, "spill_to": "episodic"},
            "episodic": {"promote_to": "semantic", "promote_after": self.promote_after},
        }
        return {
            "name": "faults",
            "tiers": [
                {
                    "name": tier,
                    "kind": tier,
                    "url": self._reached(tier),
                    **policy.get(tier, {}),
                    **self._policy.get(tier, {}),
                }
                for tier in TIERS
            ],
        }

    def _reached(self, tier: str) -> str:
        """Where the routers reach a tier."""
        cutter = self.cutters.get(tier)
        return self.services[tier].url if cutter is None else f"http://{HOST}:{cutter.port}"


def free_ports(number: int) -> list[int]:
    """Ports that are free now, at random, so that parallel workers look in different places."""
    chosen: list[int] = []
    while len(chosen) < number:
        port = random.choice(_PORTS)
        if port not in chosen and is_free(port):
            chosen.append(port)
    return chosen


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    poll(f"the end of process {pid}", lambda: not _exists(pid))
