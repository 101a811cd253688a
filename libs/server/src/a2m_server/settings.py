"""Settings that every server has."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Words = Annotated[tuple[str, ...], NoDecode]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ServerSettings(BaseSettings):
    """How a server listens. A service subclasses it with a prefix, a port and settings of its own.

    Lists are separated by commas in the environment. Times are seconds, sizes bytes.
    """

    model_config = SettingsConfigDict(env_prefix="A2M_SERVER_", frozen=True, hide_input_in_errors=True)

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8780
    token_file: Path | None = None
    allow_unauthenticated_remote: bool = False
    origins: Words = ()
    hosts: Words = ()
    max_body: Annotated[int, Field(ge=1_024)] = 32 * 1024 * 1024
    body_timeout: Seconds = 30.0
    request_timeout: Seconds = 30.0
    ready_timeout: Seconds = 2.0
    shutdown_timeout: Annotated[int, Field(ge=0)] = 10
    keep_alive: Annotated[int, Field(gt=0)] = 75
    max_connections: Annotated[int, Field(gt=0)] = 1_000
    backlog: Annotated[int, Field(gt=0)] = 512
    log_level: str = "info"

    @field_validator("origins", "hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(word.strip().lower() for word in value.split(",") if word.strip())
        return value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in _LEVELS:
            raise ValueError(f"is none of {', '.join(_LEVELS)}")
        return value.lower()

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if self.token_file is None and not self.allow_unauthenticated_remote and not is_loopback(self.host):
            prefix = self.model_config.get("env_prefix", "")
            raise ValueError(
                f"refusing to listen on {self.host} without authentication: set {prefix}TOKEN_FILE to a file "
                f"that holds a bearer token, or listen on 127.0.0.1, or, where the network is closed, set "
                f"{prefix}ALLOW_UNAUTHENTICATED_REMOTE=true"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether everything that a host name or address stands for is this machine's loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


_LEVELS = ("debug", "info", "warning", "error", "critical")
