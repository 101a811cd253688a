"""The supervisor on real processes and engines."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from redis import Redis

from a2m_cli.children import Child, State, Status, engine_child, service_child
from a2m_cli.ledger import ProcessLedger
from a2m_cli.logs import ChildLog
from a2m_cli.runner import Backoff, SupervisorError
from a2m_cli.supervisor import Supervisor
from a2m_engines.errors import EngineError
from a2m_engines.postgres import Postgres
from a2m_engines.process import is_running
from a2m_engines.valkey import Valkey

QUICK = Backoff(first=0.01, longest=0.05)

# Says so in a file of its name when it runs, and takes SIGTERM as a polite request.
WORKER = """
import os, pathlib, signal, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def stop(number, frame):
    with (folder / "order").open("a") as order:
        order.write(f"-{name} ")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if name == "stubborn" else stop)
print("serving", name, os.environ.get("GREETING"))
with (folder / "order").open("a") as order:
    order.write(f"+{name} ")
(folder / name).write_text(str(os.getpid()))
while True:
    time.sleep(60)
"""

OWNER = """
import asyncio, json, sys
from pathlib import Path
from a2m_cli.children import engine_child, service_child
from a2m_cli.supervisor import Supervisor
from a2m_engines.postgres import Postgres
from a2m_engines.valkey import Valkey
folder = Path(sys.argv[1])
valkey = Valkey(folder / "valkey")
async def always():
    return True
async def main():
    supervisor = Supervisor(folder, [
        engine_child(valkey),
        engine_child(Postgres(folder / "postgres")),
        service_child("service", ["sleep", "600"], settings=dict, ready=always, after=["valkey", "postgres"]),
    ])
    async def ready():
        pids = {status.name: status.pid for status in supervisor.statuses}
        print(json.dumps({"pids": pids, "valkey": valkey.url}), flush=True)
    await supervisor.run(ready)
asyncio.run(main())
"""


def worker(folder: Path, name: str, *after: str, **settings: str) -> Child:
    async def ready() -> bool:
        path = folder / name
        return path.exists() and is_pid(path.read_text())

    return service_child(
        name,
        [sys.executable, "-c", WORKER, str(folder), name],
        settings=lambda: settings,
        ready=ready,
        after=after,
    )


def spawn(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def is_pid(text: str) -> bool:
    return text.isdigit() and psutil.pid_exists(int(text)) and is_running(psutil.Process(int(text)))


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


def status_of(supervisor: Supervisor, name: str) -> Status:
    return next(status for status in supervisor.statuses if status.name == name)


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = status_of(supervisor, name).pid
    assert pid is not None
    return pid


async def test_a_stop_while_an_engine_is_made_ready_is_no_failure_of_it(tmp_path: Path) -> None:
    supervisor: Supervisor
    loop = asyncio.get_running_loop()

    def prepare() -> None:
        # As Ctrl-C does: it reaches us and what we run alike.
        loop.call_soon_threadsafe(supervisor.request_stop)
        raise EngineError("initdb was interrupted")

    child = replace(worker(tmp_path, "engine"), prepare=prepare)
    statuses: list[Status] = []
    supervisor = Supervisor(tmp_path, [child], on_status=statuses.append)
    await supervisor.run()
    assert State.FAILED not in {status.state for status in statuses}
    assert status_of(supervisor, "engine").state is State.STOPPED


async def test_children_start_after_what_they_need_and_stop_before_it(tmp_path: Path) -> None:
    children = [worker(tmp_path, "c", "b"), worker(tmp_path, "b", "a"), worker(tmp_path, "a")]
    async with Supervisor(tmp_path, children) as supervisor:
        assert [status.state for status in supervisor.statuses] == [State.READY] * 3
        processes = [psutil.Process(pid_of(supervisor, name)) for name in "abc"]
    assert (tmp_path / "order").read_text().split() == ["+a", "+b", "+c", "-c", "-b", "-a"]
    assert not any(process.is_running() for process in processes)
    assert names_in(tmp_path) == {"a", "b", "c", "order", "logs"}


async def test_settings_reach_the_child_and_its_output_its_log(tmp_path: Path) -> None:
    async with Supervisor(tmp_path, [worker(tmp_path, "a", GREETING="good day")]):
        assert (tmp_path / "logs" / "a.log").read_text() == "serving a good day\n"


async def test_a_child_that_dies_is_started_again_and_the_others_are_left_alone(tmp_path: Path) -> None:
    told: list[Status] = []
    children = [worker(tmp_path, "a"), worker(tmp_path, "b", "a")]
    async with Supervisor(tmp_path, children, on_status=told.append, backoff=QUICK) as supervisor:
        first, other = pid_of(supervisor, "a"), pid_of(supervisor, "b")
        os.kill(first, signal.SIGKILL)
        await until(lambda: status_of(supervisor, "a").restarts == 1)
        await until(lambda: status_of(supervisor, "a").state is State.READY)
        assert pid_of(supervisor, "a") != first
        assert pid_of(supervisor, "b") == other
    backing_off = next(status for status in told if status.state is State.BACKING_OFF)
    assert backing_off.name == "a"
    assert backing_off.detail.startswith("ended by SIGKILL")


async def test_an_engine_that_is_killed_comes_back_at_the_same_url_with_its_data(tmp_path: Path) -> None:
    valkey, postgres = Valkey(tmp_path / "valkey"), Postgres(tmp_path / "postgres")
    children = [engine_child(valkey), engine_child(postgres)]
    async with Supervisor(tmp_path, children, backoff=QUICK) as supervisor:
        urls = valkey.url, postgres.url
        with Redis.from_url(valkey.url) as client:
            client.set("kept", "yes")
        for name in ("valkey", "postgres"):
            os.kill(pid_of(supervisor, name), signal.SIGKILL)
            await until(lambda name=name: status_of(supervisor, name).restarts == 1)
            await until(lambda name=name: status_of(supervisor, name).state is State.READY)
        assert (valkey.url, postgres.url) == urls
        with Redis.from_url(valkey.url) as client:
            assert client.get("kept") == b"yes"
        assert postgres.answers()


async def test_a_child_that_cannot_start_stops_the_rest_and_shows_its_log(tmp_path: Path) -> None:
    broken = service_child(
        "broken",
        [sys.executable, "-c", "import sys; sys.exit('no such setting')"],
        settings=dict,
        ready="http://127.0.0.1:9/readyz",
        after=["a"],
    )
    supervisor = Supervisor(tmp_path, [worker(tmp_path, "a"), broken], backoff=QUICK)
    with pytest.raises(
        SupervisorError, match=r"(?s)broken did not start: ended with status 1.*no such setting"
    ):
        await supervisor.start()
    assert [status.state for status in supervisor.statuses] == [State.STOPPED, State.FAILED]
    assert not is_pid((tmp_path / "a").read_text())


# A router that has found the tier `a` when it is asked for the third time.
SEARCHING = """
import http.server, json, pathlib, sys
asked = pathlib.Path(sys.argv[2])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with asked.open("a") as seen:
            seen.write(".")
        silent = [{"tier": "a", "reason": "away"}] if len(asked.read_text()) < 3 else []
        body = json.dumps({"status": "ok", **({"degraded": silent} if silent else {})}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


async def test_a_router_is_ready_when_it_has_found_the_tiers_beside_it(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    asked = tmp_path / "asked"
    router = service_child(
        "router",
        [sys.executable, "-c", SEARCHING, str(unused_tcp_port), str(asked)],
        settings=dict,
        ready=f"http://127.0.0.1:{unused_tcp_port}/readyz",
    )
    async with Supervisor(tmp_path, [worker(tmp_path, "a"), router]) as supervisor:
        assert status_of(supervisor, "router").state is State.READY
        assert len(asked.read_text()) >= 3


async def test_a_url_that_answers_makes_a_child_ready(tmp_path: Path, unused_tcp_port: int) -> None:
    server = service_child(
        "server",
        [sys.executable, "-m", "http.server", str(unused_tcp_port), "--bind", "127.0.0.1"],
        settings=dict,
        ready=f"http://127.0.0.1:{unused_tcp_port}/",
    )
    async with Supervisor(tmp_path, [server]) as supervisor:
        assert status_of(supervisor, "server").state is State.READY


async def test_a_second_supervisor_of_a_folder_is_refused(tmp_path: Path) -> None:
    async with Supervisor(tmp_path, [worker(tmp_path, "a")]):
        with pytest.raises(SupervisorError, match=f"in use by process {os.getpid()}"):
            await Supervisor(tmp_path, [worker(tmp_path, "a")]).start()
    async with Supervisor(tmp_path, [worker(tmp_path, "a")]):
        pass


async def test_a_child_deaf_to_sigterm_is_killed_when_a_stop_is_asked_for_twice(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, [worker(tmp_path, "stubborn")])
    await supervisor.start()
    process = psutil.Process(pid_of(supervisor, "stubborn"))
    supervisor.request_stop()
    stopping = asyncio.create_task(supervisor.stop())
    await until(lambda: status_of(supervisor, "stubborn").state is State.STOPPING)
    assert process.is_running()
    supervisor.request_stop()
    await stopping
    assert not process.is_running()


async def test_a_stop_while_engines_are_being_prepared_leaves_nothing(tmp_path: Path) -> None:
    engine = Postgres(tmp_path / "postgres")
    supervisor = Supervisor(tmp_path, [engine_child(engine), worker(tmp_path, "a", "postgres")])
    starting = asyncio.create_task(supervisor.start())
    await until(lambda: status_of(supervisor, "postgres").state is State.STARTING)
    supervisor.request_stop()
    await starting
    await supervisor.stop()
    assert [status.state for status in supervisor.statuses] == [State.STOPPED] * 2
    assert not (tmp_path / "postgres" / "lock").exists()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_when_the_supervisor_ends_nothing_outlives_it(tmp_path: Path, blow: signal.Signals) -> None:
    with spawn(sys.executable, "-c", OWNER, str(tmp_path)) as owner:
        assert owner.stdout is not None
        said = json.loads(await asyncio.to_thread(owner.stdout.readline))
        with Redis.from_url(said["valkey"]) as client:
            client.set("kept", "yes")
        processes = [psutil.Process(pid) for pid in said["pids"].values()]
        processes += [child for process in processes for child in process.children(recursive=True)]
        assert len(processes) > 3
        owner.send_signal(blow)
        await until(lambda: owner.poll() is not None)
        await until(lambda: not any(is_running(process) for process in processes))
    if blow is not signal.SIGKILL:
        assert owner.returncode == 0
        assert names_in(tmp_path) == {"logs", "valkey", "postgres"}
    valkey = Valkey(tmp_path / "valkey")
    async with Supervisor(tmp_path, [engine_child(valkey)]):
        with Redis.from_url(valkey.url) as client:
            assert client.get("kept") == b"yes"


async def test_what_a_killed_supervisor_left_is_ended_by_the_next(tmp_path: Path) -> None:
    orphan = spawn("sleep", "600")
    try:
        ProcessLedger(tmp_path / "children.json").add("a", orphan.pid)
        async with Supervisor(tmp_path, [worker(tmp_path, "a")]):
            assert orphan.wait(5) == -signal.SIGTERM
    finally:
        orphan.kill()
        orphan.communicate()


async def test_a_pid_that_belongs_to_another_process_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "children.json").write_text(json.dumps({"a": [os.getpid(), 12345.0]}))
    async with Supervisor(tmp_path, [worker(tmp_path, "a")]) as supervisor:
        assert status_of(supervisor, "a").state is State.READY


async def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {shlex.quote(str(tmp_path / 'grandchild'))}; wait"

    async def ready() -> bool:
        return (tmp_path / "grandchild").exists() and (tmp_path / "grandchild").read_text().strip() != ""

    child = service_child("shell", ["sh", "-c", script], settings=dict, ready=ready)
    async with Supervisor(tmp_path, [child]):
        grandchild = psutil.Process(int((tmp_path / "grandchild").read_text()))
    await until(lambda: not is_running(grandchild))


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        ({"a": ["b"], "b": ["a"]}, "wait for each other"),
        ({"a": ["nobody"]}, "after nobody, which is not there"),
    ],
)
async def test_an_order_that_cannot_be_is_refused(
    tmp_path: Path, after: dict[str, list[str]], complaint: str
) -> None:
    with pytest.raises(SupervisorError, match=complaint):
        Supervisor(tmp_path, [worker(tmp_path, name, *others) for name, others in after.items()])


def test_the_wait_before_a_start_doubles_up_to_a_limit() -> None:
    backoff = Backoff(first=0.1, longest=1.0)
    assert [backoff.delay(failures) for failures in (1, 2, 3, 4, 5, 10_000)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    )


def test_a_log_over_its_limit_is_put_aside_under_its_writer(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "a.log", limit=10)
    with log.open() as writer:
        writer.write(b"more than ten bytes\n")
        writer.flush()
        log.rotate()
        writer.write(b"after\n")
    assert (tmp_path / "a.log.1").read_text() == "more than ten bytes\n"
    assert log.tail() == "after"
