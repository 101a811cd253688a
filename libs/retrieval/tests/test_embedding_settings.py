"""Which embedder settings make, and which of them are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from a2m_retrieval.embed.local import LocalEmbedder
from a2m_retrieval.embed.openai import OpenAIEmbedder
from a2m_retrieval.embed.settings import EmbeddingSettings, embedder

ENDPOINT = {"kind": "openai", "url": "http://127.0.0.1:11434/v1", "model": "nomic-embed-text"}


def test_by_default_there_is_no_embedder() -> None:
    assert embedder(EmbeddingSettings()) is None


def test_each_kind_makes_its_embedder(tmp_path: Path) -> None:
    assert isinstance(embedder(EmbeddingSettings(kind="local", threads=2)), LocalEmbedder)
    key_file = tmp_path / "key"
    key_file.write_text("sk-1")
    made = embedder(EmbeddingSettings(**ENDPOINT, key_file=key_file, dimensions=256))
    assert isinstance(made, OpenAIEmbedder)
    assert (made.model, made.dimensions) == ("nomic-embed-text@256", 256)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "http://x/v1"}, "url: without effect on an embedder of the kind 'none'"),
        ({"kind": "local", "model": "bge", "key": "k"}, "key, model: without effect on .* 'local'"),
        ({**ENDPOINT, "threads": 2}, "threads: without effect on .* 'openai'"),
        ({"kind": "openai"}, "url and model: needed"),
        ({"kind": "openai", "url": "http://x/v1"}, "model: needed"),
        ({**ENDPOINT, "key": "secret-1", "key_file": "/f"}, "give one of them"),
        ({"kind": "torch"}, "'none', 'local' or 'openai'"),
        ({**ENDPOINT, "batch": 0}, "greater than or equal to 1"),
        ({**ENDPOINT, "dimensions": 100_000}, "less than or equal to 4000"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_their_names(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        EmbeddingSettings(**given)
    assert "secret-1" not in str(caught.value)


def test_a_key_is_not_shown() -> None:
    assert "secret-1" not in repr(EmbeddingSettings(**ENDPOINT, key="secret-1"))


def test_a_servers_settings_hold_them_under_one_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    class ServerSettings(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="A2M_X_", env_nested_delimiter="__")

        tier_timeout: float = 1.0
        embedding: EmbeddingSettings = EmbeddingSettings()

    for name, value in (ENDPOINT | {"key_file": "/run/key", "query_prefix": "query: "}).items():
        monkeypatch.setenv(f"A2M_X_EMBEDDING__{name.upper()}", value)
    monkeypatch.setenv("A2M_X_TIER_TIMEOUT", "3")
    settings = ServerSettings()
    assert settings.tier_timeout == 3
    assert settings.embedding == EmbeddingSettings(
        **ENDPOINT, key_file=Path("/run/key"), query_prefix="query: "
    )
