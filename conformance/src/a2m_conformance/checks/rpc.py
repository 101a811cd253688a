"""JSON-RPC 2.0."""

import json

from a2m_conformance.check import check
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object
from a2m_conformance.stdio import StdioWire
from a2m_conformance.values import equal, same

_DESCRIBE: dict[str, Json] = {"jsonrpc": "2.0", "method": "memory/describe", "params": {}}


@check("RPC-01")
async def no_json_is_a_parse_error(probe: Probe) -> None:
    for text in ("{", '{"jsonrpc": "2.0", "id": 1,', "nonsense", '{"id": 1}}', "'single'", "[1,", '"\\ud8"'):
        response = await probe.wire.exchange(text)
        equal(_code(response), -32700, f"the answer to {text!r}")
        expect("id" in response and response["id"] is None, "the id of a parse error is not null")


@check("RPC-02")
async def batches_are_refused(probe: Probe) -> None:
    write = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "memory/remember",
        "params": {"records": [probe.record("no")]},
    }
    for batch in ([], [{**_DESCRIBE, "id": 1}], [{**_DESCRIBE, "id": 1}, write], [1, 2]):
        response = await probe.wire.exchange(json.dumps(batch))
        expect(is_object(response), f"a batch was answered with {response!r}")
        equal(_code(response), -32600, "the answer to a batch")
    if not probe.read_only:
        expect(not await probe.mine(), "a request of a refused batch was carried out")


@check("RPC-03")
async def other_messages_are_invalid(probe: Probe) -> None:
    number = 7_000_000
    messages: list[Json] = [
        {"id": number, "method": "memory/describe"},
        {"jsonrpc": "1.0", "id": number, "method": "memory/describe"},
        {"jsonrpc": 2.0, "id": number, "method": "memory/describe"},
        {"jsonrpc": "2.0", "id": number},
        {"jsonrpc": "2.0", "id": number, "method": 5},
        {"jsonrpc": "2.0", "id": number, "method": None},
        5,
        "memory/describe",
        None,
        True,
    ]
    for message in messages:
        response = await probe.wire.exchange(json.dumps(message), number)
        equal(_code(response), -32600, f"the answer to {message!r}")


@check("RPC-04")
async def ids_are_repeated(probe: Probe) -> None:
    for request_id in ("text", "", "é🧠", "7000001", 7_000_002, 0, -7_000_003, 2**40):
        response = await probe.wire.exchange(json.dumps({**_DESCRIBE, "id": request_id}), request_id)
        expect("result" in response, f"describe with the id {request_id!r} was refused")
        expect(
            same(response.get("id"), request_id), f"the id {request_id!r} came back as {response.get('id')!r}"
        )


@check("RPC-05")
async def responses_are_complete(probe: Probe) -> None:
    for method, params in (("memory/describe", {}), ("memory/recall", {"limit": -1}), ("memory/no-such", {})):
        response = await probe.wire.request(method, params)
        equal(response.get("jsonrpc"), "2.0", "jsonrpc")
        expect(
            ("result" in response) != ("error" in response), f"{method}: both or neither of result and error"
        )


@check("RPC-06")
async def errors_explain(probe: Probe) -> None:
    for method in ("memory/no-such", "memory/forget", "memory/promote", "tools/list"):
        error = (await probe.wire.request(method, {})).get("error")
        if method == "memory/no-such":
            expect(is_object(error), f"the error is {error!r}")
        if is_object(error):
            code, message = error.get("code"), error.get("message")
            expect(type(code) is int, f"the code is {code!r}")
            expect(isinstance(message, str) and message, f"the message is {message!r}")


@check("RPC-07")
async def parameters_are_named(probe: Probe) -> None:
    for params in ([], ["word"], [{"query": "word"}]):
        response = await probe.wire.request("memory/recall", params)
        equal(_code(response), -32602, f"the answer to the parameters {params!r}")


@check("RPC-08")
async def parameters_may_be_left_out(probe: Probe) -> None:
    for method in ("memory/describe", "memory/recall"):
        message = {"jsonrpc": "2.0", "id": 7_000_010, "method": method}
        response = await probe.wire.exchange(json.dumps(message), 7_000_010)
        expect("result" in response, f"{method} without parameters was refused: {response.get('error')!r}")


@check("RPC-09")
async def notifications_are_carried_out(probe: Probe) -> None:
    name = f"{probe.mark}-told"
    await probe.wire.notify("memory/remember", {"records": [probe.record("told", id=name)]})
    async for _ in probe.tries():
        if await probe.read(name):
            break
    expect(await probe.read(name), "what a notification told the server to remember is not there")
    await probe.call("forget", ids=[name])


@check("RPC-10")
async def errors_end_nothing(probe: Probe) -> None:
    for text in ("{", "[]", '{"jsonrpc": "2.0", "id": 7000020, "method": "memory/no-such"}'):
        await probe.wire.exchange(text, 7_000_020)
        await probe.call("describe")


@check("RPC-11")
async def extremes_are_no_internal_errors(probe: Probe) -> None:
    deep: Json = 1
    for _ in range(200):
        deep = [deep]
    attempts: list[tuple[str, Json]] = [
        ("memory/recall", {"query": "word", "where": {"deep": deep}}),
        ("memory/recall", {"query": "word " * 20_000, "limit": 1}),
        ("memory/recall", {"query": "word", "limit": 2**70}),
        ("memory/timeline", {"where": {f"name {number}": number for number in range(300)}, "limit": 1}),
        ("memory/timeline", {"where": {"role": [f"role {number}" for number in range(500)]}, "limit": 1}),
        ("memory/timeline", {"where": {"n": 2**70}, "limit": 1}),
        ("memory/" + "x" * 10_000, {}),
    ]
    for method, params in attempts:
        response = await probe.wire.request(method, params)
        expect(_code(response) != -32603, f"{method[:30]} {str(params)[:60]}… was an internal error")


@check("RPC-12", phase="last")
async def servers_do_not_ask(probe: Probe) -> None:
    if isinstance(probe.wire, StdioWire):
        expect(not probe.wire.requests, f"the server sent {len(probe.wire.requests)} requests")


def _code(response: Json) -> Json:
    error = response.get("error") if is_object(response) else None
    return error.get("code") if is_object(error) else None
