"""Settings of the router."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from a2m_retrieval.cross import RerankSettings
from a2m_retrieval.embed.settings import EmbeddingSettings
from a2m_server.settings import Seconds, ServerSettings


class RouterSettings(ServerSettings):
    """`config` is a `federation.yaml`; without one the four tiers are looked for on their default ports.

    `tier_token_file` holds the bearer token that the tiers believe. `tier_timeout` bounds each call to a
    tier, `probe_interval` is the pause between two looks for a tier that does not answer, and
    `sweep_interval` that between two looks at everything, all in seconds. `coordination_url` names the Redis
    or Valkey that several routers over the same tiers share; a router that dies keeps the others waiting for
    `lease_seconds` at most. `embedding` chooses what makes vectors (`A2M_ROUTER_EMBEDDING__KIND`),
    `rerank` names a cross-encoder (`A2M_ROUTER_RERANK__URL`), where there is one. In `places_file`, by
    default `federation.yaml.places.json` beside `config`, is kept where `a2m migrate` has moved tiers to.
    """

    model_config = SettingsConfigDict(
        env_prefix="A2M_ROUTER_", env_nested_delimiter="__", frozen=True, hide_input_in_errors=True
    )

    port: Annotated[int, Field(ge=0, le=65_535)] = 8778
    config: Path | None = None
    places_file: Path | None = None
    tier_token_file: Path | None = None
    tier_timeout: Seconds = 10.0
    tier_retries: Annotated[int, Field(ge=0, le=20)] = 2
    probe_interval: Seconds = 1.0
    sweep_interval: Seconds = 30.0
    coordination_url: SecretStr | None = None
    lease_seconds: Seconds = 10.0
    embedding: EmbeddingSettings = EmbeddingSettings()
    rerank: RerankSettings = RerankSettings()

    @property
    def places(self) -> Path | None:
        """Where it is kept to which URL a tier was moved: beside the configuration unless it is named."""
        if self.places_file is not None or self.config is None:
            return self.places_file
        return self.config.with_name(f"{self.config.name}.places.json")

    @property
    def shared_url(self) -> str | None:
        return None if self.coordination_url is None else self.coordination_url.get_secret_value()
