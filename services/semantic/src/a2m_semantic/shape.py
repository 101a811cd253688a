"""What a store fixes once: the metric, the width of its vectors and, in steps, the mean length of its texts.

It is kept in one point of the store, so that it is found again whatever the settings say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a2m_protocol.errors import A2MError, Code, embedding_mismatch
from a2m_protocol.types import Draft
from a2m_retrieval.metric import Metric
from a2m_semantic.engine import Engine, Point, point_id
from a2m_semantic.lexical import MeanLength
from a2m_semantic.points import Space

FORMAT = 1
POINT = point_id("meta", "store")
VERSION = "meta"


class Shape:
    """The shape of the store behind an engine, of the metric and width asked for (None: any width)."""

    def __init__(self, engine: Engine, metric: Metric, asked: int | None) -> None:
        self._engine = engine
        self._metric: Metric = metric
        self._asked = asked
        self._mean = MeanLength()
        self.width: int | None = None
        self.clearing = False

    @property
    def space(self) -> Space:
        return Space(self._metric, self._mean.step)

    async def open(self) -> None:
        """Check the settings against the store, and finish what a crash cut short.

        Raises `A2MError` for a store of another format, metric or width.
        """
        fields = ["format", "metric", "dimensions", "mean_length", "clearing"]
        found = await self._engine.retrieve([POINT], fields)
        held = found[0].payload if found else None
        if held is not None:
            if held["format"] != FORMAT:
                raise _unlike("format", held["format"], FORMAT)
            if held["metric"] != self._metric:
                raise _unlike("metric", held["metric"], self._metric)
            if self._asked is not None and held.get("dimensions") not in (None, self._asked):
                raise _unlike("dimensions", held["dimensions"], self._asked)
            self._mean = MeanLength(held.get("mean_length"))
        width = (held or {}).get("dimensions") or self._asked
        if held is not None and held.get("clearing") and width is not None:
            await self.change(width)
        elif width is not None:
            await self._set_width(width)
        elif held is None:
            await self._save(None)

    async def known_width(self, wanted: int) -> int | None:
        """The width in force, looked for again unless it is the one `wanted`."""
        return self.width if self.width == wanted else await self.look()

    async def look(self) -> int | None:
        """The width in force; over a shared engine another service may have fixed or changed it."""
        if self._engine.shared:
            found = await self._engine.retrieve([POINT], ["dimensions", "clearing"])
            held = found[0].payload if found else {}
            self.clearing = bool(held.get("clearing"))
            if held.get("dimensions") is not None:
                self.width = await self._engine.fix_width(held["dimensions"])
        return self.width

    async def fit(self, drafts: Sequence[Draft]) -> None:
        """Fix the width by the first vector; raises -32008 for a vector of another."""
        widths = [len(draft.embedding) for draft in drafts if draft.embedding is not None]
        if not widths:
            return
        expected = await self.known_width(widths[0]) or widths[0]
        for width in widths:
            if width != expected:
                raise embedding_mismatch(expected, width)
        await self.fix(expected)

    async def fix(self, width: int) -> None:
        """Fix the width unless it is already; raises -32008 where another service was quicker."""
        if self.width is None:
            fixed = await self._set_width(width)
            if fixed != width:
                raise embedding_mismatch(fixed, width)

    def check_asked(self, width: int) -> None:
        """Raise -32008 for another width than the settings ask for."""
        if self._asked is not None and width != self._asked:
            raise embedding_mismatch(self._asked, width)

    async def change(self, width: int) -> None:
        """Make room for vectors of another width alone; until `changed`, there are records to be cleared."""
        # Noted first: a crash in between leaves a note that the next start acts upon.
        self.clearing = True
        await self._save(width)
        await self._engine.refit(width)
        self.width = width

    async def changed(self) -> None:
        self.clearing = False
        await self._save(self.width)

    async def grow(self, lengths: Iterable[int]) -> None:
        """Count new documents of these lengths in terms."""
        changes = [self._mean.add(length) for length in lengths]
        if any(changes):
            await self._save(await self.look())

    async def _set_width(self, width: int) -> int:
        # Noted first: a crash in between leaves a note that the next start acts upon.
        await self._save(width)
        fixed = await self._engine.fix_width(width)
        if fixed != width:
            await self._save(fixed)
        self.width = fixed
        return fixed

    async def _save(self, width: int | None) -> None:
        payload = {
            "state": "meta",
            "version": VERSION,
            "format": FORMAT,
            "metric": self._metric,
            "dimensions": width,
            "mean_length": self._mean.step,
        }
        if self.clearing:
            payload["clearing"] = True
        await self._engine.upsert([Point(POINT, payload)], frozenset({VERSION}))


def _unlike(name: str, kept: object, asked: object) -> A2MError:
    return A2MError(
        Code.INTERNAL,
        f"the semantic store was made with {name} {kept}, and {asked} is asked for: set "
        f"A2M_SEMANTIC_{name.upper()} back, or export what is there and import it into a new store",
    )
