"""Which embedder a server has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from a2m_protocol.types import MAX_WIDTH
from a2m_retrieval.embed.local import LocalEmbedder
from a2m_retrieval.embed.openai import OpenAIEmbedder
from a2m_retrieval.embed.port import Embedder

_OF: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "local": frozenset({"threads"}),
    "openai": frozenset({
        "url", "model", "key", "key_file", "dimensions", "query_prefix", "document_prefix", "batch",
        "batch_characters", "max_characters", "timeout", "retries",
    }),
}  # fmt: skip


class EmbeddingSettings(BaseModel):
    """No embedder (`none`), the packaged model (`local`), or an endpoint (`openai`, with `url` and `model`).

    `threads` is of the local model; everything else is of the endpoint and as `OpenAIEmbedder` says. What
    is set for another kind than the chosen one is an error, since it would be without effect.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["none", "local", "openai"] = "none"
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    url: str = ""
    model: Annotated[str, Field(max_length=200)] = ""
    key: SecretStr | None = None
    key_file: Path | None = None
    dimensions: Annotated[int | None, Field(ge=1, le=MAX_WIDTH)] = None
    query_prefix: str = ""
    document_prefix: str = ""
    batch: Annotated[int, Field(ge=1, le=2_048)] = 64
    batch_characters: Annotated[int, Field(ge=1)] = 100_000
    max_characters: Annotated[int, Field(ge=1)] = 8_000
    timeout: Annotated[float, Field(gt=0, le=600)] = 30.0
    retries: Annotated[int, Field(ge=0, le=20)] = 4

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        odd = sorted(self.model_fields_set - {"kind"} - _OF[self.kind])
        if odd:
            raise ValueError(f"{', '.join(odd)}: without effect on an embedder of the kind {self.kind!r}")
        if self.kind == "openai":
            missing = [name for name in ("url", "model") if not getattr(self, name)]
            if missing:
                raise ValueError(f"{' and '.join(missing)}: needed by an embedder of the kind 'openai'")
            if self.key is not None and self.key_file is not None:
                raise ValueError("key and key_file: give one of them")
        return self


def embedder(settings: EmbeddingSettings) -> Embedder | None:
    """The embedder that the settings name, not yet open. Raises `ValueError` when it cannot be made."""
    if settings.kind == "local":
        return LocalEmbedder(threads=settings.threads)
    if settings.kind == "openai":
        return OpenAIEmbedder(
            settings.url,
            settings.model,
            key=settings.key.get_secret_value() if settings.key is not None else None,
            key_file=settings.key_file,
            dimensions=settings.dimensions,
            query_prefix=settings.query_prefix,
            document_prefix=settings.document_prefix,
            batch=settings.batch,
            batch_characters=settings.batch_characters,
            max_characters=settings.max_characters,
            timeout=settings.timeout,
            retries=settings.retries,
        )
    return None
