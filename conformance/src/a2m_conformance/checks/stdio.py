"""JSON-RPC over standard streams."""

import json

from a2m_conformance.check import check
from a2m_conformance.outcome import CheckFailure, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object, part
from a2m_conformance.values import equal, only

_DESCRIBE: dict[str, Json] = {"jsonrpc": "2.0", "method": "memory/describe", "params": {}}


@check("STDIO-01", phase="last")
async def stdout_is_clean(probe: Probe) -> None:
    noise = probe.stdio.noise
    expect(not noise, f"{len(noise)} lines that are no JSON object, the first {noise[:1]!r}")


@check("STDIO-02", phase="last")
async def the_end_is_clean(probe: Probe) -> None:
    try:
        code = await probe.stdio.hang_up()
    except TimeoutError as error:
        raise CheckFailure("the server stays after the end of its input") from error
    equal(code, 0, "the exit code")


@check("STDIO-03")
async def bad_lines_are_answered(probe: Probe) -> None:
    response = await probe.wire.exchange("this is no JSON")
    equal(part(response.get("error"), "code"), -32700, "the code of the error")
    await probe.call("describe")


@check("STDIO-04")
async def pipelines_are_answered(probe: Probe) -> None:
    names = [f"{probe.mark}-{number}" for number in range(10)]
    futures = [probe.stdio.expect_response(name) for name in names]
    await probe.stdio.write("\n".join(json.dumps({**_DESCRIBE, "id": name}) for name in names))
    for name, future in zip(names, futures, strict=True):
        response = await future
        expect(is_object(response.get("result")), f"the request {name} of a pipeline was refused")


@check("STDIO-05", phase="alone")
async def notifications_are_not_answered(probe: Probe) -> None:
    start = len(probe.stdio.strays)
    for method in ("memory/describe", "memory/no-such", "memory/recall"):
        await probe.wire.notify(method, {})
    for _ in range(3):
        await probe.call("describe")
    strays = probe.stdio.strays[start:]
    expect(not strays, f"{len(strays)} responses to notifications")


@check("STDIO-06")
async def lines_are_lines(probe: Probe) -> None:
    content = "a\nb\r\nc\u2028d\u2029e\u0085f\x0bg é🧠"
    await probe.write(content)
    equal(only(await probe.mine(), "the timeline")["content"], content, "content")


@check("STDIO-07", phase="alone")
async def responses_have_requests(probe: Probe) -> None:
    await probe.call("describe")
    strays = probe.stdio.strays
    expect(not strays, f"{len(strays)} responses that no request asked for")
