"""Locks versions with hashes and without addresses: one file for the workspace, one an image, one to build.

`--check` says whether the lock files still answer to the manifests, without asking a registry.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / "tools" / "locks.sum"
VARIANTS = {"router": ("local",)}
"""Extras with which a deployable has an image of its own."""
OPTIONS = (
    "--universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet"
)


def main() -> None:
    members = {_name(folder): folder for folder in _members()}
    if sys.argv[1:] == ["--check"]:
        if not STATE.exists() or STATE.read_text() != _digest(members):
            raise SystemExit("the lock files are older than a pyproject.toml: run `make lock`")
        print("locks: up to date")
        return
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    hidden = [word for name in members for word in ("--no-emit-package", name)]
    _compile(uv, ["pyproject.toml", "--group", "dev"], "requirements.lock", hidden)
    constraint = ["--constraint", "requirements.lock"]
    _compile(uv, ["--group", "build", *constraint], "tools/build.lock", [])
    for folder in members.values():
        if folder.parent.name != "libs":
            relative = folder.relative_to(ROOT)
            sources = [f"{relative}/pyproject.toml", *constraint]
            _compile(uv, sources, f"{relative}/requirements.lock", hidden)
            for extra in VARIANTS.get(folder.name, ()):
                target = f"{relative}/requirements-{extra}.lock"
                _compile(uv, [*sources, "--extra", extra], target, hidden)
    STATE.write_text(_digest(members))


def _members() -> list[Path]:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    return sorted(found.parent for p in patterns for found in ROOT.glob(f"{p}/pyproject.toml"))


def _name(folder: Path) -> str:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]


def _compile(uv: str, sources: list[str], target: str, hidden: list[str]) -> None:
    print(f"locking {target}", flush=True)
    command = [uv, "pip", "compile", *sources, *OPTIONS.split(), *hidden, "-o", target]
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 our own words
    text = (ROOT / target).read_text()
    if re.search(r"https?://|file:", text):
        raise SystemExit(f"{target} names an address")


def _digest(members: dict[str, Path]) -> str:
    """What the lock files answer to: the dependencies that the manifests ask for, and what overrides them."""
    asked: list[str] = []
    for folder in [ROOT, *members.values()]:
        manifest = tomllib.loads((folder / "pyproject.toml").read_text())
        project = manifest["project"]
        wanted = [*project.get("dependencies", [])]
        for table in (manifest.get("dependency-groups", {}), project.get("optional-dependencies", {})):
            wanted += [f"{name}: {one}" for name, group in table.items() for one in group]
        wanted += manifest.get("tool", {}).get("uv", {}).get("override-dependencies", [])
        asked.append(f"{project['name']}: {sorted(wanted)}")
    return hashlib.sha256("\n".join(sorted(asked)).encode()).hexdigest() + "\n"


if __name__ == "__main__":
    main()
