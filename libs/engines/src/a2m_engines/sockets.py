"""A private folder for a Unix socket whose path the kernel and the clients accept."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

LONGEST_SOCKET_PATH = 103
"""Bytes of a socket's path that every system takes: 103 on macOS, 107 on Linux."""

_PREFIX = "a2m-"


def socket_folder(home: Path, socket_name: str, *, owner: int | None = None) -> Path:
    """Return a 0700 folder for a socket: `home/run`, or a short temporary one when that path cannot be used.

    The choice is recorded in `home/run.path`, so that a later start uses the same folder and
    `remove_socket_folder` finds it. `owner` is the uid to give the folder to.
    """
    folder = home / "run"
    # libpq takes a host for a list, so no address can name a folder with a comma in it.
    if len(os.fsencode(folder / socket_name)) > LONGEST_SOCKET_PATH or "," in str(folder):
        folder = _recorded(home, owner) or _short()
        _record(home).write_text(str(folder), encoding="utf-8")
    else:
        folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    if owner is not None:
        os.chown(folder, owner, -1)
    return folder


def remove_socket_folder(home: Path, *, owner: int | None = None) -> None:
    """Remove the temporary socket folder that `home` recorded, if there is one."""
    folder = _recorded(home, owner)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    _record(home).unlink(missing_ok=True)


def _record(home: Path) -> Path:
    return home / "run.path"


def _recorded(home: Path, owner: int | None) -> Path | None:
    """Read the recorded folder, but believe in it only while it is a folder that only we or `owner` can use.

    Temporary folders are shared: after a restart of the machine the name may belong to somebody else.
    """
    try:
        folder = Path(_record(home).read_text(encoding="utf-8"))
        status = folder.lstat()
    except FileNotFoundError:
        return None
    private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    ours = status.st_uid in (os.geteuid(), owner)
    return folder if private and ours and folder.name.startswith(_PREFIX) else None


def _short() -> Path:
    base = tempfile.gettempdir()
    # A temporary folder may be deep itself; every Unix has the short one.
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base if len(os.fsencode(base)) <= 60 else "/tmp"))  # noqa: S108
