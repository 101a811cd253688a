"""A cross-encoder behind an endpoint: the `/rerank` that Jina, Cohere, vLLM, Infinity and others speak."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import TransportError, unavailable
from a2m_retrieval.embed.port import encodable


class RerankSettings(BaseModel):
    """The endpoint, or none without a `url`, which ends where `/rerank` follows.

    `key_file` holds a bearer token and is read again when it changes. Of each text the first
    `max_characters` are sent; a recall waits for `timeout` seconds at most.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, Field(pattern=r"^(https?://[^\s@?#]+)?$")] = ""
    model: Annotated[str, Field(max_length=200)] = ""
    key_file: Path | None = None
    timeout: Annotated[float, Field(gt=0, le=60)] = 2.0
    max_characters: Annotated[int, Field(ge=1)] = 2_000

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        try:
            wrong = bool(url) and not httpx.URL(url).host
        except httpx.InvalidURL:
            wrong = True
        if wrong:
            raise ValueError("no URL in the form http://127.0.0.1:7997")
        return url

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if not self.url and self.model_fields_set:
            raise ValueError("url: missing, and without it nothing else has an effect")
        return self


class CrossEncoder:
    """Reads a query and a text together, and says how relevant the text is. Proxies are not used.

    `timeout` is how many seconds whoever calls is to wait for an answer.
    """

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        self._key = TokenFile(settings.key_file) if settings.key_file is not None else None
        self._target = settings.url.rstrip("/") + "/rerank"
        self._client: httpx.AsyncClient | None = None

    @property
    def timeout(self) -> float:
        return self._settings.timeout

    async def open(self) -> None:
        self._client = httpx.AsyncClient(trust_env=False, timeout=None)  # noqa: S113 its caller bounds a call

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """The relevance of each text, in 0..1. Raises `TransportError` where the endpoint gives no answer."""
        if self._client is None:
            raise unavailable("the cross-encoder", "it is not open")
        most = self._settings.max_characters
        asked: dict[str, object] = {
            "query": encodable(query[:most]),
            "documents": [encodable(text[:most]) for text in texts],
            "return_documents": False,
        }
        if self._settings.model:
            asked["model"] = self._settings.model
        headers = [(b"authorization", b"Bearer " + self._key.token)] if self._key is not None else []
        try:
            answer = await self._client.post(self._target, json=asked, headers=headers)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._failure(f"does not answer: {type(error).__name__}") from error
        if answer.status_code != 200:
            raise self._failure(f"answered {answer.status_code}")
        try:
            results = _Answer.model_validate_json(answer.content).results
        except ValidationError as error:
            raise self._failure("answered no list of relevance scores") from error
        scores = {result.index: result.relevance_score for result in results}
        if scores.keys() != set(range(len(texts))):
            raise self._failure("answered scores that do not match the texts")
        return _within(scores[at] for at in range(len(texts)))

    def _failure(self, what: str) -> TransportError:
        return TransportError(f"the cross-encoder {what}", maybe_received=True)


class _Result(BaseModel):
    index: int
    relevance_score: Annotated[float, Field(allow_inf_nan=False)]


class _Answer(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    results: list[_Result]


def _within(scores: Iterable[float]) -> list[float]:
    """Scores as numbers in 0..1 of the same order; some models give logits."""
    found = [*scores]
    if all(0 <= score <= 1 for score in found):
        return found
    return [0.5 * (1 + math.tanh(score / 2)) for score in found]
