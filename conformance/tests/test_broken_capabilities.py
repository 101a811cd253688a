"""Servers with one fault in a capability: each fails at the requirement that it breaks, and nowhere else."""

import asyncio
import math
import time
import unicodedata

import httpx
import pytest

CASES = []


def breaks(requirement, *companions):
    """Register a broken server: what it breaks, and what cannot but fail with it."""

    def register(mutation):
        CASES.append(pytest.param(requirement, companions, mutation, id=f"{requirement}-{mutation.__name__}"))
        return mutation

    return register


async def _by_prefix(call, matches, applies=True):
    """Serve with a key_prefix that matches otherwise."""
    prefix = call.params.get("key_prefix")
    if not applies or not prefix or not call.of("recall", "timeline", "forget", "summarize"):
        return await call.serve()
    everything = (await call.ask("timeline", where={"a2m_check": prefix.split("/")[0]}))["records"]
    del call.params["key_prefix"]
    keys = {record["id"]: record.get("key") for record in everything}
    chosen = [name for name, key in keys.items() if key and matches(key, prefix.rstrip("/"))]
    where = {**call.params.get("where", {}), "id": chosen}
    return await call.serve(where=where)


def read(call, answer):
    return answer.get("result", {}).get("records", []) if call.of("recall", "timeline") else []


@breaks("SALIENCE-01")
async def two_is_the_default(call):
    for record in call.written:
        record.setdefault("salience", 2.0)
    return await call.serve()


@breaks("SALIENCE-03")
async def reinforcement_saturates(call):
    amount = call.params.get("amount")
    if call.of("reinforce") and type(amount) in (int, float):
        call.params["amount"] = min(amount, 1)
    return await call.serve()


@breaks("SALIENCE-04")
async def unknown_ids_are_reinforced(call):
    answer = await call.serve()
    if call.of("reinforce") and answer.get("result", {}).get("reinforced") == 0:
        answer["result"]["reinforced"] = len(call.params["ids"])
    return answer


@breaks("SALIENCE-07")
async def a_salience_in_words_is_left_out(call):
    for record in call.written:
        if record.get("salience") == "high":
            del record["salience"]
    return await call.serve()


@breaks("SALIENCE-08", "SALIENCE-09")
async def recalls_are_not_counted(call):
    answer = await call.serve()
    for record in read(call, answer):
        record.pop("access_count", None)
    return answer


@breaks("SESSIONS-02")
async def the_default_session_wins(call):
    if call.written and "session" in call.params and isinstance(call.params["session"], str):
        for record in call.written:
            record["session"] = call.params["session"]
    return await call.serve()


@breaks("SESSIONS-03")
async def null_is_the_last_session(call):
    for record in call.written:
        if "session" in record and record["session"] is None:
            record["session"] = "null"
    return await call.serve()


@breaks("SESSIONS-06", "SESSIONS-03", "SESSIONS-16")
async def sessions_count_double(call):
    answer = await call.serve()
    for session in answer.get("result", {}).get("sessions", []) if call.of("session/list") else []:
        session["records"] *= 2
    return answer


@breaks("SESSIONS-08")
async def close_names_nothing(call):
    answer = await call.serve()
    if call.of("session/close") and "result" in answer:
        del answer["result"]["closed"]
    return answer


@breaks("SESSIONS-09")
async def no_session_is_closed(call):
    nothing = call.of("session/close") and not call.params.get("session")
    return call.answer(closed=None, flushed=0) if nothing else await call.serve()


@breaks("SESSIONS-10")
async def an_unknown_session_is_unknown(call):
    if call.of("session/close") and str(call.params.get("session")).startswith("never-"):
        return call.refuse(-32001)
    return await call.serve()


@breaks("KEYS-03")
async def fetch_takes_the_nearest_key(call):
    answer = await call.serve()
    if call.of("fetch") and answer.get("result") == {"record": None} and call.params["key"].endswith("/x"):
        call.params["key"] = call.params["key"].removesuffix("/x")
        return await call.serve()
    return answer


@breaks("KEYS-04")
async def an_empty_key_holds_nothing(call):
    nothing = call.of("fetch") and call.params.get("key") == ""
    return call.answer(record=None) if nothing else await call.serve()


@breaks("KEYS-05", "KEYS-06", "KEYS-09", "SUMMARIZE-10")
async def a_prefix_is_one_of_text(call):
    return await _by_prefix(call, lambda key, prefix: key.startswith(prefix))


@breaks("KEYS-06")
async def a_trailing_slash_leaves_the_key_itself_out(call):
    slash = str(call.params.get("key_prefix")).endswith("/")
    return await _by_prefix(call, lambda key, prefix: key.startswith(prefix + "/"), slash)


@breaks("KEYS-07")
async def an_underscore_is_a_wildcard(call):
    pattern = str(call.params.get("key_prefix")).endswith("a_")
    return await _by_prefix(call, lambda key, prefix: key[: len(prefix) - 1] == prefix[:-1], pattern)


@breaks("KEYS-13")
async def keys_of_any_type_are_text(call):
    for record in call.written:
        if record.get("key") == 7:
            record["key"] = "7"
    return await call.serve()


@breaks("KEYS-16")
async def an_empty_prefix_is_left_out(call):
    if call.of("forget") and call.params.get("key_prefix") == "" and "ids" in call.params:
        del call.params["key_prefix"]
    return await call.serve()


@breaks("KEYS-17")
async def keys_are_normalized(call):
    for record in call.written:
        if isinstance(record.get("key"), str):
            record["key"] = unicodedata.normalize("NFC", record["key"])
    return await call.serve()


@breaks("EMBEDDINGS-02", "EMBEDDINGS-10")
async def vectors_are_normalized(call):
    answer = await call.serve()
    fetched = [answer["result"]["record"] or {}] if call.of("fetch") and "result" in answer else []
    for record in [*read(call, answer), *fetched]:
        vector = record.get("embedding")
        if vector:
            record["embedding"] = [number / math.hypot(*vector) for number in vector]
    return answer


@breaks("EMBEDDINGS-03")
async def vectors_come_unasked(call):
    if call.of("recall", "timeline") and call.params.get("embeddings") is False:
        call.params["embeddings"] = True
    return await call.serve()


@breaks("EMBEDDINGS-04")
async def vectors_are_cut_to_the_width(call):
    for record in call.written:
        if isinstance(record.get("embedding"), list) and len(record["embedding"]) == 9:
            del record["embedding"][8:]
    return await call.serve()


@breaks("EMBEDDINGS-05")
async def query_vectors_are_cut_to_the_width(call):
    if call.of("recall") and isinstance(call.params.get("embedding"), list):
        del call.params["embedding"][8:]
    return await call.serve()


@breaks("EMBEDDINGS-06")
async def the_metric_is_another(call):
    answer = await call.serve()
    if call.of("recall") and "embedding" in call.params and "where" in call.params:
        records = read(call, answer)
        if any(record["content"] == "away" for record in records):
            records[0]["content"], records[1]["content"] = records[1]["content"], records[0]["content"]
    return answer


@breaks("EXTERNAL-01")
async def uris_are_normalized(call):
    for record in call.written:
        if isinstance(record.get("uri"), str):
            record["uri"] = (
                str(httpx.URL(record["uri"])) if record["uri"].startswith("HTTP") else record["uri"]
            )
    return await call.serve()


@breaks("EXTERNAL-03")
async def uris_are_fetched(call):
    for record in call.written:
        if str(record.get("uri")).startswith("http://127.0.0.1:"):
            port = int(record["uri"].split(":")[2].split("/")[0])
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            writer.close()
    return await call.serve()


@breaks("EVENTS-01")
async def no_cursor_is_the_beginning(call):
    answer = await call.serve()
    if call.of("events") and not call.params:
        answer["result"]["events"] = [{"kind": "written", "id": "old", "at": "2026-01-01T00:00:00.000Z"}]
    return answer


@breaks("EVENTS-05")
async def events_have_no_limit(call):
    if call.of("events") and call.params.get("limit") == 2:
        del call.params["limit"]
    return await call.serve()


@breaks("EVENTS-06")
async def kinds_are_ignored(call):
    if call.of("events") and call.params.get("kinds") == ["forgotten"] and "limit" not in call.params:
        del call.params["kinds"]
    return await call.serve()


@breaks("EVENTS-07")
async def forgets_are_not_logged(call):
    answer = await call.serve()
    if call.of("events") and call.params.get("limit") == 200 and "result" in answer:
        events = answer["result"]["events"]
        answer["result"]["events"] = [event for event in events if event["kind"] != "forgotten"]
    return answer


@breaks("EVENTS-10")
async def strange_cursors_are_the_head(call):
    if call.of("events") and str(call.params.get("cursor")).startswith("never-"):
        del call.params["cursor"]
    return await call.serve()


@breaks("EVENTS-14")
async def closes_are_not_logged(call):
    if call.of("events") and call.params.get("kinds") == ["session_closed"]:
        call.params["kinds"] = []
        return call.answer(events=[], cursor=call.params["cursor"])
    return await call.serve()


@breaks("EVENTS-17")
async def push_is_claimed(call):
    answer = await call.serve()
    if call.of("describe") and "result" in answer:
        answer["result"]["events"]["push"] = True
    return answer


@breaks("SUMMARIZE-02")
async def nothing_selects_nothing(call):
    return (
        call.answer(records=[], read=0, written=0)
        if call.of("summarize") and not call.params
        else await call.serve()
    )


@breaks("SUMMARIZE-05")
async def sources_are_dropped(call):
    answer = await call.serve()
    if call.of("summarize") and "where" in call.params and answer.get("result", {}).get("read") == 4:
        await call.ask("forget", where=call.params["where"])
    return answer


@breaks("SUMMARIZE-09")
async def a_query_selects_the_nearest(call):
    if call.of("summarize") and isinstance(call.params.get("query"), str) and " " in call.params["query"]:
        found = (await call.ask("recall", query=call.params.pop("query")))["records"]
        call.params["ids"] = [record["id"] for record in found]
    return await call.serve()


@breaks("PROMPT-03")
async def a_prompt_hides_what_does_not_fit(call):
    answer = await call.serve()
    if answer.get("result", {}).get("prompt_ids") == []:
        answer["result"]["records"] = []
    return answer


@breaks("PROMPT-04")
async def the_clock_is_in_the_prompt(call):
    answer = await call.serve()
    prompt = call.params.get("prompt")
    if isinstance(prompt, dict) and prompt.keys() == {"style"} and answer.get("result", {}).get("prompt"):
        answer["result"]["prompt"] += f"\n{time.monotonic_ns()}"
    return answer


@breaks("PROMPT-06")
async def a_budget_cuts_the_text(call):
    prompt = call.params.get("prompt")
    if isinstance(prompt, dict) and type(prompt.get("budget")) is int and prompt["budget"] > 10:
        answer = await call.serve(prompt=True)
        answer["result"]["prompt"] = answer["result"]["prompt"][: prompt["budget"]]
        return answer
    return await call.serve()


@breaks("PROMPT-08")
async def an_unknown_style_is_auto(call):
    prompt = call.params.get("prompt")
    if isinstance(prompt, dict) and prompt.get("style") == "no-such":
        prompt["style"] = "auto"
    return await call.serve()


@breaks("PROMPT-09")
async def a_missing_method_is_substituted(call):
    prompt = call.params.get("prompt")
    if isinstance(prompt, dict) and prompt == {"method": "model"}:
        call.params["prompt"] = True
    return await call.serve()


@breaks("PROMPT-12", "PROMPT-13")
async def nothing_is_cited(call):
    prompt = call.params.get("prompt")
    if isinstance(prompt, dict) and prompt.get("cite") is True:
        prompt["cite"] = False
    return await call.serve()


@pytest.mark.parametrize(("requirement", "companions", "mutation"), CASES)
async def test_a_broken_server_fails_where_it_is_broken(
    try_server, failed, requirement, companions, mutation
):
    finished = await try_server(mutation)
    assert sorted(failed(finished)) == sorted({requirement, *companions}), failed(finished)
