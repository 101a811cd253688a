"""The width of vectors is that of those held: an empty store takes another."""

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_server.contract import draft
from a2m_server.values import EVERYONE, Filter, Search
from a2m_working.store import WorkingStore

WIDE = [1.0, 0.0, 0.0]


async def test_a_store_in_which_nothing_is_left_takes_vectors_of_another_width(single: WorkingStore) -> None:
    first = draft("first", embedding=[1.0, 0.0])
    await single.write([first, draft("words")], EVERYONE)
    with pytest.raises(A2MError) as refused:
        await single.write([draft("wide", embedding=WIDE)], EVERYONE)
    assert refused.value.code == Code.EMBEDDING_MISMATCH
    await single.forget(Filter())
    assert (await single.info()).dimensions is None
    assert (await single.search(Search(Filter(), 1, embedding=WIDE))).records == []
    await single.write([draft("wide", embedding=WIDE)], EVERYONE)
    assert (await single.info()).dimensions == 3
    with pytest.raises(A2MError) as refused:
        await single.write([draft("first again", embedding=[1.0, 0.0])], EVERYONE)
    assert refused.value.code == Code.EMBEDDING_MISMATCH
