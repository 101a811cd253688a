"""Servers that describe or write with one fault: each fails at what it breaks, and nowhere else."""

import pytest

CASES = []


def breaks(requirement, *companions):
    """Register a broken server: what it breaks, and what cannot but fail with it."""

    def register(mutation):
        CASES.append(pytest.param(requirement, companions, mutation, id=f"{requirement}-{mutation.__name__}"))
        return mutation

    return register


@breaks("DESCRIBE-01", "DESCRIBE-07")
async def another_protocol_is_spoken(call):
    answer = await call.serve()
    if call.of("describe") and "result" in answer:
        answer["result"]["protocol"] = "a2m/0.1.0"
    return answer


@breaks("DESCRIBE-02")
async def a_capability_is_made_up(call):
    answer = await call.serve()
    if call.of("describe") and "result" in answer:
        answer["result"]["capabilities"].append("telepathy")
    return answer


@breaks("DESCRIBE-03")
async def a_method_is_not_listed(call):
    answer = await call.serve()
    if call.of("describe") and "result" in answer:
        answer["result"]["methods"].remove("memory/timeline")
    return answer


@breaks("DESCRIBE-08")
async def every_version_is_served(call):
    if call.of("describe"):
        call.params.pop("protocol", None)
    return await call.serve()


@breaks("DESCRIBE-12")
async def a_batch_too_big_is_split(call):
    most = (await call.ask("describe"))["limits"]["max_records_per_call"]
    records = call.params.get("records")
    if not call.of("remember") or not isinstance(records, list) or len(records) <= most:
        return await call.serve()
    first = await call.serve(records=records[:most])
    rest = await call.serve(records=records[most:])
    return call.answer(ids=first["result"]["ids"] + rest["result"]["ids"])


@breaks("DESCRIBE-14", "DESCRIBE-15")
async def the_longest_content_is_one_of_bytes(call):
    for record in call.written:
        if len(str(record.get("content")).encode()) > 1_000_000:
            return await call.serve() if len(record["content"]) < 1_000_000 else call.answer(ids=["lost"])
    return await call.serve()


@breaks("CAPABILITY-01")
async def undeclared_methods_do_not_exist(call):
    return call.refuse(-32601) if call.of("promote", "consolidate") else await call.serve()


@breaks("CAPABILITY-02")
async def unknown_methods_are_invalid(call):
    answer = await call.serve()
    return call.refuse(-32600) if answer.get("error", {}).get("code") == -32601 else answer


@breaks("CAPABILITY-04")
async def unknown_parameters_are_refused(call):
    return call.refuse(-32602) if call.of("forget") and "x_colour" in call.params else await call.serve()


@breaks("CAPABILITY-05")
async def unknown_fields_are_refused(call):
    strange = any("x_colour" in record for record in call.written)
    return call.refuse(-32602) if strange else await call.serve()


@breaks("CAPABILITY-06")
async def undeclared_fields_are_checked(call):
    strange = any(isinstance(record.get("owner"), dict) for record in call.written)
    return call.refuse(-32602) if strange else await call.serve()


@breaks("CAPABILITY-07")
async def a_placement_is_dropped(call):
    for record in call.written:
        record.pop("tier", None)
    return await call.serve()


@breaks("CAPABILITY-09")
async def an_undeclared_filter_of_a_forget_is_dropped(call):
    if call.of("forget"):
        call.params.pop("tier", None)
    return await call.serve()


@breaks("CAPABILITY-12", "FORGET-01")
async def some_writes_are_read_only(call):
    return call.refuse(-32004) if call.of("forget") and not call.params else await call.serve()


@breaks("RECORD-03")
async def content_is_stripped(call):
    for record in call.written:
        if isinstance(record.get("content"), str) and record["content"].strip():
            record["content"] = record["content"].strip()
    return await call.serve()


@breaks("RECORD-04")
async def empty_content_is_refused(call):
    empty = any(record.get("content") == "" for record in call.written)
    return call.refuse(-32602) if empty else await call.serve()


@breaks("RECORD-05")
async def roles_are_lowered(call):
    for record in call.written:
        if isinstance(record.get("role"), str):
            record["role"] = record["role"].lower()
    return await call.serve()


@breaks("RECORD-06")
async def nulls_are_dropped_from_metadata(call):
    for record in call.written:
        if isinstance(record.get("metadata"), dict):
            record["metadata"] = {
                key: value for key, value in record["metadata"].items() if value is not None
            }
    return await call.serve()


@breaks("RECORD-07")
async def integers_become_doubles(call):
    for record in call.written:
        metadata = record.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("number"), int):
            metadata["number"] = int(float(metadata["number"]))
    return await call.serve()


@breaks("RECORD-10")
async def groups_become_plain(call):
    for record in call.written:
        if isinstance(record.get("group"), str):
            record["group"] = record["group"].encode("ascii", "ignore").decode()
    return await call.serve()


@breaks("RECORD-11", "RECORD-12")
async def ids_are_trimmed(call):
    for record in call.written:
        if isinstance(record.get("id"), str) and record["id"].strip():
            record["id"] = record["id"].strip().replace("\n", " ")
    return await call.serve()


@breaks("REMEMBER-01")
async def chosen_ids_come_first(call):
    answer = await call.serve()
    if call.of("remember") and "result" in answer:
        chosen = {record.get("id") for record in call.written}
        answer["result"]["ids"].sort(key=lambda name: name not in chosen)
    return answer


@breaks("REMEMBER-04", "REMEMBER-06", "EVENTS-08")
async def a_known_id_is_written_anew(call):
    chosen = [record["id"] for record in call.written if "id" in record and "key" not in record]
    if chosen and len(set(map(str, chosen))) == len(chosen) == len(call.written):
        await call.ask("forget", ids=chosen)
    return await call.serve()


@breaks("REMEMBER-05")
async def the_last_of_a_batch_wins(call):
    last = {
        str(record["id"]): record["content"] for record in call.written if {"id", "content"} <= record.keys()
    }
    for record in call.written:
        if {"id", "content"} <= record.keys():
            record["content"] = last[str(record["id"])]
    return await call.serve()


@breaks("REMEMBER-08")
async def no_records_are_a_success(call):
    empty = call.of("remember") and call.params.get("records") == []
    return call.answer(ids=[]) if empty else await call.serve()


@breaks("REMEMBER-09", "EXTERNAL-05", "REMEMBER-12", "EVENTS-09")
async def content_may_be_missing(call):
    for record in call.written:
        record.setdefault("content", "")
    return await call.serve()


@breaks("REMEMBER-10", "REMEMBER-12")
async def roles_of_any_type_are_taken(call):
    for record in call.written:
        if "role" in record:
            record["role"] = str(record["role"])
    return await call.serve()


@breaks("REMEMBER-11")
async def an_empty_id_is_replaced(call):
    for record in call.written:
        if record.get("id") == "":
            del record["id"]
    return await call.serve()


@breaks("REMEMBER-12", "EVENTS-09")
async def the_good_half_of_a_batch_is_kept(call):
    answer = await call.serve()
    if answer.get("error", {}).get("code") == -32602 and 1 < len(call.params.get("records") or []) < 10:
        for record in call.written:
            await call.ask("remember", records=[record])
    return answer


@breaks("FORGET-01")
async def a_forget_without_selector_forgets_nothing(call):
    selectors = call.params.keys() & {"ids", "query", "where", "tier", "key_prefix"}
    return call.answer(forgotten=0) if call.of("forget") and not selectors else await call.serve()


@breaks("FORGET-03")
async def every_id_is_counted(call):
    answer = await call.serve()
    if call.of("forget") and call.params.keys() == {"ids"} and "result" in answer:
        answer["result"]["forgotten"] = len(set(call.params["ids"]))
    return answer


@breaks("FORGET-04")
async def an_id_twice_counts_twice(call):
    answer = await call.serve()
    if call.of("forget") and call.params.keys() == {"ids"} and answer.get("result", {}).get("forgotten") == 1:
        answer["result"]["forgotten"] = max(1, len(call.params["ids"]) - len(set(call.params["ids"])) + 1)
    return answer


@breaks("FORGET-06", "FORGET-08")
async def a_query_forgets_the_nearest(call):
    query = call.params.get("query")
    if call.of("forget") and isinstance(query, str) and query.replace(" ", "").isalpha():
        found = (await call.ask("recall", query=query, limit=50))["records"]
        del call.params["query"]
        call.params.setdefault("ids", [record["id"] for record in found])
    return await call.serve()


@breaks("FORGET-08")
async def one_selector_is_enough(call):
    if call.of("forget") and call.where and call.params.get("ids"):
        del call.params["where"]
    return await call.serve()


@breaks("FORGET-09")
async def no_ids_are_no_selector(call):
    if call.of("forget") and call.params.get("ids") == [] and len(call.params) > 1:
        del call.params["ids"]
    return await call.serve()


@breaks("FORGET-10")
async def an_empty_where_is_left_out(call):
    if call.of("forget") and call.params.get("where") == {} and "ids" in call.params:
        del call.params["where"]
    return await call.serve()


@breaks("FORGET-12")
async def a_forgotten_id_is_burnt(call):
    for record in call.written:
        if str(record.get("id")).startswith("again-") and record["content"] != "first":
            return call.answer(ids=[record["id"]])
    return await call.serve()


@breaks("FORGET-13")
async def a_forget_stops_at_a_hundred(call):
    if call.of("forget") and call.where and "ids" not in call.params and "query" not in call.params:
        found = (await call.ask("timeline", where=call.where))["records"]
        call.params["ids"] = [record["id"] for record in found[:100]]
    return await call.serve()


@pytest.mark.parametrize(("requirement", "companions", "mutation"), CASES)
async def test_a_broken_server_fails_where_it_is_broken(
    try_server, failed, requirement, companions, mutation
):
    finished = await try_server(mutation)
    assert sorted(failed(finished)) == sorted({requirement, *companions}), failed(finished)
