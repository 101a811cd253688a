"""`docker-compose.yml` as Compose reads it: variables put in, what is inherited merged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"

_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::-([^}]*))?\})")
_DURATION = re.compile(r"(\d+)(ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class Health:
    """A health check; times are in seconds."""

    test: tuple[str, ...]
    interval: float
    timeout: float
    retries: int
    start_period: float
    start_interval: float


@dataclass(frozen=True)
class Service:
    """A service as the file has it; `mounts` are (source, target, writable)."""

    name: str
    raw: Mapping[str, Any]

    @property
    def command(self) -> list[str]:
        return [str(word) for word in self.raw.get("command", [])]

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.raw.get("environment", {}).items()}

    @property
    def ours(self) -> bool:
        return "build" in self.raw

    @property
    def profiles(self) -> list[str]:
        return self.raw.get("profiles", [])

    @property
    def restart(self) -> str:
        return self.raw.get("restart", "no")

    @property
    def depends_on(self) -> dict[str, str]:
        return {name: one["condition"] for name, one in self.raw.get("depends_on", {}).items()}

    @property
    def networks(self) -> set[str]:
        return set(self.raw.get("networks", []))

    @property
    def mounts(self) -> list[tuple[str, str, bool]]:
        found: list[tuple[str, str, bool]] = []
        for text in self.raw.get("volumes", []):
            source, target, *rest = text.split(":")
            found.append((source, target, rest != ["ro"]))
        return found

    @property
    def configs(self) -> list[tuple[str, str]]:
        return [(one["source"], one["target"]) for one in self.raw.get("configs", [])]

    @property
    def grace(self) -> float:
        return seconds(self.raw.get("stop_grace_period", "10s"))

    @property
    def health(self) -> Health | None:
        raw = self.raw.get("healthcheck")
        if raw is None:
            return None
        return Health(
            tuple(raw["test"]),
            seconds(raw["interval"]),
            seconds(raw["timeout"]),
            raw["retries"],
            seconds(raw["start_period"]),
            seconds(raw["start_interval"]),
        )


@dataclass(frozen=True)
class ComposeFile:
    services: dict[str, Service]
    raw: Mapping[str, Any]

    @property
    def default(self) -> dict[str, Service]:
        """What `docker compose up` starts: the services without a profile."""
        return {name: service for name, service in self.services.items() if not service.profiles}

    def config(self, name: str) -> Path:
        return ROOT / self.raw["configs"][name]["file"]


def load(environment: Mapping[str, str] | None = None) -> ComposeFile:
    """The file with the variables of `environment`, by default none."""
    raw = _filled(yaml.safe_load(FILE.read_text()), environment or {})
    return ComposeFile({name: Service(name, one) for name, one in raw["services"].items()}, raw)


def seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    assert match is not None, text
    return int(match[1]) * _SECONDS[match[2]]


def _filled(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda m: "$" if m[1] else environment.get(m[2]) or m[3] or "", value)
    if isinstance(value, dict):
        return {name: _filled(one, environment) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, environment) for one in value]
    return value
