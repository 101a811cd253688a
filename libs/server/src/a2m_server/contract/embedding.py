"""Vectors that are made after a record was written, and which records have none: the extension `embed`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft, Record
from a2m_server.contract.samples import draft, moved, name, where, within
from a2m_server.store import SearchingStore
from a2m_server.values import EVERYONE, Filter, Named, Search, Seen

WEST, NORTH = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]


class EmbeddingContract:
    """Of a fixture `store`, which may hold vectors of 4 numbers, and of `fresh`, which holds nothing."""

    async def test_what_a_model_saw_is_kept_and_found_by_meaning(self, store: SearchingStore) -> None:
        session, model = name(), name("m")
        [one, other] = await _written(store, draft("a", session=session), draft("b", session=session))
        found = await store.embed([_seen(one, WEST, model, "f1"), _seen(other, NORTH, model)])
        assert found == {one.id: True, other.id: True}
        [kept, also] = await store.read([one.id, other.id])
        assert (kept.embedding, kept.embedding_model, kept.features) == (WEST, model, "f1")
        assert (also.embedding, also.embedding_model, also.features) == (NORTH, model, None)
        assert kept.etag != one.etag
        own = {"embedding", "embedding_model", "features", "etag"}
        assert kept.model_dump(exclude=own) == one.model_dump(exclude=own)
        near = Search(within(session), 2, embedding=NORTH, embedding_model=model)
        assert [r.id for r in (await store.search(near)).records] == [other.id, one.id]

    async def test_only_what_still_has_its_etag_is_embedded(self, store: SearchingStore) -> None:
        model = name("m")
        [one, other] = await _written(store, draft("a"), draft("b"))
        await store.touch([other.id], "2026-01-01T00:00:00.000Z")
        gone = Seen(name("none"), "e", WEST, model)
        outcomes = await store.embed([_seen(one, WEST, model), _seen(other, WEST, model), gone])
        assert outcomes == {one.id: True, other.id: False, gone.id: False}
        [kept, left] = await store.read([one.id, other.id])
        assert (kept.embedding_model, left.embedding, left.access_count) == (model, None, 1)
        again = await store.embed([_seen(one, NORTH, model)])
        assert again == {one.id: False}, "its etag is another now"

    async def test_nothing_is_embedded_at_all(self, store: SearchingStore) -> None:
        assert await store.embed([]) == {}

    async def test_a_record_with_a_caller_s_vector_is_left_as_it_is(self, store: SearchingStore) -> None:
        [mine, other] = await _written(store, draft("mine", embedding=WEST), draft("other"))
        outcomes = await store.embed([_seen(mine, NORTH, "m", "f"), _seen(other, NORTH, "m", "f")])
        assert outcomes == {mine.id: False, other.id: True}
        assert await store.read([mine.id]) == [mine]

    async def test_another_model_takes_the_place_of_the_first(self, store: SearchingStore) -> None:
        session = name()
        [one] = await _written(store, draft("a", session=session))
        await store.embed([_seen(one, WEST, "first", "f1")])
        [one] = await store.read([one.id])
        await store.embed([_seen(one, NORTH, "second")])
        [kept] = await store.read([one.id])
        assert (kept.embedding, kept.embedding_model, kept.features) == (NORTH, "second", None)
        for model, found in (("first", []), ("second", [one.id])):
            search = Search(within(session), 2, embedding=NORTH, embedding_model=model)
            assert [r.id for r in (await store.search(search)).records] == found

    async def test_without_selects_what_has_no_vector_of_a_model(self, store: SearchingStore) -> None:
        session, model = name(), name("m")
        bare = draft("bare", session=session)
        ours = draft("ours", session=session, embedding=WEST, embedding_model=model)
        theirs = draft("theirs", session=session, embedding=WEST, embedding_model=name("other"))
        mine = draft("mine", session=session, embedding=WEST)
        blanks = [draft(text, session=session) for text in ("", " \n\t", "\u3000\u2003\x1f")]
        blank = draft(" ", session=session, embedding=WEST, embedding_model=name("other"))
        await store.write([bare, ours, theirs, mine, *blanks, blank], EVERYONE)
        assert await _without(store, session, model) == [bare.id, theirs.id]
        assert await _without(store, session, "") == [bare.id]
        [one] = await store.read([bare.id])
        await store.embed([_seen(one, WEST, model)])
        assert await _without(store, session, model) == [theirs.id]
        assert await _without(store, session, "") == []

    async def test_without_goes_with_other_filters_and_in_pages(self, store: SearchingStore) -> None:
        session = name()
        drafts = [draft(f"no {n}", session=session, role="ab"[n % 2]) for n in range(7)]
        await store.write(drafts, EVERYONE)
        selected = Filter(EVERYONE, where(session=session, role="a"), without="m")
        pages: list[list[str]] = []
        after: tuple[int, str] | None = None
        while page := await store.entries(selected, 3, after):
            pages.append([entry.id for entry in page])
            after = (page[-1].seq, page[-1].id)
        wanted = [d.id for d in drafts[::2]]
        assert pages == [wanted[:3], wanted[3:]]

    async def test_a_value_that_is_written_anew_has_no_vector_until_it_is_embedded(
        self, store: SearchingStore
    ) -> None:
        session, key = name(), name("k")
        [one] = await _written(store, draft("old", session=session, key=key))
        await store.embed([_seen(one, WEST, "m")])
        await store.write([draft("new", session=session, key=key)], EVERYONE)
        assert await _without(store, session, "") == [one.id]
        [kept] = await store.read([one.id])
        assert (kept.content, kept.embedding, kept.embedding_model) == ("new", None, None)

    async def test_a_move_brings_its_vector_or_is_listed_without(self, store: SearchingStore) -> None:
        session = name()
        [one, other] = await _written(store, draft("a", session=session), draft("b", session=session))
        await store.embed([_seen(one, WEST, "m")])
        [one] = await store.read([one.id])
        await store.transfer([moved(one), moved(other)])
        assert await _without(store, session, "m") == [other.id]
        [kept] = await store.read([one.id])
        assert (kept.embedding, kept.embedding_model) == (WEST, "m")

    async def test_a_forget_or_a_move_meanwhile_wins(self, store: SearchingStore) -> None:
        session = name()
        records = await _written(store, *(draft(str(n), session=session) for n in range(3)))
        await store.forget(Filter(ids=(records[0].id,)))
        await store.delete_if([Named(records[1].id, records[1].etag)], "moved", "t")
        outcomes = await store.embed([_seen(record, WEST, "m") for record in records])
        assert [outcomes[record.id] for record in records] == [False, False, True]
        assert [r.id for r in await store.read([r.id for r in records])] == [records[2].id]
        found = (await store.remnants([records[0].id, records[1].id])).remnants
        assert [remnant for remnant in found if not remnant.history] == []

    async def test_of_a_forget_and_an_embedding_at_once_nothing_stays(self, store: SearchingStore) -> None:
        session = name()
        records = await _written(store, *(draft(str(n), session=session) for n in range(8)))
        calls = [store.embed([_seen(record, WEST, "m")]) for record in records]
        await asyncio.gather(*calls, *(store.forget(Filter(ids=(record.id,))) for record in records))
        assert await store.read([record.id for record in records]) == []

    async def test_two_widths_at_once_are_refused(self, store: SearchingStore) -> None:
        [one, other] = await _written(store, draft("a"), draft("b"))
        with pytest.raises(A2MError) as caught:
            await store.embed([_seen(one, WEST, "m"), _seen(other, [1.0], "m")])
        assert caught.value.code == Code.EMBEDDING_MISMATCH
        assert [r.embedding for r in await store.read([one.id, other.id])] == [None, None]

    async def test_a_width_is_not_changed_for_what_is_not_there(self, fresh: SearchingStore) -> None:
        [one, _] = await _written(fresh, draft("a"), draft("b", embedding=WEST, embedding_model="m"))
        assert await fresh.embed([Seen(one.id, "stale", [1.0, 0.0], "wide")]) == {one.id: False}
        assert (await fresh.info()).dimensions == 4

    async def test_a_vector_of_another_width_takes_the_place_of_all(self, fresh: SearchingStore) -> None:
        session = name()
        one, other, last = await _written(fresh, *(draft(f"river {n}", session=session) for n in range(3)))
        await fresh.embed([_seen(one, WEST, "m", "f"), _seen(other, NORTH, "m", "f")])
        [other] = await fresh.read([other.id])
        await _embedded(fresh, other.id, [0.0, 1.0], "wide", "g")
        assert (await fresh.info()).dimensions == 2
        read = await fresh.read([one.id, other.id])
        kept = {r.id: (r.embedding, r.embedding_model, r.features) for r in read}
        assert kept == {one.id: (None, None, None), other.id: ([0.0, 1.0], "wide", "g")}
        assert await _without(fresh, session, "") == [one.id, last.id]
        near = Search(within(session), 3, embedding=[0.0, 1.0], embedding_model="wide")
        assert [r.id for r in (await fresh.search(near)).records] == [other.id]
        by_words = Search(within(session), 3, text="river")
        assert {r.id for r in (await fresh.search(by_words)).records} == {one.id, other.id, last.id}
        with pytest.raises(A2MError) as caught:
            await fresh.search(Search(within(session), 3, embedding=WEST))
        assert caught.value.code == Code.EMBEDDING_MISMATCH
        with pytest.raises(A2MError) as caught:
            await fresh.write([draft("old width", embedding=WEST)], EVERYONE)
        assert caught.value.code == Code.EMBEDDING_MISMATCH
        rest = await fresh.read([one.id, last.id])
        assert set((await fresh.embed([_seen(r, [1.0, 0.0], "wide") for r in rest])).values()) == {True}
        assert len((await fresh.search(near)).records) == 3
        assert await _without(fresh, session, "wide") == []

    async def test_a_caller_s_vector_keeps_the_width(self, fresh: SearchingStore) -> None:
        session = name()
        one, mine = await _written(
            fresh, draft("a", session=session), draft("mine", session=session, embedding=WEST)
        )
        for record in (one, mine):
            with pytest.raises(A2MError) as caught:
                await fresh.embed([_seen(record, [0.0, 1.0], "wide")])
            assert caught.value.code == Code.EMBEDDING_MISMATCH
        with pytest.raises(A2MError) as caught:
            await fresh.embed([Seen(one.id, "stale", [0.0, 1.0], "wide")])
        assert caught.value.code == Code.EMBEDDING_MISMATCH, "asked without an effect"
        assert (await fresh.info()).dimensions == 4
        [kept] = await fresh.read([mine.id])
        assert (kept.embedding, kept.etag) == (WEST, mine.etag)
        await fresh.forget(Filter(ids=(mine.id,)))
        await _embedded(fresh, one.id, [0.0, 1.0], "wide")
        assert (await fresh.info()).dimensions == 2

    async def test_a_caller_s_vector_of_the_width_that_is_coming_in_is_kept(
        self, fresh: SearchingStore
    ) -> None:
        session = name()
        one, other = await _written(fresh, draft("a", session=session), draft("b", session=session))
        await fresh.embed([_seen(one, WEST, "m"), _seen(other, WEST, "m")])
        [one] = await fresh.read([one.id])
        await fresh.embed([_seen(one, [0.0, 1.0], "wide")])
        mine = draft("mine", session=session, embedding=[1.0, 0.0])
        await fresh.write([mine], EVERYONE)
        for record in (one, other):
            await _embedded(fresh, record.id, [0.0, 1.0], "wide")
        [kept] = await fresh.read([mine.id])
        assert (kept.embedding, kept.embedding_model) == ([1.0, 0.0], None)
        assert await _without(fresh, session, "wide") == []


def _seen(record: Record, embedding: Sequence[float], model: str, features: str | None = None) -> Seen:
    return Seen(record.id, record.etag, embedding, model, features)


async def _embedded(
    store: SearchingStore, record_id: str, embedding: Sequence[float], model: str, features: str | None = None
) -> None:
    """Embed a record as it stands, in as many calls as a store needs to make room for another width."""
    for _ in range(10):
        [record] = await store.read([record_id])
        if (await store.embed([_seen(record, embedding, model, features)]))[record_id]:
            return
    raise AssertionError("it was never kept")


async def _written(store: SearchingStore, *drafts: Draft) -> list[Record]:
    await store.write(drafts, EVERYONE)
    return await store.read([one.id for one in drafts])


async def _without(store: SearchingStore, session: str, model: str) -> list[str]:
    selected = Filter(EVERYONE, where(session=session), without=model)
    return [entry.id for entry in await store.entries(selected, 100, None)]
