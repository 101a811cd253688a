"""The same random steps on this store and on the reference in memory end the same, in both layouts."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

import pytest

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft, Record
from a2m_server.contract import where
from a2m_server.memory import MemoryTier
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Filter, Named, Page, Scope, Search, Tombstone
from a2m_working.store import WorkingStore

OWNERS = (None, "a", "b")
SESSIONS = (None, "s", "t")
ASSIGNED = {"etag", "seq", "created_at", "score", "tier"}


class Player:
    """One store under test; what it tells of a step has no seq and no etag in it."""

    def __init__(self, store: TierStore, mark: str) -> None:
        self._store = store
        self._mark = mark

    async def run(self, step: str, **given: Any) -> object:
        try:
            return await getattr(self, step)(**given)
        except A2MError as error:
            return int(error.code)

    async def write(self, drafts: list[Draft], scope: Scope) -> object:
        return [(w.id, w.outcome, w.revision, w.tier) for w in await self._store.write(drafts, scope)]

    async def transfer(self, drafts: list[Draft]) -> object:
        return [(w.id, w.outcome, w.reason, w.tier) for w in await self._store.transfer(drafts)]

    async def delete(self, ids: list[str], stale: bool, reason: Any) -> object:
        named = [Named(r.id, "x" if stale else r.etag) for r in await self._store.read(ids)]
        named += [Named(i, "x") for i in ids if i not in {name.id for name in named}]
        return await self._store.delete_if(named, reason, "below")

    async def bury(self, record_id: str, reason: Any, own: bool, moves: int, bucket: Any) -> object:
        held = await self._store.read([record_id])
        seq = held[0].seq if held and own else 500
        owner, session = bucket
        stone = Tombstone(record_id, reason, seq, owner=owner, session=session, target="below", moves=moves)
        return await self._store.bury([stone])

    async def count(self, ids: list[str], scope: Scope) -> object:
        await self._store.touch(ids, "2026-01-01T00:00:00.000Z")
        return await self._store.reinforce(ids, 0.3, scope)

    async def settle(self, ids: list[str]) -> object:
        await self._store.settle([Named(r.id, r.etag) for r in await self._store.read(ids)])
        return {
            e.id
            for e in await self._store.entries(Filter(arrived=True), 100, None)
            if e.id.startswith(self._mark)
        }

    async def forget(self, selected: Filter) -> object:
        return sorted((await self._store.forget(selected)).ids)

    async def state(self) -> object:
        told: dict[str, object] = {}
        for owner in OWNERS:
            scope = Scope(frozenset({owner}), owner)
            told[f"count {owner}"] = sum((await self._store.counts(scope)).values())
            told[f"sessions {owner}"] = [
                (s.session, s.records) for s in (await self._store.sessions(scope)).sessions
            ]
            for session in SESSIONS:
                found = await self._store.timeline(Page(Filter(scope, where(session=session)), vectors=True))
                told[f"{owner} {session}"] = (_told(found.records), found.elsewhere)
            hits = await self._store.search(Search(Filter(scope), 3, text="one two", vectors=True))
            told[f"search {owner}"] = {(r.id, round(r.score or 0, 6)) for r in hits.records}
            for key in ("k", "k/1"):
                kept = (await self._store.fetch(f"{self._mark}{key}", scope, vectors=False)).record
                told[f"key {owner} {key}"] = kept and (kept.id, kept.content)
        return told

    async def graves(self, ids: list[str]) -> object:
        return [
            (g.id, g.reason, g.owner, g.session, g.key, g.moves, g.target)
            for g in await self._store.tombstones(ids)
        ]


def _told(records: list[Record]) -> list[dict[str, object]]:
    return [record.model_dump(exclude=ASSIGNED) for record in records]


class Dice:
    """Steps drawn by a seed from few names, so that they meet."""

    def __init__(self, seed: int, mark: str) -> None:
        self._random = random.Random(seed)
        self._mark = mark
        self._bare = [f"{mark}{n}" for n in range(8)]
        self.ids = [*self._bare]

    def step(self) -> tuple[str, dict[str, Any]]:
        pick = self._random.choice
        ids = self._random.sample(self.ids, self._random.randint(1, 3))
        scope = pick([EVERYONE, Scope.of("a"), Scope.of("b")])
        match pick(["write"] * 6 + ["transfer"] * 3 + ["delete"] * 2 + ["bury", "count", "forget", "settle"]):
            case "transfer":
                seq, moves = self._random.randint(400, 600), self._random.randint(0, 4)
                drafts = [
                    self._draft(seq=seq + n, moves=moves, salience=2.5, arrival=pick([None, "x"]))
                    for n in range(pick([1, 2]))
                ]
                return "transfer", {"drafts": drafts}
            case "settle":
                return "settle", {"ids": ids}
            case "delete":
                reason = pick(["moved", "moved", "forgotten", "undo"])
                return "delete", {"ids": ids, "stale": pick([True, False, False, False]), "reason": reason}
            case "bury":
                bucket = (pick(OWNERS), pick(SESSIONS))
                return "bury", {
                    "record_id": pick(self.ids),
                    "reason": pick(["moved", "forgotten"]),
                    "own": pick([True, False]),
                    "moves": pick([0, 1, 2]),
                    "bucket": bucket,
                }
            case "count":
                return "count", {"ids": [*ids, ids[0]], "scope": scope}
            case "forget":
                selected = pick(
                    [
                        Filter(scope, ids=tuple(ids)),
                        Filter(scope, where(session=pick(SESSIONS), role="user")),
                        Filter(scope, words=("one",)),
                        Filter(scope, key_prefix=self._mark + "k"),
                    ]
                )
                return "forget", {"selected": selected}
            case _:
                drafts = [self._draft() for _ in range(pick([1, 1, 2, 4]))]
                writer = pick([EVERYONE, EVERYONE, Scope(frozenset({d.owner for d in drafts}))])
                return "write", {"drafts": drafts, "scope": writer}

    def _draft(self, **more: object) -> Draft:
        pick = self._random.choice
        owner = pick(OWNERS)
        key = pick([None, None, "k", "k/1"])
        # An id that is one owner's alias and another's record is left out: README.md says why.
        own = [i for i in self.ids if i.endswith(f"-{owner}")]
        record_id = pick([*self._bare, *own]) if key is None else f"{pick(self._bare)}-{owner}"
        self.ids = list(dict.fromkeys([*self.ids, record_id]))
        return Draft.model_validate(
            {
                "id": record_id,
                "owner": owner,
                "session": pick(SESSIONS),
                "content": pick(["one", "two one", "x"]),
                "key": key and self._mark + key,
                "role": pick(["user", None]),
                "metadata": {"n": pick([1, [], 2**70])},
                "embedding": pick([None, [1.0, 0.25]]),
                **more,
            }
        )


@pytest.mark.parametrize("seed", range(3))
async def test_random_steps_end_as_in_the_reference(store: WorkingStore, seed: int) -> None:
    mark = uuid4().hex[:6]
    dice = Dice(seed, mark)
    reference, tested = Player(MemoryTier(), mark), Player(store, mark)
    for turn in range(60):
        name, given = dice.step()
        expected, found = await reference.run(name, **given), await tested.run(name, **given)
        assert found == expected, (name, given)
        if turn % 4:
            continue
        assert await tested.run("graves", ids=dice.ids) == await reference.run("graves", ids=dice.ids), (
            name,
            given,
        )
        assert await tested.run("state") == await reference.run("state"), (name, given)
