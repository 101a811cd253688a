"""Servers that read with one fault: each fails at the requirement that it breaks, and nowhere else."""

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


@breaks("CAPABILITY-03")
async def unknown_parameters_are_refused(call):
    return call.refuse(-32602) if call.of("timeline") and "x_colour" in call.params else await call.serve()


@breaks("CAPABILITY-08")
async def an_undeclared_filter_is_dropped(call):
    if call.of("recall", "timeline"):
        call.params.pop("tier", None)
    return await call.serve()


@breaks("RECORD-02")
async def times_have_an_offset(call):
    answer = await call.serve()
    for record in read(call, answer):
        record["created_at"] = record["created_at"].replace("Z", "+00:00")
    return answer


@breaks("RECORD-09")
async def nulls_are_returned(call):
    answer = await call.serve()
    for record in read(call, answer):
        if record["content"] == "bare":
            record["role"] = None
    return answer


@breaks("RECORD-13")
async def the_timeline_scores(call):
    answer = await call.serve()
    for record in read(call, answer):
        record.setdefault("score", 1.0)
    return answer


@breaks("RECALL-01")
async def the_scores_ascend(call):
    answer = await call.serve()
    if call.of("recall"):
        for number, record in enumerate(read(call, answer)):
            record["score"] = 0.5 + number / 10_000
    return answer


@breaks("RECALL-02")
async def ten_is_the_default(call):
    if call.of("recall"):
        call.params.setdefault("limit", 10)
    return await call.serve()


@breaks("RECALL-03")
async def one_more_than_the_limit_comes(call):
    limit = call.params.get("limit")
    if call.of("recall") and type(limit) is int and limit == 10:
        call.params["limit"] = 11
    return await call.serve()


@breaks("RECALL-05")
async def the_oldest_come_first(call):
    answer = await call.serve()
    records = read(call, answer)
    if call.of("recall") and not call.params.keys() & {"query", "embedding"}:
        scores = [record["score"] for record in records]
        records.reverse()
        for record, score in zip(records, scores, strict=True):
            record["score"] = score
    return answer


@breaks("RECALL-06")
async def an_empty_query_finds_nothing(call):
    nothing = call.of("recall") and call.params.get("query") == ""
    return call.answer(records=[]) if nothing else await call.serve()


@breaks("RECALL-07")
async def min_score_is_dropped(call):
    if call.of("recall") and type(call.params.get("min_score")) in (int, float):
        del call.params["min_score"]
    return await call.serve()


@breaks("RECALL-09")
async def recall_knows_no_words(call):
    if call.of("recall") and str(call.params.get("query")).startswith("what about"):
        del call.params["query"]
    return await call.serve()


@breaks("RECALL-10", "EMBEDDINGS-09")
async def filters_come_after_the_limit(call):
    if not call.of("recall") or "a2m_check" not in call.where or "role" not in call.where:
        return await call.serve()
    wide = (await call.serve(where={"a2m_check": call.where["a2m_check"]}))["result"]["records"]
    nearest = {record["id"] for record in wide}
    answer = await call.serve()
    answer["result"]["records"] = [record for record in read(call, answer) if record["id"] in nearest]
    return answer


@breaks("RECALL-12")
async def a_negative_limit_is_none(call):
    if call.of("recall") and call.params.get("limit") == -1 and "query" in call.params:
        del call.params["limit"]
    return await call.serve()


@breaks("RECALL-13")
async def quotes_break_the_query(call):
    broken = call.of("recall") and '"' in str(call.params.get("query"))
    return call.refuse(-32603) if broken else await call.serve()


@breaks("RECALL-15")
async def recall_remembers_the_forgotten(call):
    answer = await call.serve()
    if (
        call.of("recall")
        and len(records := read(call, answer)) == 1
        and records[0]["content"].endswith("stays")
    ):
        records.append({**records[0], "id": "ghost", "score": 0.0})
    return answer


@breaks(
    "TIMELINE-01",
    "TIMELINE-02",
    "TIMELINE-04",
    "TIMELINE-05",
    "SESSIONS-04",
    "SESSIONS-11",
    "SESSIONS-15",
    "SESSIONS-16",
)
async def the_timeline_descends(call):
    answer = await call.serve()
    if call.of("timeline"):
        read(call, answer).reverse()
    return answer


@breaks("TIMELINE-02", "TIMELINE-04", "SESSIONS-04")
async def the_limit_takes_the_oldest(call):
    limit = call.params.get("limit")
    if not call.of("timeline") or type(limit) is not int or limit < 1:
        return await call.serve()
    del call.params["limit"]
    answer = await call.serve()
    del read(call, answer)[limit:]
    return answer


@breaks("TIMELINE-03", "REMEMBER-15")
async def the_timeline_has_a_limit_of_its_own(call):
    if call.of("timeline"):
        call.params.setdefault("limit", 80)
    return await call.serve()


@breaks("TIMELINE-04")
async def a_batch_is_in_order_of_its_content(call):
    answer = await call.serve()
    records = read(call, answer)
    if call.of("timeline") and all(record["content"].startswith("turn ") for record in records):
        records.sort(key=lambda record: (record["created_at"], record["content"]))
    return answer


@breaks("TIMELINE-06")
async def the_newest_are_filtered(call):
    if not call.of("timeline") or call.where.get("role") != "tool" or "limit" not in call.params:
        return await call.serve()
    answer = await call.serve(where={"a2m_check": call.where["a2m_check"]})
    answer["result"]["records"] = [record for record in read(call, answer) if record["role"] == "tool"]
    return answer


@breaks("TIMELINE-09")
async def the_timeline_is_a_recall(call):
    if call.of("timeline") and call.params.get("query"):
        found = await call.ask("recall", **call.params)
        return call.answer(records=found["records"])
    return await call.serve()


@breaks("WHERE-03")
async def one_condition_is_enough(call):
    if call.of("timeline") and {"x", "y"} <= call.where.keys():
        del call.where["y"]
    return await call.serve()


@breaks("WHERE-04")
async def an_array_is_its_first_value(call):
    if call.of("timeline") and isinstance(call.where.get("x"), list) and call.where["x"][1:] == ["two"]:
        call.where["x"] = call.where["x"][0]
    return await call.serve()


@breaks("WHERE-05", "SESSIONS-03")
async def null_matches_nothing(call):
    if call.of("recall", "timeline") and None in call.where.values():
        call.where["id"] = []
    return await call.serve()


@breaks("WHERE-06")
async def true_is_1(call):
    for name, value in call.where.items():
        if value == 1 and type(value) in (int, bool) and len(call.where) == 2:
            call.where[name] = [1, True]
    return await call.serve()


@breaks("WHERE-07")
async def operators_are_ignored(call):
    for name in [name for name, value in call.where.items() if isinstance(value, dict)]:
        del call.where[name]
    return await call.serve()


@breaks("WHERE-08")
async def metadata_goes_first(call):
    answer = await call.serve()
    role = call.where.get("role")
    if call.of("timeline") and role == "user" and {"a2m_check", "role"} == call.where.keys():
        both = (await call.serve(where={"a2m_check": call.where["a2m_check"]}))["result"]["records"]
        if any("role" in record.get("metadata", {}) for record in both):
            found = [record for record in both if record["metadata"].get("role") == role]
            answer["result"]["records"] = found
    return answer


@breaks("WHERE-09")
async def no_match_is_an_error(call):
    answer = await call.serve()
    alone = call.of("recall") and call.where and "a2m_check" not in call.where
    return call.refuse(-32001) if alone and answer.get("result") == {"records": []} else answer


@breaks("WHERE-10")
async def case_does_not_count(call):
    if call.where.get("x") == "ABC":
        call.where["x"] = ["ABC", "abc"]
    return await call.serve()


@breaks("WHERE-11")
async def a_dot_is_a_path(call):
    if call.of("timeline") and "a.b" in call.where:
        del call.where["a.b"]
        call.where["content"] = "deep"
    return await call.serve()


@breaks("WHERE-12")
async def an_empty_array_is_no_condition(call):
    for name in [name for name, value in call.where.items() if value == []]:
        del call.where[name]
    return await call.serve()


@breaks("WHERE-14")
async def recall_reads_null_otherwise(call):
    if call.of("recall") and "x" in call.where and call.where["x"] is None:
        call.where["x"] = []
    return await call.serve()


@breaks("RPC-04")
async def an_id_becomes_text(call):
    answer = await call.serve()
    if call.message["id"] == 0:
        answer["id"] = "0"
    return answer


@breaks("RPC-05")
async def a_null_error_stands_beside_the_result(call):
    return {"error": None, **await call.serve()} if call.of("describe") else await call.serve()


@breaks("RPC-06")
async def errors_have_no_message(call):
    answer = await call.serve()
    if "error" in answer:
        answer["error"]["message"] = ""
    return answer


@pytest.mark.parametrize(("requirement", "companions", "mutation"), CASES)
async def test_a_broken_server_fails_where_it_is_broken(
    try_server, failed, requirement, companions, mutation
):
    finished = await try_server(mutation)
    assert sorted(failed(finished)) == sorted({requirement, *companions}), failed(finished)
