"""Servers with one fault in core: each fails at the requirement that it breaks, and nowhere else."""

import asyncio
import copy

import pytest

CASES = []


def breaks(requirement, *companions):
    """Register a broken server: what it breaks, and what cannot but fail with it."""

    def register(mutation):
        CASES.append(pytest.param(requirement, companions, mutation, id=f"{requirement}-{mutation.__name__}"))
        return mutation

    return register


@pytest.mark.parametrize(("requirement", "companions", "mutation"), CASES)
async def test_a_broken_server_fails_where_it_is_broken(try_server, failed, requirement, companions, mutation):
    finished = await try_server(mutation)
    assert sorted(failed(finished)) == sorted({requirement, *companions}), failed(finished)


def call.of(*methods):
    return message["method"] in [f"memory/{method}" for method in methods]


def records_of(answer):
    return answer.get("result", {}).get("records", [])


@breaks("DESCRIBE-01")
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
async def the_limit_of_records_is_not_enforced(call):
    records = call.params.get("records")
    if not call.of("remember") or not isinstance(records, list) or len(records) <= 1000:
        return await call.serve()
    answers = []
    for start in range(0, len(records), 1000):
        part = {**message, "params": {**call.params, "records": records[start : start + 1000]}}
        answers.append(await serve(part))
    answers[0]["result"]["ids"] = [name for answer in answers for name in answer["result"]["ids"]]
    return answers[0]


@breaks("DESCRIBE-13")
async def the_limit_of_a_recall_is_clamped(call):
    limit = call.params.get("limit")
    if call.of("recall") and type(limit) is int:
        call.params["limit"] = min(limit, 1000)
    return await call.serve()


@breaks("CAPABILITY-01")
async def undeclared_methods_do_not_exist(call):
    answer = await call.serve()
    if answer.get("error", {}).get("code") == -32003 and call.of("promote", "consolidate"):
        answer["error"]["code"] = -32601
    return answer


@breaks("CAPABILITY-02")
async def unknown_methods_are_invalid(call):
    answer = await call.serve()
    if answer.get("error", {}).get("code") == -32601:
        answer["error"]["code"] = -32600
    return answer


@breaks("CAPABILITY-04")
async def unknown_parameters_of_writes_are_refused(call):
    if call.of("remember") and "x_colour" in call.params:
        return call.refuse(-32602)
    return await call.serve()


@breaks("CAPABILITY-05")
async def unknown_fields_are_refused(call):
    if call.of("remember") and any("x_colour" in record for record in call.written):
        return call.refuse(-32602)
    return await call.serve()


@breaks("CAPABILITY-07")
async def a_placement_is_dropped(call):
    if call.of("remember"):
        for record in call.written:
            record.pop("tier", None)
    return await call.serve()


@breaks("CAPABILITY-08")
async def an_undeclared_filter_of_a_read_is_dropped(call):
    if call.of("recall", "timeline"):
        call.params.pop("tier", None)
    return await call.serve()


@breaks("CAPABILITY-09")
async def an_undeclared_filter_of_a_forget_is_dropped(call):
    if call.of("forget"):
        call.params.pop("tier", None)
    return await call.serve()


@breaks("RECORD-02")
async def times_are_numbers_of_seconds(call):
    answer = await call.serve()
    for record in records_of(answer):
        if call.of("recall", "timeline"):
            record["created_at"] = record["created_at"].replace("Z", "+00:00")
    return answer


@breaks("RECORD-03", "STDIO-06", "DESCRIBE-15")
async def content_is_stripped(call):
    if call.of("remember"):
        for record in call.written:
            if isinstance(record.get("content"), str) and record["content"].strip():
                record["content"] = record["content"].strip()
    return await call.serve()


@breaks("RECORD-05")
async def roles_are_lowered(call):
    if call.of("remember"):
        for record in call.written:
            if isinstance(record.get("role"), str):
                record["role"] = record["role"].lower()
    return await call.serve()


@breaks("RECORD-06")
async def nulls_are_dropped_from_metadata(call):
    if call.of("remember"):
        for record in call.written:
            metadata = record.get("metadata")
            if isinstance(metadata, dict):
                record["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    return await call.serve()


@breaks("RECORD-07")
async def numbers_become_doubles(call):
    answer = await call.serve()
    for record in records_of(answer):
        number = record.get("metadata", {}).get("number")
        if isinstance(number, int):
            record["metadata"]["number"] = int(float(number))
    return answer


@breaks("RECORD-09")
async def nulls_are_returned(call):
    answer = await call.serve()
    for record in records_of(answer):
        record.setdefault("group", None)
    return answer


@breaks("RECORD-11", "RECORD-12")
async def ids_are_trimmed(call):
    if call.of("remember"):
        for record in call.written:
            if isinstance(record.get("id"), str) and record["id"].strip():
                record["id"] = record["id"].strip().replace("\n", " ")
    return await call.serve()


@breaks("RECORD-13")
async def the_timeline_scores(call):
    answer = await call.serve()
    if call.of("timeline"):
        for record in records_of(answer):
            record["score"] = 1.0
    return answer


@breaks("REMEMBER-01", "REMEMBER-15", "RECORD-11", "RECORD-12", "EVENTS-02", "EVENTS-03", "REMEMBER-05")
async def ids_come_in_another_order(call):
    answer = await call.serve()
    if call.of("remember") and "result" in answer:
        answer["result"]["ids"].sort(reverse=True)
    return answer


@breaks("REMEMBER-04", "REMEMBER-06")
async def a_known_id_is_written_again(call):
    if call.of("remember") and all("id" in record for record in call.written):
        kept = await serve(call("timeline", where={"id": [record["id"] for record in call.written]}))
        if any("key" not in record for record in records_of(kept)):
            await serve(call("forget", ids=[record["id"] for record in records_of(kept)]))
    return await call.serve()


@breaks("REMEMBER-05")
async def the_last_of_a_batch_wins(call):
    if call.of("remember"):
        last = {}
        for record in call.written:
            if isinstance(record.get("id"), str) and "content" in record:
                last[record["id"]] = record["content"]
        for record in call.written:
            if isinstance(record.get("id"), str) and "content" in record:
                record["content"] = last[record["id"]]
    return await call.serve()


@breaks("REMEMBER-08")
async def no_records_are_a_success(call):
    if call.of("remember") and call.params.get("records") == []:
        return call.answer(ids=[])
    return await call.serve()


@breaks("REMEMBER-09", "EVENTS-09", "EXTERNAL-05", "REMEMBER-12")
async def content_may_be_missing(call):
    if call.of("remember"):
        for record in call.written:
            record.setdefault("content", "")
    return await call.serve()


@breaks("REMEMBER-11")
async def an_empty_id_is_replaced(call):
    if call.of("remember"):
        for record in call.written:
            if record.get("id") == "":
                del record["id"]
    return await call.serve()


@breaks("REMEMBER-12", "CAPABILITY-07", "EMBEDDINGS-04", "EVENTS-09")
async def the_good_half_of_a_batch_is_kept(call):
    answer = await call.serve()
    if call.of("remember") and "error" in answer and isinstance(call.params.get("records"), list):
        for record in call.params["records"][:-1]:
            await serve(call("remember", records=[record]))
    return answer


@breaks("REMEMBER-10", "REMEMBER-12")
async def roles_of_any_type_are_taken(call):
    if call.of("remember"):
        for record in call.written:
            if "role" in record:
                record["role"] = str(record["role"])
    return await call.serve()


@breaks("RECALL-01", "RECALL-09")
async def the_worst_comes_first(call):
    answer = await call.serve()
    if call.of("recall") and call.params.get("query"):
        records_of(answer).reverse()
    return answer


@breaks("RECALL-02")
async def ten_is_the_default(call):
    if call.of("recall"):
        call.params.setdefault("limit", 10)
    return await call.serve()


@breaks("RECALL-05", "CAPABILITY-03")
async def a_recall_needs_a_query(call):
    if call.of("recall") and not call.params.keys() & {"query", "embedding"}:
        return call.refuse(-32602)
    return await call.serve()


@breaks("RECALL-07")
async def min_score_is_dropped(call):
    if call.of("recall") and type(call.params.get("min_score")) in (int, float):
        del call.params["min_score"]
    return await call.serve()


@breaks("RECALL-10", "KEYS-08", "EMBEDDINGS-09")
async def filters_come_after_the_limit(call):
    params = call.params
    where = params.get("where")
    narrow = isinstance(where, dict) and "a2m_check" in where and ("role" in where or "key_prefix" in params)
    if not call.of("recall") or not narrow:
        return await call.serve()
    wide = {**params, "where": {"a2m_check": where["a2m_check"]}}
    wide.pop("key_prefix", None)
    nearest = {record["id"] for record in records_of(await serve({**message, "params": wide}))}
    answer = await call.serve()
    if "result" in answer:
        answer["result"]["records"] = [record for record in records_of(answer) if record["id"] in nearest]
    return answer


@breaks("RECALL-12")
async def a_negative_limit_is_none(call):
    if call.of("recall") and call.params.get("limit") == -1:
        del call.params["limit"]
    return await call.serve()


@breaks("RECALL-13")
async def quotes_break_the_query(call):
    if call.of("recall") and '"' in str(call.params.get("query")):
        return call.refuse(-32603)
    return await call.serve()


@breaks("TIMELINE-01")
async def a_timeline_descends(call):
    raise NotImplementedError


CASES.pop()


@breaks("TIMELINE-02", "TIMELINE-04", "SESSIONS-04")
async def the_limit_takes_the_oldest(call):
    params = call.params
    limit = params.get("limit")
    if not call.of("timeline") or type(limit) is not int or limit < 1:
        return await call.serve()
    answer = await serve({**message, "params": {name: params[name] for name in params if name != "limit"}})
    if "result" in answer:
        del answer["result"]["records"][limit:]
    return answer


@breaks("TIMELINE-03", "DESCRIBE-12", "FORGET-13")
async def a_timeline_has_a_limit_of_its_own(call):
    if call.of("timeline"):
        call.params.setdefault("limit", 50)
    return await call.serve()


@breaks("TIMELINE-04")
async def a_batch_is_in_order_of_ids(call):
    answer = await call.serve()
    if call.of("timeline"):
        records_of(answer).sort(key=lambda record: (record["created_at"], record["content"]))
    return answer


@breaks("TIMELINE-09")
async def the_timeline_is_a_recall(call):
    if call.of("timeline") and call.params.get("query"):
        return await serve({**message, "method": "memory/recall"})
    return await call.serve()


@breaks("FORGET-01")
async def a_forget_without_selector_forgets_nothing(call):
    selectors = call.params.keys() & {"ids", "query", "where", "tier", "key_prefix"}
    if call.of("forget") and not selectors:
        return call.answer(forgotten=0)
    return await call.serve()


@breaks("FORGET-03")
async def every_id_is_counted(call):
    answer = await call.serve()
    ids = call.params.get("ids")
    alone = call.params.keys() == {"ids"}
    if call.of("forget") and alone and "result" in answer:
        answer["result"]["forgotten"] = len(set(ids))
    return answer


@breaks("FORGET-06", "KEYS-14", "FORGET-08")
async def a_query_forgets_the_nearest(call):
    query = call.params.get("query")
    if call.of("forget") and isinstance(query, str) and any(map(str.isalpha, query)):
        found = records_of(await serve(call("recall", query=query, limit=50)))
        call.params["ids"] = [record["id"] for record in found]
        del call.params["query"]
    return await call.serve()


@breaks("FORGET-08", "FORGET-09", "CAPABILITY-09")
async def one_selector_is_enough(call):
    params = call.params
    if call.of("forget") and params.get("ids") and isinstance(params["ids"], list):
        params.pop("where", None) if params.get("where") else None
    return await call.serve()


@breaks("FORGET-09")
async def no_ids_are_no_selector(call):
    params = call.params
    if call.of("forget") and params.get("ids") == [] and len(params) > 1:
        del params["ids"]
    return await call.serve()


@breaks("FORGET-10")
async def an_empty_where_is_left_out(call):
    params = call.params
    if call.of("forget") and params.get("where") == {} and "ids" in params:
        del params["where"]
    return await call.serve()


@breaks("FORGET-12")
async def a_forgotten_id_is_burnt(call):
    if call.of("remember"):
        for record in call.written:
            if record.get("content") == "third" and str(record.get("id")).startswith("again-"):
                await call.serve()
                await serve(call("forget", ids=[record["id"]]))
    return await call.serve() if not call.of("remember") else await _burnt(call)


async def _burnt(call):
    if any(str(record.get("id")).startswith("again-") for record in call.written):
        if call.written[0]["content"] != "first":
            return call.answer(ids=[call.written[0]["id"]])
    return await call.serve()


@breaks("WHERE-05", "WHERE-14")
async def null_matches_nothing(call):
    where = call.params.get("where")
    if call.of("recall", "timeline") and isinstance(where, dict) and None in where.values():
        where["id"] = []
    return await call.serve()


@breaks("WHERE-06", "WHERE-14")
async def true_is_1(call):
    where = call.params.get("where")
    if call.of("recall", "timeline", "forget") and isinstance(where, dict):
        for name, value in where.items():
            if value == 1 and type(value) in (int, bool):
                where[name] = [1, True]
    return await call.serve()


@breaks("WHERE-07")
async def operators_are_ignored(call):
    where = call.params.get("where")
    if isinstance(where, dict):
        for name in [name for name, value in where.items() if isinstance(value, dict)]:
            del where[name]
    return await call.serve()


@breaks("WHERE-10")
async def case_does_not_count(call):
    where = call.params.get("where")
    if call.of("timeline") and isinstance(where, dict) and where.get("x") == "ABC":
        where["x"] = ["ABC", "abc"]
    return await call.serve()


@breaks("WHERE-12")
async def an_empty_array_is_no_condition(call):
    where = call.params.get("where")
    if isinstance(where, dict):
        for name in [name for name, value in where.items() if value == []]:
            del where[name]
    return await call.serve()


@breaks("RPC-04")
async def ids_become_text(call):
    answer = await call.serve()
    if message["id"] == 0:
        answer["id"] = "0"
    return answer


@breaks("RPC-06")
async def errors_have_no_message(call):
    answer = await call.serve()
    if "error" in answer:
        answer["error"]["message"] = ""
    return answer


@breaks("RECALL-04", "RECALL-09")
async def a_hang_is_a_failure_of_that_check_alone(call):
    if call.of("recall") and str(call.params.get("query")).startswith("what about"):
        await asyncio.sleep(3600)
    return await call.serve()


def call.written:
    records = call.params.get("records")
    return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []


def call(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}


def call.refuse(code):
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "broken"}}
