"""Reading: scopes, filters, words, vectors, counts and pages."""

from __future__ import annotations

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_server.contract.samples import draft, name, where, within
from a2m_server.records import weight
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Filter, Named, Page, Scope, Search


class ReadContract:
    async def test_owners_do_not_see_each_other(self, store: TierStore) -> None:
        a, b, session = name("a"), name("b"), name()
        drafts = [draft("mine", owner=a, session=session), draft("theirs", owner=b, session=session)]
        await store.write([*drafts, draft("pooled", session=session)], EVERYONE)
        scope = Scope.of(a)
        found = await store.timeline(Page(within(session, scope)))
        assert [r.content for r in found.records] == ["mine", "pooled"]
        hits = await store.search(Search(within(session, scope), 10, text="mine theirs pooled"))
        assert {r.content for r in hits.records} == {"mine", "pooled"}
        assert (await store.forget(Filter(scope, ids=(drafts[1].id,)))).ids == []
        assert await store.reinforce([drafts[1].id], 1.0, scope) == 0
        listed = [s for s in (await store.sessions(scope)).sessions if s.session == session]
        assert {s.owner: s.records for s in listed} == {a: 1, None: 1}
        fresh = name()
        with pytest.raises(A2MError) as denied:
            await store.write([draft(id=drafts[1].id, owner=a), draft(id=fresh)], scope)
        assert denied.value.code == Code.SCOPE_DENIED
        assert b not in denied.value.message
        assert await store.read([fresh]) == []

    async def test_where_is_honoured_exactly(self, store: TierStore) -> None:
        session = name()
        held: list[dict[str, object]] = [
            {"n": 1, "s": "x"},
            {"n": True, "s": "y"},
            {"n": 1.0, "s": None},
            {"n": "1"},
            {"n": 2**70, "s": ["x"]},
            {"n": {"n": 1}},
        ]
        await store.write([draft(str(i), session=session, metadata=m) for i, m in enumerate(held)], EVERYONE)
        cases: list[tuple[dict[str, object], str]] = [
            ({"n": 1}, "02"),
            ({"n": True}, "1"),
            ({"n": "1"}, "3"),
            ({"n": 2**70}, "4"),
            ({"n": [True, "1"]}, "13"),
            ({"s": None}, "235"),
            ({"s": ["x", None]}, "0235"),
            ({"n": []}, ""),
            ({"n": {"gte": 1}}, "024"),
            ({"n": {"ne": 1}}, "1345"),
            ({"s": {"exists": True}}, "014"),
            ({"s": {"in": ["x", "y"]}, "n": True}, "1"),
        ]
        for conditions, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session, **conditions))))
            assert "".join(r.content for r in found.records) == expected, conditions

    async def test_where_reaches_the_provenance_and_not_what_poses_as_it(self, store: TierStore) -> None:
        session = name()
        held: list[dict[str, object]] = [
            {"source": "mail", "principal": "ann", "method": "remember", "at": "2026-01-01T00:00:00.000Z"},
            {"source": "web", "principal": "ann", "client": "curl/8", "at": "2026-01-02T00:00:00.000Z"},
            {"method": "summarize", "derived_from": ["one", "two"], "origins": ["mail", "web"]},
            {"method": "summarize", "derived_from": ["two"]},
        ]
        drafts = [draft(str(i), session=session, provenance=told) for i, told in enumerate(held)]
        posing = {"provenance.source": "mail", "provenance.derived_from": ["two"], "source": "mail"}
        posing |= {"provenance.origins": ["mail"]}
        await store.write([*drafts, draft("4", session=session, metadata=posing)], EVERYONE)
        cases: list[tuple[dict[str, object], str]] = [
            ({"provenance.source": "mail"}, "0"),
            ({"provenance.source": {"ne": "mail"}}, "1234"),
            ({"provenance.source": {"prefix": "we"}}, "1"),
            ({"provenance.source": ["web", "mail"], "provenance.principal": "ann"}, "01"),
            ({"provenance.source": None, "provenance.method": {"exists": True}}, "23"),
            ({"provenance.client": {"exists": True}}, "1"),
            ({"provenance.at": {"gte": "2026-01-02T00:00:00Z"}}, "1"),
            ({"provenance.at": "2026-01-01T00:00:00Z"}, "0"),
            ({"provenance.derived_from": "two"}, "23"),
            ({"provenance.derived_from": ["one", "three"]}, "2"),
            ({"provenance.derived_from": {"ne": "one"}}, "0134"),
            ({"provenance.derived_from": {"exists": False}}, "014"),
            ({"provenance.derived_from": [None, "one", *map(str, range(40))]}, "0124"),
            ({"provenance.origins": "web"}, "2"),
            ({"provenance.origins": {"exists": True}}, "2"),
            ({"source": "mail"}, "4"),
        ]
        for conditions, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session, **conditions))))
            assert "".join(r.content for r in found.records) == expected, conditions
        for wrong in ({"provenance": "mail"}, {"provenance.derived_from": {"prefix": "t"}}):
            with pytest.raises(A2MError) as refused:
                where(**wrong)
            assert refused.value.code == Code.INVALID_PARAMS
        kept = await store.read([one.id for one in drafts])
        assert [r.provenance for r in kept] == [one.provenance for one in drafts]

    async def test_where_reaches_the_record_s_own_fields(self, store: TierStore) -> None:
        session, group = name(), name("g")
        drafts = [
            draft("0", session=session, role="user", group=group),
            draft("1", session=session, role="tool", group=group, uri="u:1", media_type="a/b"),
            draft("2", session=session, salience=5.0, metadata={"role": "user"}),
        ]
        await store.write(drafts, EVERYONE)
        at = (await store.read([drafts[0].id]))[0].created_at
        cases: list[tuple[dict[str, object], str]] = [
            ({"role": "user"}, "0"),
            ({"role": None}, "2"),
            ({"group": group}, "01"),
            ({"id": drafts[1].id}, "1"),
            ({"uri": "u:1", "media_type": "a/b"}, "1"),
            ({"salience": {"gt": 1}}, "2"),
            ({"created_at": {"gte": at}}, "012"),
            ({"created_at": {"lt": at}}, ""),
            ({"content": "1"}, "1"),
            ({"accessed_at": None}, "012"),
            ({"access_count": 0}, "012"),
        ]
        for conditions, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session, **conditions))))
            assert "".join(r.content for r in found.records) == expected, conditions

    async def test_words_select_what_holds_all_of_them(self, store: TierStore) -> None:
        session = name()
        texts = ["the blue whale sings", "blue WHALES sing", "whale", "東京タワーへ行く"]
        await store.write([draft(t, session=session) for t in texts], EVERYONE)
        cases: list[tuple[tuple[str, ...], list[int]]] = [
            (("blue", "whale"), [0]),
            (("whale",), [0, 2]),
            ((), []),
            (("東京", "京タ"), [3]),
        ]
        for words, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session), words=words)))
            assert [r.content for r in found.records] == [texts[i] for i in expected]

    async def test_search_ranks_by_words_and_leaves_out_what_holds_none(self, store: TierStore) -> None:
        session = name()
        texts = ["a cat sat", "the cat and the cat", "a dog", "dogs and cats and birds and more of it all"]
        await store.write([draft(t, session=session) for t in texts], EVERYONE)
        found = (await store.search(Search(within(session), 10, text="cat"))).records
        assert {r.content for r in found} == {texts[0], texts[1], texts[3]}
        scores = [r.score for r in found if r.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert len(scores) == len(found)
        assert (await store.search(Search(within(session), 10, text="zebra"))).records == []
        assert (await store.search(Search(within(session), 10, text="?!"))).records == []
        assert len((await store.search(Search(within(session), 2, text="cat"))).records) == 2

    async def test_search_without_a_query_is_newest_first(self, store: TierStore) -> None:
        session = name()
        await store.write([draft(str(n), session=session) for n in range(5)], EVERYONE)
        found = (await store.search(Search(within(session), 3))).records
        assert [r.content for r in found] == ["4", "3", "2"]

    async def test_search_by_vector_compares_with_vectors_of_the_same_origin(self, store: TierStore) -> None:
        session = name()
        by_caller = draft("caller", session=session, embedding=[1.0, 0.0, 0.0, 0.0])
        far = draft("far", session=session, embedding=[-1.0, 0.1, 0.0, 0.0])
        by_model = draft("model", session=session, embedding=[1.0, 0.0, 0.0, 0.0], embedding_model="m")
        await store.write([by_caller, far, by_model, draft("none", session=session)], EVERYONE)
        query = [1.0, 0.1, 0.0, 0.0]
        found = (await store.search(Search(within(session), 10, embedding=query))).records
        assert [r.content for r in found] == ["caller", "far"]
        search = Search(within(session), 10, embedding=query, embedding_model="m")
        assert [r.content for r in (await store.search(search)).records] == ["model"]
        both = (await store.search(Search(within(session), 10, text="none", embedding=query))).records
        assert {r.content for r in both} == {"caller", "far", "none"}

    async def test_a_vector_of_another_width_is_refused_whole(self, store: TierStore) -> None:
        await store.write([draft(embedding=[1.0, 2.0, 3.0, 4.0])], EVERYONE)
        fresh = draft()
        with pytest.raises(A2MError) as refused:
            await store.write([fresh, draft(embedding=[1.0, 2.0])], EVERYONE)
        assert refused.value.code == Code.EMBEDDING_MISMATCH
        assert await store.read([fresh.id]) == []
        with pytest.raises(A2MError) as unlike:
            await store.search(Search(Filter(), 5, embedding=[1.0]))
        assert unlike.value.code == Code.EMBEDDING_MISMATCH

    async def test_counts_sessions_and_reinforcement_follow_the_records(self, store: TierStore) -> None:
        owner, session = name(), name()
        scope = Scope.of(owner)
        before = sum((await store.counts(scope)).values())
        drafts = [draft(str(n), owner=owner, session=session) for n in range(3)]
        await store.write([*drafts, draft(owner=owner)], EVERYONE)
        assert sum((await store.counts(scope)).values()) == before + 4
        [listed] = [s for s in (await store.sessions(scope)).sessions if s.session == session]
        records = (await store.timeline(Page(within(session)))).records
        assert (listed.records, listed.owner) == (3, owner)
        assert (listed.opened_at, listed.touched_at) == (records[0].created_at, records[-1].created_at)
        assert await store.reinforce([drafts[0].id, name(), drafts[1].id], 1.5, scope) == 2
        await store.touch([drafts[0].id, drafts[0].id, name()], "2026-01-01T00:00:00.000Z")
        [record] = await store.read([drafts[0].id])
        assert (record.salience, record.access_count) == (2.5, 2)
        assert record.accessed_at == "2026-01-01T00:00:00.000Z"
        assert record.etag != records[0].etag
        await store.forget(within(session))
        assert sum((await store.counts(scope)).values()) == before + 1
        assert not [s for s in (await store.sessions(scope)).sessions if s.session == session]

    async def test_entries_page_through_what_matches_oldest_first(self, store: TierStore) -> None:
        session, group = name(), name("g")
        drafts = [draft(str(n), session=session, group=group) for n in range(7)]
        await store.write(drafts, EVERYONE)
        seen: list[str] = []
        after = None
        while page := await store.entries(within(session), 3, after):
            seen += [entry.id for entry in page]
            after = (page[-1].seq, page[-1].id)
        assert seen == [d.id for d in drafts]
        [entry] = await store.entries(Filter(ids=(drafts[0].id,)), 10, None)
        [record] = await store.read([drafts[0].id])
        assert (entry.etag, entry.group, entry.session) == (record.etag, group, session)

    async def test_what_an_owner_holds_is_weighed_and_freed_by_a_forget(self, store: TierStore) -> None:
        owner, session = name("o"), name()
        assert sum((await store.held(owner)).values()) == 0
        drafts = [
            draft("x" * 5_000, owner=owner, session=session),
            draft("Füße " * 1_000, owner=owner, metadata={"a": "y" * 3_000}),
            draft("z" * 2_000, owner=owner, key=name("k"), provenance={"derived_from": [name()] * 9}),
            draft("other", owner=name("o"), session=session),
            draft("pooled", session=session),
        ]
        await store.write(drafts, EVERYONE)
        told = await store.held(owner)
        assert [*told] == [(await store.info()).name]
        expected = sum(weight(one) for one in drafts[:3])
        assert expected <= sum(told.values()) <= expected + 3 * 250
        arriving = draft("w" * 9_000, owner=owner, seq=10**15, moves=1, arrival="working e")
        await store.transfer([arriving])
        assert await store.held(owner) == told
        [entry] = await store.entries(Filter(ids=(arriving.id,)), 1, None)
        await store.settle([Named(arriving.id, entry.etag)])
        more = sum((await store.held(owner)).values()) - sum(told.values())
        assert weight(arriving) - 10 <= more <= weight(arriving) + 250
        await store.reinforce([drafts[0].id], 1.0, EVERYONE)
        await store.touch([drafts[0].id], "2026-01-01T00:00:00.000Z")
        assert sum((await store.held(owner)).values()) == sum(told.values()) + more
        await store.forget(Filter(ids=(drafts[0].id, arriving.id)))
        assert 0 <= sum((await store.held(owner)).values()) - weight(drafts[1]) - weight(drafts[2]) <= 500
        await store.forget(Filter(Scope(frozenset({owner}))))
        assert sum((await store.held(owner)).values()) == 0

    async def test_a_caller_s_vector_weighs_and_a_model_s_does_not(self, store: TierStore) -> None:
        owner = name("o")
        width = (await store.info()).dimensions or 3
        await store.write([draft("x", owner=owner)], EVERYONE)
        before = sum((await store.held(owner)).values())
        mine = draft("x", owner=owner, embedding=[1.0] * width)
        await store.write([mine], EVERYONE)
        assert sum((await store.held(owner)).values()) - before >= 4 * width
