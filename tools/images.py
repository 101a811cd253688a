"""Builds the images, by docker where it answers and by buildah elsewhere: `make images`.

`images.py base` makes a base image by debootstrap, for machines that reach no image registry. Without names
all images are built; their sizes are printed at the end. What the build is given by the environment:

BASE            the image to start from (the Dockerfile says which otherwise)
A2M_REGISTRY    what their names begin with (`a2m`), A2M_VERSION their tag (that of the workspace)
BUILD_CA        a file of certificate authorities to trust; by default the system's own
BUILD_PIP_CONF  a pip.conf, BUILD_UV_TOML a uv.toml: the package index to use. Neither stays in an image
PLATFORM        such as linux/amd64,linux/arm64 (docker with buildx, or buildah with emulation)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = "localhost/a2m-base"
SUITE = "bookworm"
IN_BASE = "python3,python3-venv,ca-certificates"
AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


@dataclass(frozen=True)
class Image:
    """`package` is a folder of services/, or router or cli; `extra` one of its optional dependencies."""

    package: str
    port: int | None = None
    extra: str = ""

    @property
    def name(self) -> str:
        return f"{self.package}-{self.extra}" if self.extra else self.package

    @property
    def target(self) -> str:
        return "tool" if self.port is None else "service"

    def arguments(self) -> dict[str, str]:
        return {
            "PACKAGE": self.package,
            **({"EXTRA": self.extra} if self.extra else {}),
            **({"PORT": str(self.port)} if self.port else {}),
        }


IMAGES = (
    Image("working", 8781),
    Image("episodic", 8782),
    Image("semantic", 8783),
    Image("procedural", 8784),
    Image("router", 8778),
    Image("router", 8778, extra="local"),
    Image("cli"),
)


def main() -> None:
    wanted = sys.argv[1:]
    known = {image.name: image for image in IMAGES}
    unknown = [name for name in wanted if name not in known and name != "base"]
    if unknown:
        raise SystemExit(f"no image {unknown[0]!r}: there are base, {', '.join(known)}")
    program = builder()
    if "base" in wanted:
        make_base(program)
        wanted.remove("base")
        if not wanted:
            return
    images = [known[name] for name in wanted] or [*IMAGES]
    for image in images:
        print(f"building {tag_of(image)} by {program}", flush=True)
        build(program, image)
    print_sizes(program, images)


def builder() -> str:
    """`docker` where its engine answers, else `buildah`; raises `SystemExit` where there is neither."""
    if shutil.which("docker") and _succeeds("docker", "version", "--format", "{{.Server.Version}}"):
        return "docker"
    if shutil.which("buildah"):
        return "buildah"
    raise SystemExit("no Docker engine answers and there is no buildah: install one of them")


def tag_of(image: Image) -> str:
    return f"{os.environ.get('A2M_REGISTRY', 'a2m')}/{image.name}:{version()}"


def version() -> str:
    manifest = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return os.environ.get("A2M_VERSION") or str(manifest["project"]["version"])


def build(program: str, image: Image) -> None:
    revision = _said("git", "rev-parse", "HEAD") or "unknown"
    arguments = {
        **image.arguments(),
        "VERSION": version(),
        "REVISION": revision,
        "CREATED": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if base := os.environ.get("BASE"):
        arguments["BASE"] = base
    platform = os.environ.get("PLATFORM", "")
    # Of several platforms buildah makes a list, which it names by another option.
    naming = "--manifest" if program == "buildah" and "," in platform else "--tag"
    command = [program, "build", "--file", "Dockerfile", "--target", image.target, naming, tag_of(image)]
    if platform:
        command += ["--platform", platform]
    if program == "buildah":
        # OCI's own format has no health check. Each layer is a whole copy where the storage is plain folders.
        layers = os.environ.get("STORAGE_DRIVER") != "vfs"
        command += ["--format", "docker", f"--layers={str(layers).lower()}"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    for name, path in _secrets().items():
        command += ["--secret", f"id={name},src={path}"]
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    finished = subprocess.run([*command, "."], cwd=ROOT, env=environment, check=False)  # noqa: S603 our own words
    if finished.returncode:
        raise SystemExit(f"{tag_of(image)} was not built")


def _secrets() -> dict[str, str]:
    authorities = os.environ.get("BUILD_CA") or next((p for p in AUTHORITIES if Path(p).is_file()), None)
    named = {
        "ca": authorities,
        "pip": os.environ.get("BUILD_PIP_CONF"),
        "uv": os.environ.get("BUILD_UV_TOML"),
    }
    return {name: path for name, path in named.items() if path}


def make_base(program: str) -> None:
    """A Debian with Python, from Debian's packages alone."""
    if program != "buildah":
        raise SystemExit("docker takes its base from a registry: `base` is for buildah")
    with tempfile.TemporaryDirectory(prefix="a2m-base.") as folder:
        root = Path(folder) / "root"
        _run("debootstrap", "--variant=minbase", f"--include={IN_BASE}", SUITE, str(root))
        for leftover in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
            shutil.rmtree(root / leftover)
            (root / leftover).mkdir()
        (root / "var/lib/apt/lists/partial").mkdir()
        (root / "var/cache/apt/archives/partial").mkdir(parents=True)
        container = _output("buildah", "from", "scratch")
        try:
            _run("buildah", "add", "--quiet", container, str(root), "/")
            _run("buildah", "commit", "--quiet", container, BASE)
        finally:
            _run("buildah", "rm", container)
    print(f"made {BASE}: name it as BASE")


def print_sizes(program: str, images: list[Image]) -> None:
    """The megabytes of each image, and what it has above its base where that is known."""
    base = os.environ.get("BASE")
    below = size(program, base) if base else None
    print(f"{'image':32} {'MB':>6} {'above its base':>15}")
    for image in images:
        whole = size(program, tag_of(image))
        above = f"{(whole - below) / 1e6:.0f}" if below is not None else "(name BASE)"
        print(f"{tag_of(image):32} {whole / 1e6:6.0f} {above:>15}")


def size(program: str, name: str) -> int:
    """The bytes of the files of an image."""
    if program == "docker":
        return int(_output("docker", "image", "inspect", "--format", "{{.Size}}", name))
    container = _output("buildah", "from", "--pull-never", name)
    try:
        root = _output("buildah", "mount", container)
        return int(_output("du", "--summarize", "--bytes", "--one-file-system", root).split()[0])
    finally:
        _run("buildah", "rm", container)


def settings_of(program: str, name: str) -> dict[str, object]:
    """What an image says of how it is run: `Env`, `User`, `Cmd`, `Healthcheck`, `Labels` and the rest."""
    if program == "docker":
        return dict(json.loads(_output("docker", "image", "inspect", name))[0]["Config"])
    return dict(json.loads(_output("buildah", "inspect", "--type", "image", name))["Docker"]["config"])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 our own words


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603 our own words


def _said(*command: str) -> str:
    finished = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 our own words
    return finished.stdout.strip() if finished.returncode == 0 else ""


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603 our own words


if __name__ == "__main__":
    main()
