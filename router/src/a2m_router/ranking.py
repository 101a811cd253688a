"""The order of a recall over several tiers: one ranker over all candidates, and what stands behind."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from a2m_protocol.errors import A2MError, Json, JsonObject
from a2m_protocol.types import Record
from a2m_retrieval.text import index_words
from a2m_router import merge
from a2m_router.coordination import Clock
from a2m_router.rankers import Opinion, Placed, Query, Ranker
from a2m_server.values import Found, Search

FUSION = "fusion"
RECENCY = "recency"
"""What puts records in order without a ranker: the tiers' ranks, or for a recall without a query the time."""

FRESH = 0.02
SALIENT = 0.02
HALF_LIFE = 30 * 86_400 * 1_000_000
"""The shares of a score that are for newness and for salience; microseconds until newness is halved."""
DOUBTED = 0.1
"""The part of its score that a record loses which is not trusted at all; half of it at a trust of 0.5."""

ALIKE = 0.9
CONTAINED = 0.8
"""The share of all their words that near-duplicates have in common; and of the words of the shorter of two
of which one was derived from the other."""

SMALL = 20_000
"""Characters of all candidates up to which they are put in order at once rather than in a thread."""

LAST = 1_000
"""The place of what no tier's search has found."""

SHOWN = 50
COMPARED = 2_000
"""How many records are compared for repetitions, and how many characters of each."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ranked:
    placed: Placed
    score: float
    parts: Mapping[str, float]


class Ranking:
    """Merges the answers of tiers; the first of `rankers` that has an opinion decides.

    Scores that are all the same are no opinion: they would leave the order to how new the records are.
    `trust` says of a record from 0 to 1 how much it is trusted, where that is known of any.
    """

    def __init__(
        self, rankers: Sequence[Ranker], clock: Clock, trust: Callable[[Record], float] | None = None
    ) -> None:
        self._rankers = rankers
        self._clock = clock
        self._trust = trust

    async def merged(
        self, search: Search, query: Query, answers: Mapping[str, Found], recent: Sequence[Record] = ()
    ) -> Found:
        """The best of all answers, at most `search.limit`; a ranker is given what is `recent` as well.

        Without a ranker's opinion, or where a caller's own vector is asked for, by reciprocal rank fusion: no
        tier's score is compared with another's.
        """
        records = {tier: found.records for tier, found in answers.items()}
        if search.text is None and search.embedding is None:
            return Found(merge.by_recency(records, search.limit), ranked_by=RECENCY)
        opinions = await self._opinions(search, query, records, recent)
        if sum(len(r.content) for found in records.values() for r in found) < SMALL:
            return self._arranged(search, records, opinions)
        return await asyncio.to_thread(self._arranged, search, records, opinions)

    async def _opinions(
        self,
        search: Search,
        query: Query,
        records: Mapping[str, Sequence[Record]],
        recent: Sequence[Record],
    ) -> tuple[str, list[Ranked]] | None:
        """The candidates as the first ranker with an opinion of them orders them, and its name."""
        if search.embedding is not None:
            return None
        found = merge.distinct(records)
        for record in recent:
            found.setdefault(record.id, record)
        candidates = sorted(_placed(found.values(), records), key=lambda placed: placed.place)
        for ranker in self._rankers:
            given, rest = candidates[: ranker.most], candidates[ranker.most :]
            try:
                opinions = await ranker.rank(query, given)
            except A2MError as error:
                log.warning("a recall was not ranked by %s: %s", ranker.name, error.message)
                continue
            if opinions is not None and (len(given) == 1 or len({o.score for o in opinions}) > 1):
                now = self._clock()
                ranked = [_blended(c, o, now) for c, o in zip(given, opinions, strict=True)]
                ranked.sort(key=_by_score)
                return ranker.name, [*ranked, *(Ranked(c, 0.0, {}) for c in rest)]
        return None

    def _arranged(
        self,
        search: Search,
        records: Mapping[str, Sequence[Record]],
        opinions: tuple[str, list[Ranked]] | None,
    ) -> Found:
        by, ranked = opinions or (FUSION, _fused(search, records))
        if self._trust is not None:
            ranked = sorted((_doubted(r, self._trust(r.placed.record)) for r in ranked), key=_by_score)
        kept, behind = apart(ranked, search.limit)
        best = [*kept, *(ranked for ranked, _ in behind)][: search.limit]
        shown = [r.placed.record.model_copy(update={"score": r.score}) for r in best]
        if not search.explain:
            return Found(shown, ranked_by=by)
        return Found(
            shown,
            ranked_by=by,
            explained={r.placed.record.id: _explained(r) for r in ranked},
            suppressed=tuple(_suppressed(ranked, why) for ranked, why in behind),
        )


def apart(ranked: Sequence[Ranked], limit: int) -> tuple[list[Ranked], list[tuple[Ranked, JsonObject]]]:
    """What to show first, and what only repeats it, with why; the first `SHOWN` are compared."""
    kept: list[Ranked] = []
    behind: list[tuple[Ranked, JsonObject]] = []
    words: dict[str, frozenset[str]] = {}
    for at, one in enumerate(ranked):
        if len(kept) >= min(limit, SHOWN) or at >= 2 * SHOWN:
            return [*kept, *ranked[at:]], behind
        record = one.placed.record
        words[record.id] = frozenset(index_words(record.content[:COMPARED]))
        why = next((w for k in kept if (w := _repeats(record, k.placed.record, words)) is not None), None)
        if why is None:
            kept.append(one)
        else:
            behind.append((one, why))
    return kept, behind


def _repeats(record: Record, shown: Record, words: Mapping[str, frozenset[str]]) -> JsonObject | None:
    """Why a record only repeats one that is shown, or None."""
    mine, theirs = words[record.id], words[shown.id]
    if not mine or not theirs or record.owner != shown.owner:
        return None
    common = len(mine & theirs)
    if common >= ALIKE * len(mine | theirs):
        return {"reason": "near-duplicate", "of": shown.id}
    if (_derived(record, shown) or _derived(shown, record)) and common >= CONTAINED * min(
        len(mine), len(theirs)
    ):
        return {"reason": "derived", "of": shown.id}
    return None


def _derived(record: Record, source: Record) -> bool:
    origin = record.provenance
    return origin is not None and origin.derived_from is not None and source.id in origin.derived_from


def _placed(found: Iterable[Record], answers: Mapping[str, Sequence[Record]]) -> list[Placed]:
    places = {(tier, r.id): at for tier, records in answers.items() for at, r in enumerate(records)}
    return [Placed(r, r.tier or "", places.get((r.tier or "", r.id), LAST)) for r in found]


def _fused(search: Search, answers: Mapping[str, Sequence[Record]]) -> list[Ranked]:
    placed = _placed(merge.by_rank(answers, None, search.text), answers)
    return [Ranked(p, p.record.score or 0.0, {}) for p in placed]


def _blended(placed: Placed, opinion: Opinion, now: int) -> Ranked:
    """An opinion, and a little of how new and salient the record is: of two alike the newer comes first."""
    recency = 0.5 ** (max(0, now - placed.record.seq) / HALF_LIFE)
    salience = 0.5 * (1 + math.tanh((placed.record.salience - 1) / 2))
    score = (1 - FRESH - SALIENT) * opinion.score + FRESH * recency + SALIENT * salience
    return Ranked(placed, score, {**opinion.parts, "recency": recency, "salience": salience})


def _doubted(ranked: Ranked, trust: float) -> Ranked:
    score = ranked.score * (1 - DOUBTED * (1 - trust))
    return Ranked(ranked.placed, score, {**ranked.parts, "trust": trust})


def _by_score(ranked: Ranked) -> float:
    return -ranked.score


def _explained(ranked: Ranked) -> JsonObject:
    parts: dict[str, Json] = {name: round(part, 6) for name, part in ranked.parts.items()}
    placed = ranked.placed
    rank = placed.place + 1 if placed.place < LAST else None
    return {"tier": placed.tier, "rank": rank, **parts, "score": round(ranked.score, 6)}


def _suppressed(ranked: Ranked, why: JsonObject) -> JsonObject:
    return {"id": ranked.placed.record.id, **_explained(ranked), **why}
