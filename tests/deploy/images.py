"""The services of a compose file in the images that were built, run by buildah in a chroot."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from compose_file import Service
from stack import Container

USER = 10001

Mounts = Callable[[Service], list[tuple[str, str, bool]]]


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Images:
    """A runner of `stack`; each service has one container of buildah, which `remove` gives up."""

    def __init__(self, settings: dict[str, dict[str, Any]], mounts: Mounts) -> None:
        """`settings` are those of the images by their names, `mounts` what a service has mounted."""
        self._settings = settings
        self._mounts = mounts
        self.containers: dict[str, str] = {}

    def remove(self) -> None:
        for container in self.containers.values():
            output("buildah", "rm", container)

    def path(self, view: Path, target: str) -> str:
        return target

    def volume(self, folder: Path) -> None:
        # As Docker does, which gives a new volume the owner that the folder has in the image.
        os.chown(folder, USER, USER)

    def command(self, container: Container) -> list[str]:
        """The image's entry point and what the file says after it; of a server the image's own command."""
        raw = container.service.raw
        settings = self._settings[raw["image"]]
        words = [*(settings.get("Entrypoint") or []), *container.command]
        if raw["build"]["target"] == "service":
            words = settings["Cmd"]
            assert words[-1] == 'exec python -m "a2m_${A2M_PACKAGE}"'
        return self._run(container, words)

    def probe(self, container: Container, test: Sequence[str]) -> list[str]:
        own = self._settings[container.service.raw["image"]]["Healthcheck"]["Test"]
        assert list(test[:3]) == own[1:]  # the file adds the URL, which the image has in A2M_READY
        return self._run(container, test)

    def environment(self, container: Container) -> dict[str, str]:
        return dict(os.environ)

    def terminate(self, container: Container) -> None:
        assert container.process is not None
        module = f"a2m_{container.service.name}"
        for process in psutil.Process(container.process.pid).children(recursive=True):
            if process.cmdline()[1:] == ["-m", module]:
                process.terminate()
                return
        container.process.terminate()  # it did not come so far

    def _run(self, container: Container, words: Sequence[str]) -> list[str]:
        service = container.service
        name = self.containers.get(service.name)
        if name is None:
            name = output("buildah", "from", "--pull-never", service.raw["image"])
            self.containers[service.name] = name
        options: list[str] = []
        for _, target, writable in self._mounts(service):
            place = (container.view / target.lstrip("/")).resolve()
            options += ["--volume", f"{place}:{target}{'' if writable else ':ro'}"]
        for _, target in service.configs:
            options += ["--volume", f"{container.view / target.lstrip('/')}:{target}:ro"]
        for key, value in container.environment.items():
            options += ["--env", f"{key}={value}"]
        return ["buildah", "run", *options, name, "--", *words]


def settings_of(image: str) -> dict[str, Any]:
    """What an image says of how it is run: `User`, `Cmd`, `Labels` and the rest."""
    return json.loads(output("buildah", "inspect", "--type", "image", image))["Docker"]["config"]


def shell(container: str, script: str) -> list[str]:
    """The lines that a script prints in a container, whatever its status."""
    return output("buildah", "run", container, "--", "sh", "-c", f"{script}; true").splitlines()
