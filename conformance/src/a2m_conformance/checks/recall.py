"""memory/recall."""

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_list
from a2m_conformance.values import equal, ids, is_ascending, is_number

_QUERIES = (
    '"',
    "'",
    "AND OR NOT",
    "NEAR/3 (a b",
    "a* ?b -c +d ~e ^f",
    "50% _ \\",
    "[a-z]+(",
    "日本語 العربية 🧠",
    "@field:{tag} | !x",
    "?!",
    " \n\t",
    "; DROP TABLE records; --",
    "word " * 500,
)


@check("RECALL-01")
async def scores_descend(probe: Probe) -> None:
    word = probe.word()
    await probe.write(*(f"{word} " * repeats + "and other words" for repeats in range(1, 6)))
    for query in (word, None):
        scores = [record.get("score") for record in await probe.found(query)]
        expect(len(scores) == 5, f"5 records match, {len(scores)} came")
        expect(all(map(is_number, scores)), f"a score is no number: {scores}")
        expect(is_ascending(reversed(scores)), f"the scores do not descend: {scores}")


@check("RECALL-02")
async def eight_is_the_default(probe: Probe) -> None:
    word = probe.word()
    await probe.write(*(f"{word} number {number}" for number in range(11)))
    equal(len(await probe.found(word)), 8, "records without a limit, with a query")
    equal(len(await probe.found()), 8, "records without a limit, without a query")


@check("RECALL-03")
async def the_limit_holds(probe: Probe) -> None:
    word = probe.word()
    await probe.write(*(f"{word} number {number}" for number in range(11)))
    for limit in (1, 3, 10):
        equal(len(await probe.found(word, limit=limit)), limit, f"records with a limit of {limit}")
    equal(len(await probe.found(word, limit=50)), 11, "records with a limit above what matches")


@check("RECALL-04")
async def zero_is_no_limit(probe: Probe) -> None:
    if "max_recall_limit" in probe.limits:
        raise NotApplicable("max_recall_limit is declared")
    word = probe.word()
    await probe.write(*(f"{word} number {number}" for number in range(11)))
    equal(len(await probe.found(word, limit=0)), 11, "records with a limit of 0, with a query")
    equal(len(await probe.found(limit=0)), 11, "records with a limit of 0, without a query")


@check("RECALL-05")
async def without_a_query_the_newest_come_first(probe: Probe) -> None:
    times: list[Json] = []
    async for attempt in probe.tries():
        await probe.write(f"number {attempt}")
        times = [record["created_at"] for record in await probe.found(limit=attempt + 1)]
        expect(len(times) == attempt + 1, f"{attempt + 1} records match, {len(times)} came")
        expect(is_ascending(reversed(times)), f"not the newest first: {times}")
        if len(set(times)) >= 4:
            break


@check("RECALL-06")
async def an_empty_query_is_none(probe: Probe) -> None:
    written = await probe.write("one", "two", "three")
    equal(sorted(ids(await probe.found(""))), sorted(written), "records of an empty query")


@check("RECALL-07")
async def min_score_drops(probe: Probe) -> None:
    word = probe.word()
    await probe.write(*(f"{word} " * repeats + "and other words" for repeats in range(1, 6)))
    expect(not await probe.found(word, min_score=1e9), "records came above a score of a thousand million")
    equal(len(await probe.found(word, min_score=-1e9)), 5, "records above a score that all have")
    for threshold in (0.2, 0.5, 0.9):
        for record in await probe.found(word, min_score=threshold):
            expect(record["score"] >= threshold, f"{record['score']} came with a min_score of {threshold}")


@check("RECALL-08")
async def scores_are_shares(probe: Probe) -> None:
    word = probe.word()
    await probe.write(f"{word} {word} {word}", f"{word} and more", "nothing of it")
    for record in [*await probe.found(word), *await probe.found()]:
        expect(0 <= record["score"] <= 1, f"a score of {record['score']}")


@check("RECALL-09")
async def words_are_found(probe: Probe) -> None:
    words = [probe.word() for _ in range(4)]
    written = await probe.write(*(f"a note about {word} and its kind" for word in words))
    for word, identifier in zip(words, written, strict=True):
        found = await probe.found(f"what about {word}")
        expect(found, "nothing was found for a word of a record")
        equal(found[0]["id"], identifier, "the first record for a word that one record holds")


@check("RECALL-10")
async def filters_come_before_the_limit(probe: Probe) -> None:
    word = probe.word()
    decoys = [probe.record(f"{word} {word} {word}", role="user") for _ in range(30)]
    few = [probe.record(f"much longer and only once {word} in it", role="tool") for _ in range(4)]
    written = await probe.write(*decoys[:15], *few, *decoys[15:])
    for query in (word, None):
        found = await probe.found(query, where={"role": "tool"}, limit=4)
        equal(sorted(ids(found)), sorted(written[15:19]), "the records of a role")


@check("RECALL-11")
async def nothing_comes_twice(probe: Probe) -> None:
    word = probe.word()
    await probe.write(*(f"{word} {number}" for number in range(30)))
    for query in (word, None):
        found = ids(await probe.found(query, limit=30))
        expect(len(set(found)) == len(found), "a record came twice")
        equal(len(found), 30, "records with a limit of as many")


@check("RECALL-12")
async def parameters_have_types(probe: Probe) -> None:
    wrong: dict[str, tuple[Json, ...]] = {
        "limit": (-1, "3", 1.5, True, [3]),
        "query": (5, ["word"], {"text": "word"}, True),
        "min_score": ("0.5", [0.5], True),
        "where": ("role", ["role"], 5),
    }
    for name, values in wrong.items():
        for value in values:
            await probe.refused("recall", {"query": "word", name: value}, -32602)


@check("RECALL-13")
async def any_text_is_a_query(probe: Probe) -> None:
    if not probe.read_only:
        await probe.write("some words")
    for query in _QUERIES:
        result = await probe.call("recall", query=query, limit=3)
        expect(is_list(result.get("records")), f"no list of records for {query[:20]!r}")


@check("RECALL-14")
async def asking_again_gives_the_same_order(probe: Probe) -> None:
    word = probe.word()
    await probe.write(*(f"{word} number {number}" for number in range(8)))
    for query in (word, None):
        first = ids(await probe.found(query, limit=3))
        for _ in range(3):
            equal(ids(await probe.found(query, limit=3)), first, "the same recall asked again")


@check("RECALL-15")
async def the_forgotten_is_not_recalled(probe: Probe) -> None:
    word = probe.word()
    written = await probe.write(f"{word} stays", f"{word} goes")
    await probe.call("forget", ids=written[1:])
    for query in (word, None):
        equal(ids(await probe.found(query)), written[:1], "what is recalled after a forget")
    expect(not await probe.found(word, where={"role": probe.word()}), "records came that match no filter")
