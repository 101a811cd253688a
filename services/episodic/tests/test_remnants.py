"""What is left in any table is found."""

from a2m_episodic.store import EpisodicStore
from a2m_server.contract import draft, name
from a2m_server.values import EVERYONE, Filter

PLANTS = {
    "words": "INSERT INTO words (pk, marks) VALUES (-1, '{2}')",
    "lexical": "INSERT INTO lexical VALUES (-1, 1, 1, 1, true, null, '{1:1}/1000000000')",
    "vectors": "INSERT INTO vectors (pk, seq, active, vec) VALUES (-1, 1, true, '[1,0]')",
}


async def test_a_row_of_no_record_counts_as_of_every_id_that_is_gone(fresh: EpisodicStore) -> None:
    gone, kept = draft(embedding=[1.0, 0.0]), draft(embedding=[1.0, 0.0])
    await fresh.write([gone, kept], EVERYONE)
    await fresh.forget(Filter(ids=(gone.id,)))
    whole = (await fresh.remnants([kept.id])).remnants
    assert {r.place for r in whole} == {"records", "words", "lexical", "vectors"}
    for table, plant in PLANTS.items():
        assert (await fresh.remnants([gone.id])).remnants == []
        await execute(fresh, plant)
        found = (await fresh.remnants([gone.id, kept.id])).remnants
        assert [(r.id, r.place) for r in found if r.id == gone.id] == [(gone.id, f"{table} of no record")]
        assert [r for r in found if r.id == kept.id] == whole
        await execute(fresh, f"DELETE FROM {table} WHERE pk = -1")


async def test_a_record_that_is_put_back_is_found_with_its_key_and_aliases(store: EpisodicStore) -> None:
    one = draft(key=name("k"), owner=name("o"), aliases=[name("alias")])
    await store.transfer([one])
    await execute(store, f"CREATE TABLE copy AS SELECT * FROM records WHERE id = '{one.id}'")
    await store.forget(Filter(ids=(one.id,)))
    assert (await store.remnants([one.id, *one.aliases])).remnants == []
    await execute(store, "INSERT INTO records SELECT * FROM copy")
    found = (await store.remnants([one.id, *one.aliases])).remnants
    assert {(r.id, r.place) for r in found} == {
        (one.id, "records"),
        (one.id, "keys"),
        (one.aliases[0], "aliases"),
    }


async def execute(store: EpisodicStore, sql: str) -> None:
    """Run SQL as somebody would whom no foreign key stops."""
    async with store._database.connection() as connection:  # pyright: ignore[reportPrivateUsage]
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(sql.encode())
        await connection.execute("RESET session_replication_role")
