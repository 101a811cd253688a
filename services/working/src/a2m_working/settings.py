"""Settings of the working tier, from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from a2m_retrieval.metric import Metric
from a2m_server.settings import ServerSettings

Layout = Literal["auto", "single", "cluster"]


class WorkingSettings(ServerSettings):
    """`A2M_WORKING_*`: how to reach Redis, and what the tier keeps.

    `url` is `redis://`, `rediss://` or `unix://`, of a server or of any node of a Cluster; `password_file`
    holds its password, where the URL does not. `layout` follows from what the server is unless set. Times are
    seconds but for `tombstone_days`.
    """

    model_config = SettingsConfigDict(env_prefix="A2M_WORKING_", frozen=True, hide_input_in_errors=True)

    port: Annotated[int, Field(ge=0, le=65_535)] = 8781
    name: Annotated[str, Field(min_length=1)] = "working"
    url: str = "redis://127.0.0.1:6379/0"
    password_file: Path | None = None
    prefix: Annotated[str, Field(pattern=r"^[^{}\x00]*$")] = "a2m:"
    layout: Layout = "auto"
    tombstone_days: Annotated[float, Field(gt=0, le=3_650)] = 30.0
    dimensions: Annotated[int, Field(ge=1, le=4_000)] | None = None
    metric: Metric = "cosine"
    connect_timeout: Annotated[float, Field(gt=0)] = 2.0
    command_timeout: Annotated[float, Field(gt=0)] = 15.0
    max_redis_connections: Annotated[int, Field(ge=1)] = 64

    @property
    def service(self) -> str:
        return self.name
