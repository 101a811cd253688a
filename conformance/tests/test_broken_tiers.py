"""Federations with one fault: each fails at the requirement it breaks, and nowhere else."""

import pytest

CASES = []


def breaks(requirement, *companions):
    """Register a broken server: what it breaks, and what cannot but fail with it."""

    def register(mutation):
        CASES.append(pytest.param(requirement, companions, mutation, id=f"{requirement}-{mutation.__name__}"))
        return mutation

    return register


def read(call, answer):
    return answer.get("result", {}).get("records", []) if call.of("recall", "timeline") else []


@breaks("TIERS-01")
async def a_tier_is_not_named(call):
    answer = await call.serve()
    for record in read(call, answer):
        if record["content"].endswith(" somewhere"):
            del record["tier"]
    return answer


@breaks("TIERS-02")
async def a_placement_is_forgotten(call):
    for record in call.written:
        if str(record.get("content")).startswith("placed in "):
            record.pop("tier", None)
    return await call.serve()


@breaks("TIERS-03")
async def an_unknown_tier_is_looked_at_last(call):
    unknown = call.of("recall", "timeline") and call.params.get("tier") == "no-such-tier"
    return call.refuse(-32602) if unknown and call.params.get("limit") == -1 else await call.serve()


@breaks("TIERS-04")
async def an_unknown_tier_is_empty(call):
    nothing = (
        call.of("promote") and call.params.get("tier") == "no-such-tier" and call.params.get("ids") == []
    )
    return call.answer(promoted=0) if nothing else await call.serve()


@breaks("TIERS-05")
async def recall_searches_all_tiers(call):
    if call.of("recall") and call.params.get("tier") != "no-such-tier" and "embedding" not in call.params:
        call.params.pop("tier", None)
    return await call.serve()


@breaks("TIERS-06")
async def working_is_not_searched(call):
    answer = await call.serve()
    if call.of("recall") and call.params.keys() == {"query", "where"}:
        records = [record for record in read(call, answer) if not record["content"].startswith("a note on ")]
        if len(records) < len(read(call, answer)):
            kept = [record for record in read(call, answer) if record.get("tier") != "working"]
            answer["result"]["records"] = kept
    return answer


@breaks("TIERS-07")
async def a_tier_alone_is_no_selector(call):
    if call.of("forget") and call.params.get("tier") == "working" and "where" in call.params:
        del call.params["tier"]
    return await call.serve()


@breaks("TIERS-09")
async def nothing_goes_back_to_working(call):
    if call.of("promote") and call.params.get("tier") == "working" and len(call.params.get("ids", [])) == 1:
        found = (await call.ask("timeline", where={"id": call.params["ids"]}))["records"]
        if found and " to working" in found[0]["content"]:
            return call.answer(promoted=0)
    return await call.serve()


@breaks("TIERS-10")
async def all_ids_are_counted(call):
    answer = await call.serve()
    if call.of("promote") and answer.get("result") == {"promoted": 0}:
        answer["result"]["promoted"] = len(call.params["ids"])
    return answer


@breaks("TIERS-11")
async def a_move_touches_the_metadata(call):
    answer = await call.serve()
    for record in read(call, answer):
        if record["content"] == "to be\n moved " and record["tier"] != "working":
            record["metadata"]["moved"] = True
    return answer


@breaks("TIERS-12", "TIERS-22")
async def groups_are_torn(call):
    answer = await call.serve()
    for number, record in enumerate(read(call, answer)):
        if "group" in record and number % 3 == 2:
            record["tier"] = "procedural" if record["tier"] == "semantic" else "semantic"
    return answer


@breaks("TIERS-13")
async def promote_needs_no_ids(call):
    nothing = call.of("promote") and "ids" not in call.params and "tier" in call.params
    return (
        call.answer(promoted=0) if nothing and call.params["tier"] != "no-such-tier" else await call.serve()
    )


@breaks("TIERS-14")
async def salience_is_not_added(call):
    if call.of("promote"):
        call.params.pop("salience", None)
    return await call.serve()


@breaks("TIERS-15")
async def a_moved_id_is_written_again(call):
    for record in call.written:
        if record.get("content") == "twice" and "id" in record:
            await call.ask("forget", ids=[record["id"]])
    return await call.serve()


@breaks("TIERS-16", "TIERS-17")
async def a_tier_is_not_counted(call):
    answer = await call.serve()
    if call.of("consolidate"):
        del answer["result"]["counts"]["semantic"]
    return answer


@breaks("TIERS-17")
async def the_counts_are_those_before(call):
    if not call.of("consolidate"):
        return await call.serve()
    answer = await call.serve()
    answer["result"]["counts"]["working"] += 1
    return answer


@breaks("TIERS-21", "DESCRIBE-11")
async def the_chain_ends_nowhere(call):
    answer = await call.serve()
    if call.of("describe") and "result" in answer:
        for tier in answer["result"]["tiers"]:
            if tier["name"] == "episodic":
                tier["spill_to"] = "archive"
    return answer


@breaks("TIERS-21")
async def the_chain_ends_in_procedures(call):
    answer = await call.serve()
    if call.of("describe") and "result" in answer:
        for tier in answer["result"]["tiers"]:
            if tier["name"] == "semantic":
                tier["spill_to"] = "procedural"
    return answer


@breaks("SESSIONS-12")
async def close_flushes_nothing(call):
    answer = await call.serve()
    if call.of("session/close") and "result" in answer:
        answer["result"]["flushed"] = 0
    return answer


@breaks("SESSIONS-14")
async def close_takes_procedures_along(call):
    answer = await call.serve()
    for record in read(call, answer):
        if record["content"] == "how to do it":
            record["tier"] = "episodic"
    return answer


@breaks("EVENTS-12")
async def a_move_is_logged_as_a_write(call):
    if call.of("events") and call.params.get("kinds") == ["promoted"]:
        call.params["kinds"] = ["promoted", "written"]
        answer = await call.serve()
        for event in answer["result"]["events"]:
            event["tier"] = "working"
        return answer
    return await call.serve()


@breaks("EVENTS-13")
async def consolidations_are_not_logged(call):
    if call.of("events") and call.params.get("kinds") == ["consolidated"]:
        return call.answer(events=[], cursor=call.params["cursor"])
    return await call.serve()


@breaks("KEYS-15")
async def a_moved_key_is_written_beside(call):
    for record in call.written:
        if record.get("content") == "new" and str(record.get("key", "")).endswith(("/episodic", "/semantic")):
            del record["key"]
    return await call.serve()


@pytest.mark.parametrize(("requirement", "companions", "mutation"), CASES)
async def test_a_broken_server_fails_where_it_is_broken(
    try_federation, failed, requirement, companions, mutation
):
    finished = await try_federation(mutation)
    assert sorted(failed(finished)) == sorted({requirement, *companions}), failed(finished)
