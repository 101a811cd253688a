"""Settings of the episodic service, from `A2M_EPISODIC_*` variables."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from a2m_protocol.types import MAX_WIDTH
from a2m_retrieval.metric import Metric
from a2m_server.settings import Seconds, ServerSettings


class EpisodicSettings(ServerSettings):
    """Where the database is and how to use it.

    `url` is a libpq connection string (a URI or `key=value` pairs). `dimensions` fixes the width of vectors;
    without it the first vector does. `pool_wait` is how long a call waits for a free connection,
    `pool_waiting` how many calls may.
    """

    model_config = SettingsConfigDict(env_prefix="A2M_EPISODIC_", frozen=True, hide_input_in_errors=True)

    port: Annotated[int, Field(ge=0, le=65_535)] = 8782
    name: Annotated[str, Field(min_length=1)] = "episodic"
    url: SecretStr = SecretStr("postgresql://localhost/a2m")
    dimensions: Annotated[int, Field(ge=1, le=MAX_WIDTH)] | None = None
    metric: Metric = "cosine"
    tombstone_days: Annotated[float, Field(gt=0)] = 30.0
    pool_min: Annotated[int, Field(ge=1)] = 2
    pool_max: Annotated[int, Field(ge=1)] = 10
    pool_wait: Seconds = 5.0
    pool_waiting: Annotated[int, Field(ge=1)] = 200
    statement_timeout: Seconds = 30.0
    maintenance_interval: Seconds = 10.0

    @property
    def service(self) -> str:
        return self.name
