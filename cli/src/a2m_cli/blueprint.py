"""What a federation of embedded engines consists of: pure, from a folder, a port and the tiers wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from a2m_cli.configuration import Configuration
from a2m_cli.options import ACCESS

PORT_BASE = 8778
HOST = "127.0.0.1"
ROUTER = "router"

_OFFSETS = {ROUTER: 0, "working": 3, "episodic": 4, "semantic": 5, "procedural": 6}
TIERS = tuple(name for name in _OFFSETS if name != ROUTER)
_LAST_PORT = 65_535

Scalar = str | int | bool

_POLICY: Mapping[str, Mapping[str, Scalar]] = {
    "working": {"capacity": 20, "per_session": True, "spill_to": "episodic"},
    "episodic": {"promote_to": "semantic", "promote_after": 3},
}
_NEEDS = {"spill_to": ("capacity", "per_session", "spill_to"), "promote_to": ("promote_to", "promote_after")}


class BlueprintError(ValueError):
    """What was asked for is no federation; the message says why."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Where everything of a federation is; `tiers` is in the order of the chain.

    With `auth` the router takes nobody without a token; with `redact` it takes credentials out of what is
    written.
    """

    data: Path
    port_base: int = PORT_BASE
    tiers: tuple[str, ...] = TIERS
    policy: Mapping[str, Mapping[str, Scalar]] = field(default_factory=lambda: _POLICY)
    configuration: Configuration | None = None
    auth: bool = False
    redact: bool = False

    @classmethod
    def of(
        cls,
        data: Path,
        port_base: int,
        configuration: Configuration,
        *,
        auth: bool = False,
        redact: bool = False,
    ) -> Self:
        """The federation of a configuration: its embedded tiers are run, and its policy is taken as it is."""
        tiers = tuple(kind for kind in TIERS if kind in configuration.embedded)
        return cls(data, port_base, tiers, configuration=configuration, auth=auth, redact=redact)

    def __post_init__(self) -> None:
        if not 1 <= self.port_base <= _LAST_PORT - max(_OFFSETS.values()):
            raise BlueprintError(f"--port-base {self.port_base}: choose one that leaves room for 7 ports")

    @property
    def services(self) -> tuple[str, ...]:
        """The processes of ours: the tiers, then the router."""
        return (*self.tiers, ROUTER)

    def port(self, service: str) -> int:
        return self.port_base + _OFFSETS[service]

    def url(self, service: str) -> str:
        return f"http://{HOST}:{self.port(service)}"

    @property
    def ports(self) -> dict[str, int]:
        return {service: self.port(service) for service in self.services}

    @property
    def urls(self) -> dict[str, str]:
        return {service: self.url(service) for service in (ROUTER, *self.tiers)}

    @property
    def config_file(self) -> Path:
        return self.data / "federation.yaml"

    @property
    def token_file(self) -> Path:
        return self.data / "token"

    @property
    def principals_file(self) -> Path:
        return self.data / "principals.json"

    @property
    def audit_file(self) -> Path:
        return self.data / "audit.jsonl"

    @property
    def own_token_file(self) -> Path:
        """The token of who runs this federation."""
        return self.data / "you.token"

    @property
    def access_file(self) -> Path:
        """Where the commands find that token."""
        return self.data / ACCESS

    def folder(self, name: str) -> Path:
        """Where an engine or a tier with an engine in its process keeps its files."""
        return self.data / name

    def settings(self, service: str, engine_url: str | None = None) -> dict[str, str]:
        """The environment of a service; `engine_url` is where its engine listens, if it has one."""
        prefix = f"A2M_{service.upper()}_"
        values = {"HOST": HOST, "PORT": str(self.port(service))}
        if service == ROUTER:
            values |= {"CONFIG": str(self.config_file), "TIER_TOKEN_FILE": str(self.token_file)}
            values |= {"REDACT": "credentials"} if self.redact else {}
            if self.auth:
                values |= {"PRINCIPALS_FILE": str(self.principals_file), "AUDIT_FILE": str(self.audit_file)}
        else:
            values["TOKEN_FILE"] = str(self.token_file)
            values |= {"REQUIRE_TOKEN": "true"} if self.auth else {}
            if engine_url is None:
                values["PATH"] = str(self.folder(service))
            else:
                values["URL"] = engine_url
        return {prefix + name: value for name, value in values.items()}

    def config(self) -> str:
        """The router's `federation.yaml`."""
        lines = ["# Written by `a2m up` at every start: what is changed here does not stay."]
        if self.configuration is not None:
            lines += [f"# It comes from {self.configuration.path}", self.configuration.text(self.urls)]
            return "\n".join(lines)
        lines += ["name: a2m", "tiers:"]
        for tier in self.tiers:
            lines += [f"  - name: {tier}", f"    kind: {tier}", f"    url: {self.url(tier)}"]
            lines += [f"    {name}: {_yaml(value)}" for name, value in self._policy(tier).items()]
        return "\n".join(lines) + "\n"

    def _policy(self, tier: str) -> dict[str, Scalar]:
        """The policy of a tier, without the links to tiers that are left out.

        A tier with nothing below it has no capacity either: what is over it would be dropped.
        """
        policy = dict(self.policy.get(tier, {}))
        for link, names in _NEEDS.items():
            if policy.get(link) not in self.tiers:
                for name in names:
                    policy.pop(name, None)
        return policy


def parse_tiers(text: str) -> tuple[str, ...]:
    """Tiers from a list with commas, in the order of the chain; raises `BlueprintError`."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in TIERS:
            raise BlueprintError(f"--tiers: there is no tier {name!r}; there are {', '.join(TIERS)}")
    if "working" not in wanted:
        raise BlueprintError("--tiers: `working` is needed, because that is where records land")
    return tuple(name for name in TIERS if name in wanted)


def _yaml(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
