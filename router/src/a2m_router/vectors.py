"""Vectors that the router makes: of records on their way to a tier that searches, and of queries."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from a2m_protocol.errors import A2MError, unavailable
from a2m_protocol.types import Capability, Draft, Record
from a2m_retrieval.embed.port import Embedder, Encoded
from a2m_retrieval.text import speaker
from a2m_router.counts import Counts
from a2m_router.patience import Patience
from a2m_router.tiers import Member
from a2m_server.values import Seen

if TYPE_CHECKING:
    from a2m_retrieval.embed.late import Tokens

PLAIN = "a"
"""A text that every model takes."""
QUERIES = 64
QUERY_SECONDS = 3.0
MOVE_SECONDS = 10.0
"""How long a recall waits for the vector of its query, and a move for those of its records."""

log = logging.getLogger(__name__)


class Vectors:
    """Makes vectors off the turn, in batches; without an `embedder` it makes none.

    A caller's own vector is never touched. What cannot be embedded now goes without a vector and is found by
    its words.
    """

    def __init__(self, embedder: Embedder | None, counts: Counts) -> None:
        self._embedder = embedder
        self._counts = counts
        self._queries: OrderedDict[str, asyncio.Task[Encoded | A2MError]] = OrderedDict()
        self._for_query = Patience("the embedder", QUERY_SECONDS)
        self._for_move = Patience("the embedder", MOVE_SECONDS)
        self.missed: Callable[[], None] = lambda: None
        """Called where records went without vectors that they could have had."""

    async def open(self) -> None:
        if self._embedder is not None:
            await self._embedder.open()

    async def close(self) -> None:
        for task in self._queries.values():
            task.cancel()
        self._queries.clear()
        if self._embedder is not None:
            await self._embedder.close()

    @property
    def model(self) -> str | None:
        return None if self._embedder is None else self._embedder.model

    @property
    def dimensions(self) -> int | None:
        return None if self._embedder is None else self._embedder.dimensions

    async def query(self, text: str) -> Encoded | None:
        """A query as the model sees it; None where it sees nothing in it, and words have to do.

        The last few are remembered: a turn asks several tiers, and more than once, for one text. Raises where
        the model does not answer.
        """
        if self._embedder is None or not text.strip() or not self._embedder.reads(text):
            return None
        if text not in self._queries:
            if self._for_query.ended:
                raise unavailable("the embedder", "it did not answer a moment ago")
            self._queries[text] = asyncio.create_task(self._query(self._embedder, text))
            while len(self._queries) > QUERIES:
                self._queries.popitem(last=False)
        self._queries.move_to_end(text)
        answer = await asyncio.shield(self._queries[text])
        if isinstance(answer, A2MError):
            raise answer
        return answer

    async def _query(self, embedder: Embedder, text: str) -> Encoded | A2MError:
        """The answer to all who wait for it: nobody may be left by then to whom an error could be raised."""
        answered = False
        try:
            [found] = await self._for_query.wait(embedder.encode([text], kind="query"))
            self._counts.embedded.labels("query").inc()
            answered = True
        except A2MError as error:
            log.warning("a query goes without a vector: %s", error.message)
            return error
        finally:
            if not answered:
                self._queries.pop(text, None)
        return found

    def tokens(self, record: Record) -> Tokens | None:
        """What the model saw of a record's tokens, or which they are; None where it does not tell of any."""
        if self._embedder is None:
            return None
        return self._embedder.tokens(text_of(record), record.features)

    async def filled(self, drafts: Sequence[Draft], target: Member, until: float = math.inf) -> list[Draft]:
        """The drafts as `target` is to keep them: with vectors, where it searches and they have none.

        From `until` on, in seconds of `time.monotonic`, the background makes them.
        """
        bare = [at for at, draft in enumerate(drafts) if draft.embedding is None and draft.content.strip()]
        if self._embedder is None or not bare or not self.fits(target):
            return [*drafts]
        if self._for_move.ended or time.monotonic() >= until:
            self.missed()
            return [*drafts]
        try:
            encoded = await self._for_move.wait(self._encoded([drafts[at] for at in bare]))
        except A2MError as error:
            log.warning("%d records go to %s without vectors: %s", len(bare), target.name, error.message)
            self.missed()
            return [*drafts]
        if not self.fits(target):
            # An endpoint tells its width with its first answer.
            return [*drafts]
        filled = [*drafts]
        for at, (vector, features) in zip(bare, encoded, strict=True):
            update = {"embedding": vector, "embedding_model": self._embedder.model, "features": features}
            filled[at] = drafts[at].model_copy(update=update)
        return filled

    async def width(self) -> int:
        """The width of the model's vectors, which an endpoint tells with its first answer; raises without."""
        assert self._embedder is not None, "there is a model"  # noqa: S101 for the type checker
        if self._embedder.dimensions is not None:
            return self._embedder.dimensions
        [encoded] = await self._embedder.encode([PLAIN], kind="document")
        return len(encoded.vector)

    async def seen(self, records: Sequence[Record]) -> tuple[list[Seen], list[Record]]:
        """What the model sees in records, blank ones too, and those that it refuses for good.

        Raises what keeps it from all of them.
        """
        if self._embedder is None or not records:
            return [], []
        try:
            return await self._seen(records), []
        except A2MError as error:
            if error.retryable:
                raise
        # Raises where it is not the texts that are refused.
        await self._embedder.encode([PLAIN], kind="document")
        seen: list[Seen] = []
        refused: list[Record] = []
        for record in records:
            try:
                seen += await self._seen([record])
            except A2MError as error:
                if error.retryable:
                    raise
                log.warning("record %s goes without a vector: %s", record.id, error.message)
                refused.append(record)
        return seen, refused

    async def _seen(self, records: Sequence[Record]) -> list[Seen]:
        model = self.model or ""
        return [
            Seen(record.id, record.etag, vector, model, features)
            for record, (vector, features) in zip(records, await self._encoded(records), strict=True)
        ]

    async def _encoded(self, records: Sequence[Draft | Record]) -> list[tuple[list[float], str | None]]:
        """The vector and the features of each record."""
        embedder = self._embedder
        assert embedder is not None, "both callers have looked"  # noqa: S101 for the type checker
        encoded = await embedder.encode([text_of(record) for record in records], kind="document")
        self._for_query.answered()
        self._for_move.answered()
        self._counts.embedded.labels("document").inc(len(records))
        return [(e.vector, e.features) for e in encoded]

    def fits(self, target: Member) -> bool:
        """Whether a tier searches by vectors, and by such as are made here."""
        if target.config.kind == "working" or not target.has(Capability.EMBEDDINGS):
            return False
        width = target.info.dimensions if target.info is not None else None
        return width is None or self.dimensions is None or width == self.dimensions


def text_of(draft: Draft | Record) -> str:
    """What is embedded of a record: who said it (by name, where one is given) and when are part of it."""
    who = speaker(draft.metadata) or draft.role
    said = f"{who}: {draft.content}" if who else draft.content
    return f"[{draft.created_at[:10]}] {said}" if draft.created_at else said
