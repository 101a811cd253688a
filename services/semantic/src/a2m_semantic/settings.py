"""Settings of the semantic service: environment variables `A2M_SEMANTIC_<NAME>`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from a2m_protocol.types import MAX_WIDTH
from a2m_retrieval.metric import Metric
from a2m_server.settings import Seconds, ServerSettings


class SemanticSettings(ServerSettings):
    """Where the vectors are and how they compare.

    With `url`, a Qdrant server or cluster (its key in the file `api_key_file`); without, Qdrant Edge in the
    folder `path`. `dimensions` fixes the width of vectors; else the first vector does. `metric` and
    `dimensions` cannot change once the store is made. `flush_seconds` is the longest that Edge leaves what is
    written in its log alone.
    """

    model_config = SettingsConfigDict(env_prefix="A2M_SEMANTIC_", frozen=True, hide_input_in_errors=True)

    port: Annotated[int, Field(ge=0, le=65_535)] = 8783
    url: str | None = None
    path: Path = Path(".a2m/semantic")
    api_key_file: Path | None = None
    collection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")] = "a2m_semantic"
    dimensions: Annotated[int, Field(ge=1, le=MAX_WIDTH)] | None = None
    metric: Metric = "cosine"
    tombstone_days: Annotated[float, Field(gt=0)] = 30.0
    flush_seconds: Seconds = 10.0
    timeout: Annotated[int, Field(gt=0)] = 10
