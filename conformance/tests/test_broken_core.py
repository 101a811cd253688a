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


def is_call(message, *methods):
    return message["method"] in [f"memory/{method}" for method in methods]


def records_of(answer):
    return answer.get("result", {}).get("records", [])


@breaks("DESCRIBE-01")
async def another_protocol_is_spoken(message, serve):
    answer = await serve(message)
    if is_call(message, "describe") and "result" in answer:
        answer["result"]["protocol"] = "a2m/0.1.0"
    return answer


@breaks("DESCRIBE-02")
async def a_capability_is_made_up(message, serve):
    answer = await serve(message)
    if is_call(message, "describe") and "result" in answer:
        answer["result"]["capabilities"].append("telepathy")
    return answer


@breaks("DESCRIBE-03")
async def a_method_is_not_listed(message, serve):
    answer = await serve(message)
    if is_call(message, "describe") and "result" in answer:
        answer["result"]["methods"].remove("memory/timeline")
    return answer


@breaks("DESCRIBE-08")
async def every_version_is_served(message, serve):
    if is_call(message, "describe"):
        message["params"].pop("protocol", None)
    return await serve(message)


@breaks("DESCRIBE-12")
async def the_limit_of_records_is_not_enforced(message, serve):
    records = message["params"].get("records")
    if not is_call(message, "remember") or not isinstance(records, list) or len(records) <= 1000:
        return await serve(message)
    answers = []
    for start in range(0, len(records), 1000):
        part = {**message, "params": {**message["params"], "records": records[start : start + 1000]}}
        answers.append(await serve(part))
    answers[0]["result"]["ids"] = [name for answer in answers for name in answer["result"]["ids"]]
    return answers[0]


@breaks("DESCRIBE-13")
async def the_limit_of_a_recall_is_clamped(message, serve):
    limit = message["params"].get("limit")
    if is_call(message, "recall") and type(limit) is int:
        message["params"]["limit"] = min(limit, 1000)
    return await serve(message)


@breaks("CAPABILITY-01")
async def undeclared_methods_do_not_exist(message, serve):
    answer = await serve(message)
    if answer.get("error", {}).get("code") == -32003 and is_call(message, "promote", "consolidate"):
        answer["error"]["code"] = -32601
    return answer


@breaks("CAPABILITY-02")
async def unknown_methods_are_invalid(message, serve):
    answer = await serve(message)
    if answer.get("error", {}).get("code") == -32601:
        answer["error"]["code"] = -32600
    return answer


@breaks("CAPABILITY-04")
async def unknown_parameters_of_writes_are_refused(message, serve):
    if is_call(message, "remember") and "x_colour" in message["params"]:
        return error(message, -32602)
    return await serve(message)


@breaks("CAPABILITY-05")
async def unknown_fields_are_refused(message, serve):
    if is_call(message, "remember") and any("x_colour" in record for record in dicts(message)):
        return error(message, -32602)
    return await serve(message)


@breaks("CAPABILITY-07")
async def a_placement_is_dropped(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            record.pop("tier", None)
    return await serve(message)


@breaks("CAPABILITY-08")
async def an_undeclared_filter_of_a_read_is_dropped(message, serve):
    if is_call(message, "recall", "timeline"):
        message["params"].pop("tier", None)
    return await serve(message)


@breaks("CAPABILITY-09")
async def an_undeclared_filter_of_a_forget_is_dropped(message, serve):
    if is_call(message, "forget"):
        message["params"].pop("tier", None)
    return await serve(message)


@breaks("RECORD-02")
async def times_are_numbers_of_seconds(message, serve):
    answer = await serve(message)
    for record in records_of(answer):
        if is_call(message, "recall", "timeline"):
            record["created_at"] = record["created_at"].replace("Z", "+00:00")
    return answer


@breaks("RECORD-03", "STDIO-06", "DESCRIBE-15")
async def content_is_stripped(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            if isinstance(record.get("content"), str) and record["content"].strip():
                record["content"] = record["content"].strip()
    return await serve(message)


@breaks("RECORD-05")
async def roles_are_lowered(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            if isinstance(record.get("role"), str):
                record["role"] = record["role"].lower()
    return await serve(message)


@breaks("RECORD-06")
async def nulls_are_dropped_from_metadata(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            metadata = record.get("metadata")
            if isinstance(metadata, dict):
                record["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    return await serve(message)


@breaks("RECORD-07")
async def numbers_become_doubles(message, serve):
    answer = await serve(message)
    for record in records_of(answer):
        number = record.get("metadata", {}).get("number")
        if isinstance(number, int):
            record["metadata"]["number"] = int(float(number))
    return answer


@breaks("RECORD-09")
async def nulls_are_returned(message, serve):
    answer = await serve(message)
    for record in records_of(answer):
        record.setdefault("group", None)
    return answer


@breaks("RECORD-11", "RECORD-12")
async def ids_are_trimmed(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            if isinstance(record.get("id"), str) and record["id"].strip():
                record["id"] = record["id"].strip().replace("\n", " ")
    return await serve(message)


@breaks("RECORD-13")
async def the_timeline_scores(message, serve):
    answer = await serve(message)
    if is_call(message, "timeline"):
        for record in records_of(answer):
            record["score"] = 1.0
    return answer


@breaks("REMEMBER-01", "REMEMBER-15", "RECORD-11", "RECORD-12", "EVENTS-02", "EVENTS-03", "REMEMBER-05")
async def ids_come_in_another_order(message, serve):
    answer = await serve(message)
    if is_call(message, "remember") and "result" in answer:
        answer["result"]["ids"].sort(reverse=True)
    return answer


@breaks("REMEMBER-04", "REMEMBER-06")
async def a_known_id_is_written_again(message, serve):
    if is_call(message, "remember") and all("id" in record for record in dicts(message)):
        kept = await serve(call("timeline", where={"id": [record["id"] for record in dicts(message)]}))
        if any("key" not in record for record in records_of(kept)):
            await serve(call("forget", ids=[record["id"] for record in records_of(kept)]))
    return await serve(message)


@breaks("REMEMBER-05")
async def the_last_of_a_batch_wins(message, serve):
    if is_call(message, "remember"):
        last = {}
        for record in dicts(message):
            if isinstance(record.get("id"), str) and "content" in record:
                last[record["id"]] = record["content"]
        for record in dicts(message):
            if isinstance(record.get("id"), str) and "content" in record:
                record["content"] = last[record["id"]]
    return await serve(message)


@breaks("REMEMBER-08")
async def no_records_are_a_success(message, serve):
    if is_call(message, "remember") and message["params"].get("records") == []:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"ids": []}}
    return await serve(message)


@breaks("REMEMBER-09", "EVENTS-09", "EXTERNAL-05", "REMEMBER-12")
async def content_may_be_missing(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            record.setdefault("content", "")
    return await serve(message)


@breaks("REMEMBER-11")
async def an_empty_id_is_replaced(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            if record.get("id") == "":
                del record["id"]
    return await serve(message)


@breaks("REMEMBER-12", "CAPABILITY-07", "EMBEDDINGS-04", "EVENTS-09")
async def the_good_half_of_a_batch_is_kept(message, serve):
    answer = await serve(copy.deepcopy(message))
    if is_call(message, "remember") and "error" in answer and isinstance(message["params"].get("records"), list):
        for record in message["params"]["records"][:-1]:
            await serve(call("remember", records=[record]))
    return answer


@breaks("REMEMBER-10", "REMEMBER-12")
async def roles_of_any_type_are_taken(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            if "role" in record:
                record["role"] = str(record["role"])
    return await serve(message)


@breaks("RECALL-01", "RECALL-09")
async def the_worst_comes_first(message, serve):
    answer = await serve(message)
    if is_call(message, "recall") and message["params"].get("query"):
        records_of(answer).reverse()
    return answer


@breaks("RECALL-02")
async def ten_is_the_default(message, serve):
    if is_call(message, "recall"):
        message["params"].setdefault("limit", 10)
    return await serve(message)


@breaks("RECALL-05", "CAPABILITY-03")
async def a_recall_needs_a_query(message, serve):
    if is_call(message, "recall") and not message["params"].keys() & {"query", "embedding"}:
        return error(message, -32602)
    return await serve(message)


@breaks("RECALL-07")
async def min_score_is_dropped(message, serve):
    if is_call(message, "recall") and type(message["params"].get("min_score")) in (int, float):
        del message["params"]["min_score"]
    return await serve(message)


@breaks("RECALL-10", "KEYS-08", "EMBEDDINGS-09")
async def filters_come_after_the_limit(message, serve):
    params = message["params"]
    where = params.get("where")
    narrow = isinstance(where, dict) and "a2m_check" in where and ("role" in where or "key_prefix" in params)
    if not is_call(message, "recall") or not narrow:
        return await serve(message)
    wide = {**params, "where": {"a2m_check": where["a2m_check"]}}
    wide.pop("key_prefix", None)
    nearest = {record["id"] for record in records_of(await serve({**message, "params": wide}))}
    answer = await serve(message)
    if "result" in answer:
        answer["result"]["records"] = [record for record in records_of(answer) if record["id"] in nearest]
    return answer


@breaks("RECALL-12")
async def a_negative_limit_is_none(message, serve):
    if is_call(message, "recall") and message["params"].get("limit") == -1:
        del message["params"]["limit"]
    return await serve(message)


@breaks("RECALL-13")
async def quotes_break_the_query(message, serve):
    if is_call(message, "recall") and '"' in str(message["params"].get("query")):
        return error(message, -32603)
    return await serve(message)


@breaks("TIMELINE-01")
async def a_timeline_descends(message, serve):
    raise NotImplementedError


CASES.pop()


@breaks("TIMELINE-02", "TIMELINE-04", "SESSIONS-04")
async def the_limit_takes_the_oldest(message, serve):
    params = message["params"]
    limit = params.get("limit")
    if not is_call(message, "timeline") or type(limit) is not int or limit < 1:
        return await serve(message)
    answer = await serve({**message, "params": {name: params[name] for name in params if name != "limit"}})
    if "result" in answer:
        del answer["result"]["records"][limit:]
    return answer


@breaks("TIMELINE-03", "DESCRIBE-12", "FORGET-13")
async def a_timeline_has_a_limit_of_its_own(message, serve):
    if is_call(message, "timeline"):
        message["params"].setdefault("limit", 50)
    return await serve(message)


@breaks("TIMELINE-04")
async def a_batch_is_in_order_of_ids(message, serve):
    answer = await serve(message)
    if is_call(message, "timeline"):
        records_of(answer).sort(key=lambda record: (record["created_at"], record["content"]))
    return answer


@breaks("TIMELINE-09")
async def the_timeline_is_a_recall(message, serve):
    if is_call(message, "timeline") and message["params"].get("query"):
        return await serve({**message, "method": "memory/recall"})
    return await serve(message)


@breaks("FORGET-01")
async def a_forget_without_selector_forgets_nothing(message, serve):
    selectors = message["params"].keys() & {"ids", "query", "where", "tier", "key_prefix"}
    if is_call(message, "forget") and not selectors:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"forgotten": 0}}
    return await serve(message)


@breaks("FORGET-03")
async def every_id_is_counted(message, serve):
    answer = await serve(message)
    ids = message["params"].get("ids")
    alone = message["params"].keys() == {"ids"}
    if is_call(message, "forget") and alone and "result" in answer:
        answer["result"]["forgotten"] = len(set(ids))
    return answer


@breaks("FORGET-06", "KEYS-14", "FORGET-08")
async def a_query_forgets_the_nearest(message, serve):
    query = message["params"].get("query")
    if is_call(message, "forget") and isinstance(query, str) and any(map(str.isalpha, query)):
        found = records_of(await serve(call("recall", query=query, limit=50)))
        message["params"]["ids"] = [record["id"] for record in found]
        del message["params"]["query"]
    return await serve(message)


@breaks("FORGET-08", "FORGET-09", "CAPABILITY-09")
async def one_selector_is_enough(message, serve):
    params = message["params"]
    if is_call(message, "forget") and params.get("ids") and isinstance(params["ids"], list):
        params.pop("where", None) if params.get("where") else None
    return await serve(message)


@breaks("FORGET-09")
async def no_ids_are_no_selector(message, serve):
    params = message["params"]
    if is_call(message, "forget") and params.get("ids") == [] and len(params) > 1:
        del params["ids"]
    return await serve(message)


@breaks("FORGET-10")
async def an_empty_where_is_left_out(message, serve):
    params = message["params"]
    if is_call(message, "forget") and params.get("where") == {} and "ids" in params:
        del params["where"]
    return await serve(message)


@breaks("FORGET-12")
async def a_forgotten_id_is_burnt(message, serve):
    if is_call(message, "remember"):
        for record in dicts(message):
            if record.get("content") == "third" and str(record.get("id")).startswith("again-"):
                await serve(message)
                await serve(call("forget", ids=[record["id"]]))
    return await serve(message) if not is_call(message, "remember") else await _burnt(message, serve)


async def _burnt(message, serve):
    if any(str(record.get("id")).startswith("again-") for record in dicts(message)):
        if dicts(message)[0]["content"] != "first":
            return {"jsonrpc": "2.0", "id": message["id"], "result": {"ids": [dicts(message)[0]["id"]]}}
    return await serve(message)


@breaks("WHERE-05", "WHERE-14")
async def null_matches_nothing(message, serve):
    where = message["params"].get("where")
    if is_call(message, "recall", "timeline") and isinstance(where, dict) and None in where.values():
        where["id"] = []
    return await serve(message)


@breaks("WHERE-06", "WHERE-14")
async def true_is_1(message, serve):
    where = message["params"].get("where")
    if is_call(message, "recall", "timeline", "forget") and isinstance(where, dict):
        for name, value in where.items():
            if value == 1 and type(value) in (int, bool):
                where[name] = [1, True]
    return await serve(message)


@breaks("WHERE-07")
async def operators_are_ignored(message, serve):
    where = message["params"].get("where")
    if isinstance(where, dict):
        for name in [name for name, value in where.items() if isinstance(value, dict)]:
            del where[name]
    return await serve(message)


@breaks("WHERE-10")
async def case_does_not_count(message, serve):
    where = message["params"].get("where")
    if is_call(message, "timeline") and isinstance(where, dict) and where.get("x") == "ABC":
        where["x"] = ["ABC", "abc"]
    return await serve(message)


@breaks("WHERE-12")
async def an_empty_array_is_no_condition(message, serve):
    where = message["params"].get("where")
    if isinstance(where, dict):
        for name in [name for name, value in where.items() if value == []]:
            del where[name]
    return await serve(message)


@breaks("RPC-04")
async def ids_become_text(message, serve):
    answer = await serve(message)
    if message["id"] == 0:
        answer["id"] = "0"
    return answer


@breaks("RPC-06")
async def errors_have_no_message(message, serve):
    answer = await serve(message)
    if "error" in answer:
        answer["error"]["message"] = ""
    return answer


@breaks("RECALL-04", "RECALL-09")
async def a_hang_is_a_failure_of_that_check_alone(message, serve):
    if is_call(message, "recall") and str(message["params"].get("query")).startswith("what about"):
        await asyncio.sleep(3600)
    return await serve(message)


def dicts(message):
    records = message["params"].get("records")
    return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []


def call(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}


def error(message, code):
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "broken"}}
