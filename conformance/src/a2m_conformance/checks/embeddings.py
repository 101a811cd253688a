"""Vectors of the caller's."""

import math

from a2m_conformance.check import check
from a2m_conformance.checks.tiers import writable_tiers
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import is_list, is_object
from a2m_conformance.tables import WRONG_VALUES
from a2m_conformance.values import contents, equal, ids, is_count, only

_METRICS = ("cosine", "dot", "l2")


@check("EMBEDDINGS-01")
async def vectors_are_described(probe: Probe) -> None:
    about = probe.about.get("embeddings")
    expect(is_object(about), f"embeddings is {about!r}")
    dimensions = about.get("dimensions", "missing")
    expect(dimensions is None or (is_count(dimensions) and dimensions > 0), f"dimensions is {dimensions!r}")
    expect(about.get("metric") in _METRICS, f"metric is {about.get('metric')!r}")
    metrics = about.get("metrics")
    expect(is_list(metrics) and set(metrics) <= set(_METRICS), f"metrics is {metrics!r}")
    expect(about["metric"] in metrics, "the metric in use is none of the metrics")
    model = about.get("model", 0)
    expect(model is None or isinstance(model, str), f"model is {model!r}")


@check("EMBEDDINGS-02")
async def vectors_are_verbatim(probe: Probe) -> None:
    vectors = [probe.vector(3.0, -0.5, 0.25), probe.vector(0.0, 0.0625, 1024.0), probe.vector(-1.0)]
    written = await probe.write(*(probe.record("vector", embedding=vector) for vector in vectors))
    found = {record["id"]: record for record in await probe.mine(embeddings=True)}
    recalled = {record["id"]: record for record in await probe.found(embeddings=True)}
    for identifier, vector in zip(written, vectors, strict=True):
        equal(found[identifier].get("embedding"), vector, "the vector in the timeline")
        equal(recalled[identifier].get("embedding"), vector, "the vector in recall")


@check("EMBEDDINGS-03")
async def vectors_are_not_returned_unasked(probe: Probe) -> None:
    vector = probe.vector(1.0, 2.0)
    await probe.write(probe.record("vector", embedding=vector))
    records = [*await probe.mine(), *await probe.found(), *await probe.found(embedding=vector)]
    records += [*await probe.mine(embeddings=False)]
    expect(len(records) == 4, "a record with a vector is not read")
    for record in records:
        expect("embedding" not in record, "a vector came back that nobody asked for")


@check("EMBEDDINGS-04")
async def other_widths_are_refused(probe: Probe) -> None:
    await _fix_width(probe)
    for wrong in (probe.vector(1.0)[:-1], [*probe.vector(1.0), 0.0]):
        records = [probe.record("good"), probe.record("bad", embedding=wrong)]
        await probe.refused("remember", {"records": records}, -32008)
    equal(len(await probe.mine()), 1, "records, of which one fixed the width")


@check("EMBEDDINGS-05")
async def other_widths_are_no_queries(probe: Probe) -> None:
    if not probe.read_only:
        await _fix_width(probe)
    elif not probe.about["embeddings"].get("dimensions"):
        raise NotApplicable("the store has no width yet")
    for wrong in (probe.vector(1.0)[:-1], [*probe.vector(1.0), 0.0]):
        await probe.refused("recall", {"embedding": wrong}, -32008)


@check("EMBEDDINGS-06")
async def the_metric_ranks(probe: Probe) -> None:
    query = probe.vector(1.0, 0.25)
    vectors = {
        "same": probe.vector(1.0, 0.25),
        "long": probe.vector(16.0, 12.0),
        "near": probe.vector(0.75, 0.0),
        "short": probe.vector(0.125, 0.0625),
        "aside": probe.vector(0.0, 2.25),
        "away": probe.vector(-1.0, 0.0),
    }
    await probe.write(*(probe.record(name, embedding=vector) for name, vector in vectors.items()))
    metric = probe.about["embeddings"]["metric"]
    wanted = sorted(vectors, key=lambda name: _distance(metric, query, vectors[name]))
    equal(contents(await probe.found(embedding=query, limit=6)), wanted, f"the order by {metric}")
    equal(contents(await probe.found(embedding=query, limit=2)), wanted[:2], f"the nearest two by {metric}")


@check("EMBEDDINGS-07")
async def vectors_are_lists_of_numbers(probe: Probe) -> None:
    strange = ([True] * probe.dimensions, [None] * probe.dimensions, 5)
    for value in (*WRONG_VALUES["embedding"], *strange):
        await probe.refused("remember", {"records": [probe.record("bad", embedding=value)]}, -32602)
        await probe.refused("recall", {"embedding": value}, -32602)


@check("EMBEDDINGS-08")
async def the_width_is_known(probe: Probe) -> None:
    await _fix_width(probe)
    equal((await probe.call("describe"))["embeddings"]["dimensions"], probe.dimensions, "dimensions")


@check("EMBEDDINGS-09")
async def filters_come_before_the_limit(probe: Probe) -> None:
    near, far = probe.vector(1.0, 0.0), probe.vector(0.5, 1.0)
    await probe.write(*(probe.record("decoy", role="user", embedding=near) for _ in range(20)))
    wanted = await probe.write(*(probe.record("rare", role="tool", embedding=far) for _ in range(3)))
    found = await probe.found(embedding=near, where={"role": "tool"}, limit=3)
    equal(sorted(ids(found)), sorted(wanted), "the records of a role, behind twenty nearer of another")


@check("EMBEDDINGS-10")
async def vectors_are_fetched(probe: Probe) -> None:
    key, vector = f"{probe.mark}/vector", probe.vector(3.0, -0.5)
    await probe.write(probe.record("vector", key=key, embedding=vector))
    asked = (await probe.call("fetch", key=key, embeddings=True))["record"]
    equal(asked.get("embedding"), vector, "the vector")
    plain = (await probe.call("fetch", key=key))["record"]
    expect("embedding" not in plain, "a vector came back that nobody asked for")


@check("EMBEDDINGS-11")
async def words_are_found_too(probe: Probe) -> None:
    word, vector = probe.word(), probe.vector(1.0, 1.0)
    await probe.write(f"{word} alone", probe.record("vector alone", embedding=vector))
    found = await probe.found(embedding=vector)
    expect(found, "nothing was found by the vector of a record")
    equal(found[0]["content"], "vector alone", "the first record by vector")
    equal(only(await probe.found(word, limit=1), "recall by a word")["content"], f"{word} alone", "by word")


@check("EMBEDDINGS-12")
async def every_tier_ranks_by_vectors(probe: Probe) -> None:
    near, far = probe.vector(0.0, 1.0, 1.0), probe.vector(1.0, -1.0, 0.0)
    for tier in await writable_tiers(probe):
        records = [
            probe.record(name, tier=tier, embedding=vector) for name, vector in (("far", far), ("near", near))
        ]
        await probe.write(*records)
        equal(
            contents(await probe.found(embedding=near, tier=tier, limit=1)),
            ["near"],
            f"the nearest in {tier}",
        )


async def _fix_width(probe: Probe) -> None:
    await probe.write(probe.record("of the store's width", embedding=probe.vector(1.0)))


def _distance(metric: str, left: list[float], right: list[float]) -> float:
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    if metric == "l2":
        return math.dist(left, right)
    if metric == "dot":
        return -dot
    return -dot / (math.hypot(*left) * math.hypot(*right))
