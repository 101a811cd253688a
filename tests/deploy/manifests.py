"""The manifests of Kubernetes as objects."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from compose_file import ROOT

KUBERNETES = ROOT / "deploy/kubernetes"
BASE = KUBERNETES / "base"
SERVICES = ("router", "working", "episodic", "semantic", "procedural")
FOLDERS = (*SERVICES, "semantic-embedded")

Manifest = dict[str, Any]


def base(folder: str) -> list[Manifest]:
    """The objects of one service's folder in the base."""
    return list(yaml.safe_load_all((BASE / folder / f"{folder}.yaml").read_text()))


def one(objects: list[Manifest], kind: str, name: str | None = None) -> Manifest:
    (found,) = (o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"]))
    return found


def workload(objects: list[Manifest]) -> Manifest:
    (found,) = (o for o in objects if o["kind"] in ("Deployment", "StatefulSet"))
    return found


def container(objects: list[Manifest]) -> Manifest:
    return workload(objects)["spec"]["template"]["spec"]["containers"][0]


def run(*command: str | Path) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def tool(name: str) -> ModuleType:
    """A script of `tools/` as a module."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for themselves
    spec.loader.exec_module(module)
    return module


def by_name(objects: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}
