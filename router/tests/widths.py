"""An embedder of any width, and what tiers in memory hold of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_protocol.types import Record
from a2m_retrieval.embed.port import Encoded
from a2m_retrieval.metric import Metric
from a2m_router.federation import Federation
from a2m_server.memory import MemoryTier

Kind = Literal["document", "query"]
DEADLINE = 10.0


class Widths:
    """An embedder of a name and width that may stop answering after some texts."""

    metric: Metric = "cosine"
    max_tokens = None

    def __init__(self, model: str = "first", dimensions: int = 2) -> None:
        self.model = model
        self.dimensions = dimensions
        self.left: float = float("inf")
        self.asked = 0
        self.refuses: set[str] = set()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def reads(self, text: str) -> bool:
        return bool(text)

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> list[list[float]]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.refuses & {text.partition("] ")[2] or text for text in texts}:
            raise A2MError(Code.INTERNAL, "the embedder answered 400")
        if len(texts) > self.left:
            raise unavailable("the embedder", "it is away")
        self.left -= len(texts)
        return [[0.0] * (self.dimensions - 1) + [1.0] for _ in texts]

    def tokens(self, text: str, features: str | None) -> None:
        """It tells of none."""

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> list[Encoded]:
        return [Encoded(vector) for vector in await self.embed(texts, kind=kind)]


Make = Callable[[Widths | None], "asyncio.Future[Federation]"]


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not done():  # noqa: ASYNC110 what others do tells nobody
            await asyncio.sleep(0.005)


def models(store: MemoryTier) -> set[str | None]:
    return {r.embedding_model if r.embedding else None for r in held(store)}


def held(store: MemoryTier) -> list[Record]:
    return [*store._ledger.records.values()]  # pyright: ignore[reportPrivateUsage] looked at while others work
