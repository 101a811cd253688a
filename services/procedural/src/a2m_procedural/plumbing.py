"""git commands through GitPython's `Git`, in an environment of our own.

Nothing here reads a person's or the system's configuration, runs a hook, asks on a terminal or signs, and no
`GIT_` variable of this process reaches git. The repository's own configuration applies, but for what is set
here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any, cast

from git import Git

TIMEOUT = 60.0

_CONFIG = {
    "safe.directory": "*",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.logAllRefUpdates": "true",
    "core.quotePath": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "i18n.commitEncoding": "UTF-8",
}


class GitError(Exception):
    """git refused a command; the text is what it said."""


class Plumbing:
    """Runs git for one thread in a folder, with `env` (such as GIT_DIR) beside what is always set."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._git = Git(str(folder))
        self._env: dict[str, str] = {**_environment(), **env}
        self._lent: tuple[int, ...] = ()

    def lend(self, descriptor: int | None) -> None:
        """Let the children of following commands inherit a descriptor, that of the write lock."""
        self._lent = () if descriptor is None else (descriptor,)

    def run(
        self,
        *arguments: str,
        data: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> bytes:
        """What a git command prints, or `GitError` with what it complained of."""
        given = {**self._env, **(env or {})}
        unset = [name for name in os.environ if name.startswith("GIT_") and name not in given]
        # GitPython passes this process's environment on; only `env` can take a variable out of it.
        scrub = ["env", *(word for name in unset for word in ("-u", name))] if unset else []
        child: Any = self._git.execute(
            [*scrub, Git.GIT_PYTHON_GIT_EXECUTABLE or "git", *arguments],
            istream=cast("Any", PIPE),
            as_process=True,
            env=given,
            pass_fds=self._lent,
        )
        process: subprocess.Popen[bytes] = child.proc
        try:
            out, err = process.communicate(data, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise GitError(f"git {arguments[0]} did not end within {timeout:g} s") from error
        if process.returncode:
            said = err.decode(errors="replace").strip()
            raise GitError(f"git {arguments[0]}: {said or f'status {process.returncode}'}")
        return out

    def ask(self, *arguments: str) -> str:
        """What a git command prints, or nothing when it refuses."""
        try:
            return self.run(*arguments).decode().strip()
        except GitError:
            return ""


def _environment() -> dict[str, str]:
    given = {
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    }
    for at, (name, value) in enumerate(_CONFIG.items()):
        given |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return given
