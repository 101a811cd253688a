"""Vectors that the router makes: of records on their way to a tier that searches, and of queries."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Capability, Draft
from a2m_retrieval.embed.port import Embedder
from a2m_router.counts import Counts
from a2m_router.tiers import Member

SPEAKER = "speaker"
"""The metadata in which transcripts name who speaks."""

log = logging.getLogger(__name__)


class Vectors:
    """Makes vectors off the turn, in batches; without an `embedder` it makes none.

    A caller's own vector is never touched. What cannot be embedded now goes without a vector and is found by
    its words.
    """

    def __init__(self, embedder: Embedder | None, counts: Counts) -> None:
        self._embedder = embedder
        self._counts = counts

    async def open(self) -> None:
        if self._embedder is not None:
            await self._embedder.open()

    async def close(self) -> None:
        if self._embedder is not None:
            await self._embedder.close()

    @property
    def model(self) -> str | None:
        return None if self._embedder is None else self._embedder.model

    @property
    def dimensions(self) -> int | None:
        return None if self._embedder is None else self._embedder.dimensions

    async def query(self, text: str) -> list[float] | None:
        """The vector of a query; None where none can be made, and words have to do."""
        if self._embedder is None or not text.strip() or not self._embedder.reads(text):
            return None
        try:
            [vector] = await self._embedder.embed([text], kind="query")
        except A2MError as error:
            log.warning("a query goes without a vector: %s", error.message)
            return None
        self._counts.embedded.labels("query").inc()
        return vector

    async def filled(self, drafts: Sequence[Draft], target: Member) -> list[Draft]:
        """The drafts as `target` is to keep them: with vectors, where it searches and they have none."""
        bare = [at for at, draft in enumerate(drafts) if draft.embedding is None and draft.content.strip()]
        if self._embedder is None or not bare or not self.fits(target):
            return [*drafts]
        try:
            vectors = await self._embedder.embed([text_of(drafts[at]) for at in bare], kind="document")
        except A2MError as error:
            log.warning("%d records go to %s without vectors: %s", len(bare), target.name, error.message)
            return [*drafts]
        self._counts.embedded.labels("document").inc(len(bare))
        filled = [*drafts]
        for at, vector in zip(bare, vectors, strict=True):
            update = {"embedding": vector, "embedding_model": self._embedder.model}
            filled[at] = drafts[at].model_copy(update=update)
        return filled

    def fits(self, target: Member) -> bool:
        """Whether a tier searches by vectors, and by such as are made here."""
        if target.config.kind == "working" or not target.has(Capability.EMBEDDINGS):
            return False
        width = target.info.dimensions if target.info is not None else None
        return width is None or self.dimensions is None or width == self.dimensions


def text_of(draft: Draft) -> str:
    """What is embedded of a record: who said it (by name, where one is given) and when are part of it."""
    speaker = (draft.metadata or {}).get(SPEAKER) or draft.role
    said = f"{speaker}: {draft.content}" if speaker else draft.content
    return f"[{draft.created_at[:10]}] {said}" if draft.created_at else said
