"""Both engines start, keep what they acknowledged over a crash, guard their folder and leave nothing."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from a2m_engines import postgres
from a2m_engines.engine import Engine
from a2m_engines.errors import EngineError
from a2m_engines.isolation import Isolation
from a2m_engines.postgres import Postgres
from a2m_engines.process import is_running, processes_in
from a2m_engines.valkey import Valkey

HOLDER = """
import json, sys
from pathlib import Path
from a2m_engines.postgres import Postgres
from a2m_engines.valkey import Valkey
folder = Path(sys.argv[1])
with Valkey(folder / "valkey") as valkey, Postgres(folder / "postgres") as postgres:
    print(json.dumps({"valkey": valkey.url, "postgres": postgres.url, "pids": [valkey.pid, postgres.pid]}))
    sys.stdout.flush()
    sys.stdin.read()
"""

MakeEngine = Callable[[Path], Engine]
both = pytest.mark.parametrize("make", [Valkey, Postgres])
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, as pytest's own cannot be."""
    folder = Path(tempfile.mkdtemp(prefix="a2m-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def leftovers(engine: Engine) -> list[psutil.Process]:
    return processes_in(engine.working_directory, engine.process_names)


def tcp_listeners(pid: int) -> list[object]:
    server = psutil.Process(pid)
    found: list[object] = []
    for process in (server, *server.children(recursive=True)):
        # A worker of the engine may end while we look.
        with suppress(psutil.NoSuchProcess):
            found += process.net_connections("inet")
    return found


@both
def test_an_engine_serves_on_a_private_unix_socket_and_no_port(make: MakeEngine, tmp_path: Path) -> None:
    with make(tmp_path / "engine") as engine:
        assert engine.answers()
        assert tcp_listeners(engine.pid) == []
        sockets = [path for path in (tmp_path / "engine" / "run").iterdir() if path.is_socket()]
        assert len(sockets) == 1
        assert stat.S_IMODE(sockets[0].parent.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "engine").stat().st_mode) == 0o700


@both
def test_stopping_leaves_no_process_socket_or_lock(make: MakeEngine, tmp_path: Path) -> None:
    with make(tmp_path / "engine") as engine:
        pass
    assert leftovers(engine) == []
    assert not engine.answers()
    remains = {path.name for path in (tmp_path / "engine").rglob("*")}
    assert not remains & {"lock", "postmaster.pid", "valkey.sock", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"}


@both
def test_a_second_owner_of_the_same_folder_is_refused_and_told_who_has_it(
    make: MakeEngine, tmp_path: Path
) -> None:
    with make(tmp_path / "engine") as engine:
        with pytest.raises(EngineError, match=f"in use by process {os.getpid()}"):
            make(tmp_path / "engine").start()
        assert engine.answers()
    with make(tmp_path / "engine"):
        pass


@both
def test_a_folder_too_deep_for_a_socket_works_by_a_short_one(make: MakeEngine, tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("ä b'\"," * 10)
    with make(folder) as engine:
        assert engine.answers()
        sockets = Path((folder / "run.path").read_text())
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        first = engine.url
        engine.kill()
        assert engine.start().url == first
        connects(engine)
    assert not sockets.exists()


@both
def test_a_folder_with_blanks_and_quotes_works(make: MakeEngine, tmp_path: Path) -> None:
    with make(tmp_path / "a \"b' é,%20") as engine:
        connects(engine)


def connects(engine: Engine) -> None:
    if isinstance(engine, Postgres):
        psycopg.connect(engine.url).close()
    else:
        with Redis.from_url(engine.url) as client:
            client.ping()


def test_valkey_killed_in_mid_write_keeps_all_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    with Valkey(tmp_path / "valkey") as engine:

        def write() -> None:
            with Redis.from_url(engine.url) as client:
                try:
                    for number in range(1_000_000):
                        client.rpush("log", number)
                        acknowledged.append(number)
                except RedisConnectionError:
                    return

        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: len(acknowledged) > 500)
        engine.kill()
        writer.join()
        engine.start()
        with Redis.from_url(engine.url) as client:
            kept = [int(value) for value in client.lrange("log", 0, -1)]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


def test_postgres_killed_in_mid_write_keeps_all_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    with Postgres(tmp_path / "postgres") as engine:
        with psycopg.connect(engine.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE log (number bigint PRIMARY KEY)")

        def write() -> None:
            try:
                with psycopg.connect(engine.url, autocommit=True) as connection:
                    for number in range(1_000_000):
                        connection.execute("INSERT INTO log VALUES (%s)", (number,))
                        acknowledged.append(number)
            except psycopg.OperationalError:
                return

        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: len(acknowledged) > 100)
        engine.kill()
        writer.join()
        engine.start()
        with psycopg.connect(engine.url) as connection:
            kept = [row[0] for row in connection.execute("SELECT number FROM log ORDER BY number")]
    assert kept[: len(acknowledged)] == acknowledged


def test_postgres_starts_over_a_pid_file_whose_pid_is_somebody_elses_now(tmp_path: Path) -> None:
    engine = Postgres(tmp_path / "postgres").start()
    engine.kill()
    pid_file = engine.working_directory / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    with engine:
        connects(engine)


def test_postgres_starts_after_an_initdb_that_was_cut_off(tmp_path: Path) -> None:
    half = tmp_path / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with Postgres(tmp_path / "postgres") as engine:
        connects(engine)


def test_both_engines_die_with_a_killed_owner_and_start_again_with_their_data(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        served = json.loads(owner.stdout.readline())
        with Redis.from_url(served["valkey"]) as client:
            client.set("kept", "yes")
        with psycopg.connect(served["postgres"], autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        processes = [psutil.Process(pid) for pid in served["pids"]]
        processes += [child for process in processes for child in process.children(recursive=True)]
        owner.kill()
    until(lambda: not any(is_running(process) for process in processes))

    with Valkey(tmp_path / "valkey") as valkey, Postgres(tmp_path / "postgres") as restarted:
        with Redis.from_url(valkey.url) as client:
            assert client.get("kept") == b"yes"
        with psycopg.connect(restarted.url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


@both
def test_a_server_that_outlived_its_owner_is_ended_by_the_next_start(
    make: MakeEngine, tmp_path: Path
) -> None:
    first = make(tmp_path / "engine")
    first.prepare()
    # Without the signal at the owner's death, as on a system that has none.
    bare = [
        sys.executable,
        "-c",
        "import subprocess, sys, os; subprocess.Popen(sys.argv[1:], stderr=subprocess.DEVNULL,"
        " stdout=subprocess.DEVNULL, start_new_session=True)",
        *map(str, first._arguments()),
    ]
    subprocess.run(bare, check=True, cwd=first.working_directory)
    until(first.answers)
    orphans = leftovers(first)
    assert orphans
    first._lock.release()
    with make(tmp_path / "engine") as second:
        connects(second)
        assert not any(is_running(process) for process in orphans)


@as_root
@pytest.mark.parametrize("uid", [65534, 54321], ids=["with a name", "without a name"])
def test_an_ordinary_user_runs_both_engines(tmp_path: Path, uid: int) -> None:
    # In a namespace of its own: the interpreter may be in a folder that no real other user can enter.
    become = ["unshare", "-U", f"--map-user={uid}", f"--map-group={uid}"]
    if subprocess.run([*become, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this system refuses user namespaces")
    with subprocess.Popen(
        [*become, sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        served = json.loads(owner.stdout.readline())
        with Redis.from_url(served["valkey"]) as client:
            assert client.ping()
        psycopg.connect(served["postgres"]).close()
        processes = [psutil.Process(pid) for pid in served["pids"]]
        owner.kill()
    until(lambda: not any(is_running(process) for process in processes))


@as_root
@pytest.mark.parametrize("isolation", ["namespace", "nobody"])
def test_root_runs_postgres_in_a_private_folder(tmp_path: Path, isolation: Isolation) -> None:
    engine = Postgres(tmp_path / "postgres", isolation=isolation)
    try:
        engine.start()
    except EngineError as error:
        if isolation == "namespace" and "refuses" in str(error):
            pytest.skip("this system refuses user namespaces")
        raise
    try:
        with psycopg.connect(engine.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        engine.kill()
        engine.start()
        connects(engine)
    finally:
        engine.stop()
        recorded = tmp_path / "postgres" / "data.path"
        if recorded.exists():
            shutil.rmtree(recorded.read_text())


@as_root
def test_nobody_runs_postgres_from_a_checkout_that_it_cannot_enter(
    open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = postgres.binaries().parent.parent
    for part in (wheel / "pginstall18", wheel.with_name(f"{wheel.name}.libs")):
        if part.exists():
            shutil.copytree(part, tmp_path / part.relative_to(wheel.parent), symlinks=True)
    monkeypatch.setattr(postgres, "binaries", lambda: tmp_path / wheel.name / "pginstall18" / "bin")
    with Postgres(open_folder / "postgres", isolation="nobody") as engine:
        connects(engine)
        assert Path(psutil.Process(engine.pid).exe()).is_relative_to(open_folder)


@as_root
def test_data_made_in_a_namespace_are_served_as_nobody_when_that_is_refused(open_folder: Path) -> None:
    with Postgres(open_folder / "postgres") as engine, psycopg.connect(engine.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    with (
        Postgres(open_folder / "postgres", isolation="nobody") as engine,
        psycopg.connect(engine.url) as connection,
    ):
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    with Postgres(open_folder / "postgres") as engine:
        connects(engine)


@both
def test_a_stopped_server_is_asked_politely(make: MakeEngine, tmp_path: Path) -> None:
    with make(tmp_path / "engine") as engine:
        server = psutil.Process(engine.pid)
        began = time.monotonic()
    assert not server.is_running()
    assert time.monotonic() - began < 5.0
    assert engine.stop_signal is not signal.SIGKILL
