"""As whom PostgreSQL runs, which refuses to run as root: in a user namespace, or as `nobody`."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from a2m_engines.errors import EngineError

Isolation = Literal["none", "namespace", "nobody"]

_NOBODY = 65534
_PROBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Account:
    """How to run a command so that it is not root: a prefix for it, or a (uid, gid) to become first."""

    isolation: Isolation
    prefix: tuple[str, ...] = ()
    user: tuple[int, int] | None = None


def account_for(folder: Path, wanted: Isolation | None = None) -> Account:
    """Choose the account for a server over `folder`; `wanted` insists on one, for tests.

    An ordinary user with a name needs nothing. Root, and a uid that has no name (a container started with
    `--user 1234`), get a user namespace in which they are uid 65534 while their files stay theirs, so that
    a 0700 folder works. Where the kernel or a container refuses that, root becomes `nobody`.
    """
    if wanted in (None, "none") and _is_ordinary_user():
        return Account("none")
    prefix = ("unshare", "-U", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}")
    if wanted in (None, "namespace") and _works([*prefix, "test", "-w", str(folder)]):
        return Account("namespace", prefix=prefix)
    if os.geteuid() == 0 and wanted in (None, "nobody"):
        return Account("nobody", user=_nobody())
    raise EngineError(
        "PostgreSQL runs neither as root nor as a user without a name, and this system refuses `unshare -U`: "
        "run as an ordinary user, or give the address of a PostgreSQL server"
    )


def reachable(path: Path, user: tuple[int, int]) -> bool:
    """Tell whether a user, through no group but the given one, can enter `path` and read what is in it."""
    return _works(["test", "-r", str(path), "-a", "-x", str(path)], user=user)


def _is_ordinary_user() -> bool:
    if os.geteuid() == 0:
        return False
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise EngineError("as root PostgreSQL runs as the user `nobody`, which this system lacks") from None
    return entry.pw_uid, entry.pw_gid


def _works(command: Sequence[str], user: tuple[int, int] | None = None) -> bool:
    if shutil.which(command[0]) is None:
        return False
    uid, gid = user or (None, None)
    try:
        finished = subprocess.run(  # noqa: S603 - a command of our own, without a shell
            command,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
            user=uid,
            group=gid,
            extra_groups=None if user is None else [],
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return finished.returncode == 0
