"""Vectors that a model made of records that are here already, and the change to another width."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from a2m_protocol.errors import embedding_mismatch
from a2m_semantic.engine import DENSE, All, AnyOf, Engine, HasVector, Not
from a2m_semantic.points import LIVE, WHOLE, decode, origin_token
from a2m_semantic.shape import Shape
from a2m_semantic.writing import Writer
from a2m_server.values import Seen

CHUNK = 256
STEP = 5.0
"""Seconds of clearing in one call, so that a call ends in time."""

_LIVE = AnyOf("state", LIVE)
_NO_MODELS = AnyOf("origin", (origin_token(None),))
_CALLERS = All((_LIVE, HasVector(DENSE), _NO_MODELS))
_STALE = All((_LIVE, Not(_NO_MODELS), Not(HasVector(DENSE))))
"""What has a vector by its record alone: the engine let go of it when the width changed."""


class Embedding:
    """Keeps what models saw.

    A call that changes the width, and any until all is cleared, keeps nothing: it clears for a while and says
    no. Between two chunks of that others may write.
    """

    def __init__(self, engine: Engine, shape: Shape, writer: Writer) -> None:
        self._engine = engine
        self._shape = shape
        self._writer = writer

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        for one in seen:
            self._shape.check_asked(len(one.embedding))
            if len(one.embedding) != len(seen[0].embedding):
                raise embedding_mismatch(len(seen[0].embedding), len(one.embedding))
        outcomes = await self._writer.alone(lambda: self._keep(seen)) if seen else {}
        await self.clear(STEP)
        return outcomes

    async def clear(self, seconds: float = math.inf) -> None:
        """Take what models made from records whose vectors went with their width, if there are any."""
        until = time.monotonic() + seconds
        while self._shape.clearing and time.monotonic() < until:
            await self._writer.alone(self._clear_some)

    async def _keep(self, seen: Sequence[Seen]) -> dict[str, bool]:
        width = len(seen[0].embedding)
        held = await self._shape.known_width(width)
        changes = held is not None and held != width
        if changes and await self._engine.count(_CALLERS):
            raise embedding_mismatch(held or width, width)
        batch = await self._writer.load([one.id for one in seen])
        outcomes = {one.id: batch.takes(one) for one in seen}
        if changes and any(outcomes.values()):
            await self._shape.change(width)
        if self._shape.clearing or changes:
            return dict.fromkeys(outcomes, False)
        if any(outcomes.values()):
            await self._shape.fix(width)
            for one in seen:
                if outcomes[one.id]:
                    batch.embed(one)
            await self._writer.store(batch)
        return outcomes

    async def _clear_some(self) -> None:
        """The next chunk; begun again at any point, it ends the same."""
        found, _ = await self._engine.scroll(_STALE, WHOLE, CHUNK)
        if not found:
            await self._shape.changed()
            return
        batch = self._writer.batch(map(decode, found))
        batch.clear()
        await self._writer.store(batch)
