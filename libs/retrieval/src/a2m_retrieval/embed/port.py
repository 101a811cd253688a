"""The port of everything that makes vectors of texts, and what its implementations share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from a2m_retrieval.metric import Metric

if TYPE_CHECKING:
    from a2m_retrieval.embed.late import Tokens

Kind = Literal["document", "query"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text as a model sees it: its vector and, where the model tells of tokens, what it saw of each.

    Of a query those are `tokens`; of a document they are `features`, as a record keeps them.
    """

    vector: list[float]
    tokens: Tokens | None = None
    features: str | None = None


class Embedder(Protocol):
    """Makes vectors of texts. A service without one has `None` instead.

    `model` names the space that the vectors are of and is kept with them: whatever changes the space
    changes the name. `dimensions` is their width, None until the first answer where it cannot be known
    before. `max_tokens` is how much of a text counts, in tokens of the model; None where only the endpoint
    knows. Nothing is embedded before `open` or after `close`.
    """

    @property
    def model(self) -> str: ...

    @property
    def dimensions(self) -> int | None: ...

    @property
    def metric(self) -> Metric: ...

    @property
    def max_tokens(self) -> int | None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def reads(self, text: str) -> bool:
        """Whether a vector of the text says enough; a query that is not read is better asked by words."""
        ...

    def tokens(self, text: str, features: str | None) -> Tokens | None:
        """The tokens of a text at once, with the states that `features` keep if they are of this model.

        None where the model does not tell of tokens.
        """
        ...

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> list[Encoded]:
        """Each text as the model sees it, in their order: the vector of float32 numbers, of length 1.

        Any text has one: what is longer than the model reads is shortened, and a blank one gets a vector
        that says nothing. A query does not wait for documents that are being embedded, and a call may be
        cancelled at any time. Raises `A2MError`, retryable when the endpoint does not answer for now.
        """
        ...


def encodable(text: str) -> str:
    """The text with lone surrogates, which UTF-8 has no bytes for, replaced by `?`."""
    return text.encode("utf-8", "replace").decode()


def batches(texts: Sequence[str], count: int, characters: int) -> Iterator[list[str]]:
    """The texts in order, at most `count` and, but for a single text, at most `characters` at a time."""
    batch: list[str] = []
    held = 0
    for text in texts:
        if batch and (len(batch) == count or held + len(text) > characters):
            yield batch
            batch, held = [], 0
        batch.append(text)
        held += len(text)
    if batch:
        yield batch
