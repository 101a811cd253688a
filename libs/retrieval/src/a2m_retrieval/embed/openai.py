"""Any endpoint that speaks OpenAI's `/v1/embeddings`: OpenAI itself, Ollama, vLLM, TEI and others."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import TransportError, unavailable
from a2m_retrieval.embed.port import Encoded, Kind, batches, encodable
from a2m_retrieval.metric import Metric

if TYPE_CHECKING:
    from a2m_retrieval.embed.late import Tokens

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0
SHORTEST = 256

_KEY = re.compile(r"[!-~]+", re.ASCII)
_REFUSED = (400, 413, 422)
_AGAIN = (408, 409, 425, 429)
_HINTS = {401: "the key", 403: "the key", 404: "the URL and that the endpoint has the model"}


class OpenAIEmbedder:
    """`model` at `url`, which ends where `/embeddings` follows (`http://127.0.0.1:11434/v1`).

    `key`, or the content of `key_file` (read again when it changes), is sent as a bearer token and shown
    nowhere. `dimensions` asks for vectors of that width. The prefixes go before each text, as models of the
    E5 kind want. A request carries at most `batch` texts and `batch_characters`, ends within `timeout`
    seconds, and is repeated up to `retries` times when the endpoint is down or busy, after growing pauses
    from `pause` seconds on and not before the time that a `Retry-After` names.

    Only the first `max_characters` of a text are sent. What the endpoint refuses even so is halved until it
    is taken. A blank text is sent as a full stop, because some endpoints refuse an empty one. Proxies named
    in the environment are not used. Raises `ValueError` for what is no such URL and for an unusable key.
    """

    metric: Metric = "cosine"
    max_tokens = None

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        key_file: Path | None = None,
        dimensions: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        batch: int = 64,
        batch_characters: int = 100_000,
        max_characters: int = 8_000,
        timeout: float = 30.0,
        retries: int = 4,
        pause: float = 0.5,
    ) -> None:
        self._target = _target(url)
        self._asked: dict[str, str | int] = {"model": model, "encoding_format": "float"}
        if dimensions is not None:
            self._asked["dimensions"] = dimensions
        self.model = model if dimensions is None else f"{model}@{dimensions}"
        self._dimensions = dimensions
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("the embedding endpoint's key holds white space or other than ASCII characters")
        self._key = key.encode() if key is not None else None
        self._key_file = TokenFile(key_file) if key_file is not None else None
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self._batch = batch
        self._batch_characters = batch_characters
        self._max_characters = max_characters
        self._timeout = timeout
        self._retries = retries
        self._pause = pause
        self._client: httpx.AsyncClient | None = None

    @property
    def dimensions(self) -> int | None:
        return self._dimensions

    async def open(self) -> None:
        self._client = httpx.AsyncClient(trust_env=False, timeout=None)  # noqa: S113 each call has its own

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def reads(self, text: str) -> bool:  # noqa: ARG002 what an endpoint's model reads is not known here
        return True

    def tokens(self, text: str, features: str | None) -> Tokens | None:  # noqa: ARG002 an endpoint tells of vectors alone
        return None

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> list[list[float]]:
        """The vectors alone."""
        prefix = self._prefixes[kind]
        sent = [encodable(prefix + (text[: self._max_characters].strip() or ".")) for text in texts]
        found: list[list[float]] = []
        for batch in batches(sent, self._batch, self._batch_characters):
            found += await self._taken(batch)
        return found

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> list[Encoded]:
        return [Encoded(vector) for vector in await self.embed(texts, kind=kind)]

    async def _taken(self, batch: list[str]) -> list[list[float]]:
        """The vectors of a batch, which is parted, and a text halved, as long as the endpoint refuses it."""
        try:
            return await self._asked_again(batch)
        except _RefusedError:
            text = batch[0]
            if len(batch) == 1 and len(text) <= SHORTEST:
                raise
        if len(batch) == 1:
            log.warning("%s refused a text of %d characters: it is halved", self._where, len(text))
            return await self._taken([text[: len(text) // 2]])
        half = len(batch) // 2
        return await self._taken(batch[:half]) + await self._taken(batch[half:])

    async def _asked_again(self, batch: list[str]) -> list[list[float]]:
        """The vectors of a batch, asked for as often as it takes and is allowed."""
        attempt = 0
        while True:
            try:
                answer = await self._post(batch)
                return await asyncio.to_thread(self._vectors, answer, len(batch))
            except _BusyError as error:
                if attempt == self._retries or error.wait > LONGEST_PAUSE:
                    raise
                pause = min(LONGEST_PAUSE, self._pause * 2**attempt) * random.uniform(0.5, 1.0)  # noqa: S311 no secret
                await asyncio.sleep(error.wait + pause)
                attempt += 1

    async def _post(self, batch: list[str]) -> bytes:
        if self._client is None:
            raise unavailable("the embedder", "it is not open")
        key = self._key_file.token if self._key_file is not None else self._key
        headers = [(b"authorization", b"Bearer " + key)] if key is not None else []
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                answer = await self._client.post(
                    self._target, json=self._asked | {"input": batch}, headers=headers
                )
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise _BusyError(f"{self._where} gave no answer within {self._timeout:.3g} s") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _BusyError(f"{self._where} does not answer: {type(error).__name__}") from error
        if answer.status_code == 200:
            return answer.content
        raise self._failure(answer)

    def _failure(self, answer: httpx.Response) -> TransportError:
        """What a status means. An endpoint's own words may repeat the key or a text, so they are left out."""
        status = answer.status_code
        said = f"{self._where} answered {status}"
        if status in _AGAIN or status >= 500:
            return _BusyError(said, _wait(answer.headers.get("retry-after")))
        if status in _REFUSED:
            return _RefusedError(f"{said} to a text of few characters: check the model and the dimensions")
        hint = f": check {_HINTS[status]}" if status in _HINTS else ""
        return TransportError(said + hint, maybe_received=True, retryable=False)

    def _vectors(self, answer: bytes, count: int) -> list[list[float]]:
        """The checked vectors of an answer, in the order of the texts."""
        try:
            items = sorted(_Answer.model_validate_json(answer).data, key=lambda item: item.index)
        except ValidationError as error:
            raise self._garbage("no list of embeddings of finite numbers") from error
        if [item.index for item in items] != list(range(count)):
            raise self._garbage(f"{len(items)} embeddings that do not match the {count} texts")
        widths = {len(item.embedding) for item in items}
        expected = self._dimensions or len(items[0].embedding)
        if widths != {expected}:
            raise self._garbage(f"embeddings of {sorted(widths)} numbers instead of {expected}")
        vectors = [_unit(item.embedding) for item in items]
        if not all(vectors):
            raise self._garbage("an embedding of zeros")
        self._dimensions = expected
        return vectors

    def _garbage(self, what: str) -> TransportError:
        return TransportError(f"{self._where} answered {what}", maybe_received=True, retryable=False)

    @property
    def _where(self) -> str:
        return f"the embedding endpoint {self._target.scheme}://{self._target.netloc.decode('ascii')}"


class _BusyError(TransportError):
    """The same request may succeed after `wait` seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        asks = f"; it asks to wait {wait:.0f} s" if wait else ""
        super().__init__(message + asks, maybe_received=True)
        self.wait = wait


class _RefusedError(TransportError):
    """The request cannot succeed as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message, maybe_received=True, retryable=False)


class _Item(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    index: int
    embedding: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    data: list[_Item]


def _unit(vector: list[float]) -> list[float]:
    """The vector at length 1, in float32; empty for one without a direction."""
    length = math.hypot(*vector)
    return array("f", [number / length for number in vector]).tolist() if length else []


def _wait(header: str | None) -> float:
    """Seconds that a `Retry-After` asks for, given in seconds or as a date; 0 for none."""
    if header is None:
        return 0.0
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header).astimezone(UTC) - datetime.now(UTC)).total_seconds()
        except ValueError:
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _target(url: str) -> httpx.URL:
    wanted = "is wanted in the form http://127.0.0.1:11434/v1"
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"the embedding endpoint's URL {wanted}") from error
    if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.query or base.fragment:
        raise ValueError(f"the embedding endpoint's URL {wanted}, without a key in it")
    return base.copy_with(path=base.path.rstrip("/") + "/embeddings")
