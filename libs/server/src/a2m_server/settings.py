"""Settings that every server has."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from a2m_server.logs import Format
from a2m_server.oidc import OidcSettings
from a2m_server.quota import quotas_of
from a2m_server.rates import rates_of
from a2m_server.redaction import Redaction

Words = Annotated[tuple[str, ...], NoDecode]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ServerSettings(BaseSettings):
    """How a server listens. A service subclasses it with a prefix, a port and settings of its own.

    Lists are separated by commas in the environment. Times are seconds, sizes bytes. `principals_file` and
    `oidc` (`A2M_SERVER_OIDC__ISSUER`) make every caller show who it is. With a `token_file` alone, who shows
    nothing sees pooled records, unless `require_token`. In `audit_file`, one for each server, is noted who
    wrote, removed or was denied what. `rate` bounds how often each principal may call, such as `50/second` or
    `20/second; 10000/hour`. `quota` bounds the bytes that each principal's owner may hold for it to write,
    such as `100MB`, or by role `agent=100MB; curator=2GB`. `redact` set to `credentials` takes those out of
    what is written. For `drain_seconds` after a SIGTERM a server goes on while `/readyz` says no, so that
    who balances loads finds out; then it has `shutdown_timeout` to finish what it began. Log lines are for
    people (`text`) or an object each (`json`).
    """

    model_config = SettingsConfigDict(
        env_prefix="A2M_SERVER_", env_nested_delimiter="__", frozen=True, hide_input_in_errors=True
    )

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8780
    token_file: Path | None = None
    require_token: bool = False
    principals_file: Path | None = None
    oidc: OidcSettings = OidcSettings()
    audit_file: Path | None = None
    rate: str | None = None
    quota: str | None = None
    redact: Redaction = "off"
    allow_unauthenticated_remote: bool = False
    origins: Words = ()
    hosts: Words = ()
    max_body: Annotated[int, Field(ge=1_024)] = 32 * 1024 * 1024
    header_timeout: Seconds = 10.0
    body_timeout: Seconds = 30.0
    request_timeout: Seconds = 30.0
    ready_timeout: Seconds = 2.0
    drain_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0.0
    shutdown_timeout: Annotated[int, Field(ge=0)] = 10
    keep_alive: Annotated[int, Field(gt=0)] = 75
    max_connections: Annotated[int, Field(gt=0)] = 1_000
    backlog: Annotated[int, Field(gt=0)] = 512
    log_level: str = "info"
    log_format: Format = "text"

    @field_validator("origins", "hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(word.strip().lower() for word in value.split(",") if word.strip())
        return value

    @field_validator("rate")
    @classmethod
    def _known_rate(cls, value: str | None) -> str | None:
        try:
            return value if value is None or rates_of(value) else None
        except ValueError:
            raise ValueError("expected a rate such as 50/second, or several with ; between them") from None

    @field_validator("quota")
    @classmethod
    def _known_quota(cls, value: str | None) -> str | None:
        try:
            return value if value is None or quotas_of(value) else None
        except ValueError:
            raise ValueError("expected a size such as 100MB, or sizes by role: agent=1GB; 100MB") from None

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in _LEVELS:
            raise ValueError(f"is none of {', '.join(_LEVELS)}")
        return value.lower()

    @model_validator(mode="after")
    def _safe(self) -> Self:
        open_to_all = self.token_file is None and not self.keeps_owners_apart
        if open_to_all and self.require_token:
            raise ValueError("require_token needs a token_file, a principals_file or an issuer")
        if open_to_all and not self.allow_unauthenticated_remote and not is_loopback(self.host):
            prefix = self.model_config.get("env_prefix", "")
            raise ValueError(
                f"refusing to listen on {self.host} without authentication: set {prefix}PRINCIPALS_FILE to "
                f"the file that `a2m token create` writes, {prefix}TOKEN_FILE to one that holds a bearer "
                f"token, or {prefix}OIDC__ISSUER, or listen on 127.0.0.1; "
                f"{prefix}ALLOW_UNAUTHENTICATED_REMOTE=true overrides this, and then whoever "
                "can connect reads, changes and deletes all pooled records"
            )
        return self

    @property
    def shared_url(self) -> str | None:
        """Of the Redis in which servers of one kind count the calls of a principal together."""
        return None

    @property
    def service(self) -> str:
        """What the server is called in logs, metrics and traces; a tier by its name."""
        prefix = str(self.model_config.get("env_prefix", ""))
        return prefix.removeprefix("A2M_").strip("_").lower()

    @property
    def keeps_owners_apart(self) -> bool:
        """Whether callers are told apart, so that none is taken without a credential."""
        return self.principals_file is not None or self.oidc.configured


def is_loopback(host: str) -> bool:
    """Whether everything that a host name or address stands for is this machine's loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


_LEVELS = ("debug", "info", "warning", "error", "critical")
