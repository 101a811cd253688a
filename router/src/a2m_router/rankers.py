"""What puts the candidates of several tiers in one order: one model over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from a2m_protocol.types import Record
from a2m_retrieval.cross import CrossEncoder
from a2m_retrieval.embed.port import Encoded
from a2m_router.patience import Patience
from a2m_router.vectors import Vectors, text_of

if TYPE_CHECKING:
    from a2m_retrieval.embed.late import Tokens
    from a2m_retrieval.rerank import Evidence


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate: the record, its tier, and its place in that tier's order (the first is 0)."""

    record: Record
    tier: str
    place: int


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked, and as the model sees it, if it does."""

    text: str
    encoded: Encoded | None = None


@dataclass(frozen=True, slots=True)
class Opinion:
    """A score in 0..1, and what it was made of."""

    score: float
    parts: Mapping[str, float]


class Ranker(Protocol):
    """`most` is how many candidates it is given at most, those first in their tiers' orders."""

    @property
    def name(self) -> str: ...

    @property
    def most(self) -> int: ...

    async def rank(self, query: Query, candidates: Sequence[Placed]) -> list[Opinion] | None:
        """An opinion of each candidate, in their order; None where there is none to be had.

        Raises `A2MError` where what it asks does not answer.
        """
        ...


class Reranker:
    """By what the packaged model kept of each record: `a2m_retrieval.rerank`, off the event loop."""

    name = "rerank"
    most = 200

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    async def rank(self, query: Query, candidates: Sequence[Placed]) -> list[Opinion] | None:
        if query.encoded is None or query.encoded.tokens is None:
            return None
        return await asyncio.to_thread(self._rank, query.encoded.tokens, candidates)

    def _rank(self, query: Tokens, candidates: Sequence[Placed]) -> list[Opinion] | None:
        from a2m_retrieval.rerank import Candidate, rerank

        def seen() -> Iterator[Candidate]:
            for placed in candidates:
                record = placed.record
                session = None if record.session is None else (record.owner, record.session)
                if (tokens := self._vectors.tokens(record)) is not None:
                    yield Candidate(tokens, placed.place, session)

        evidence = rerank(query, seen())
        if evidence is None or len(evidence) != len(candidates):
            return None
        return [Opinion(e.score, _parts(e)) for e in evidence]


def _parts(evidence: Evidence) -> dict[str, float]:
    parts = {"nearness": evidence.nearness, "place": evidence.place, "session": evidence.session}
    return parts if evidence.sparse is None else parts | {"sparse": evidence.sparse}


class CrossRanker:
    """By a cross-encoder behind an endpoint, which reads the query and each candidate together."""

    name = "cross-encoder"
    most = 100

    def __init__(self, encoder: CrossEncoder) -> None:
        self._encoder = encoder
        self._patience = Patience("the cross-encoder", encoder.timeout)

    async def rank(self, query: Query, candidates: Sequence[Placed]) -> list[Opinion] | None:
        if not candidates or self._patience.ended:
            return None
        texts = [text_of(placed.record) for placed in candidates]
        scores = await self._patience.wait(self._encoder.relevance(query.text, texts))
        return [Opinion(score, {"relevance": score}) for score in scores]
