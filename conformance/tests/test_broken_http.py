"""Servers with one fault in HTTP or JSON-RPC: each fails at what it breaks, and nowhere else."""

import json

import httpx
import pytest

CASES = []


def breaks(requirement, *companions):
    """Register a broken server: what it breaks, and what cannot but fail with it."""

    def register(mutation):
        CASES.append(pytest.param(requirement, companions, mutation, id=f"{requirement}-{mutation.__name__}"))
        return mutation

    return register


@breaks("HTTP-01")
async def refusals_are_400(request, serve):
    response = await serve(request)
    message = _json(request)
    if message == {"jsonrpc": "2.0", "id": 1, "method": "memory/no-such", "params": {}}:
        return httpx.Response(400, content=await response.aread())
    return response


@breaks("HTTP-02")
async def notifications_are_200(request, serve):
    response = await serve(request)
    return httpx.Response(200, json={"ok": True}) if response.status_code == 202 else response


@breaks("HTTP-03")
async def get_is_200(request, serve):
    if request.method == "GET" and request.url.path == "/":
        return httpx.Response(200, text="an A2M server")
    return await serve(request)


@breaks("HTTP-04")
async def every_origin_passes(request, serve):
    return await serve(_without(request, "origin"))


@breaks("HTTP-05")
async def every_version_passes(request, serve):
    return await serve(_without(request, "a2m-protocol-version"))


@breaks("HTTP-06")
async def the_version_header_is_refused(request, serve):
    if request.headers.get("a2m-protocol-version") == "a2m/0.1":
        return httpx.Response(400)
    return await serve(request)


@breaks("HTTP-07")
async def a_body_too_long_is_invalid(request, serve):
    response = await serve(request)
    return httpx.Response(400) if response.status_code == 413 else response


@breaks("HTTP-08")
async def the_document_is_missing(request, serve):
    return httpx.Response(404) if request.url.path.startswith("/.well-known") else await serve(request)


@breaks("HTTP-09")
async def responses_are_text(request, serve):
    response = await serve(request)
    if response.headers.get("content-type") == "application/json":
        response.headers["content-type"] = "text/plain"
    return response


@breaks("RPC-01")
async def no_json_is_invalid(request, serve):
    response = await serve(request)
    body = await response.aread()
    return httpx.Response(200, content=body.replace(b"-32700", b"-32600")) if b"-32700" in body else response


@breaks("RPC-02")
async def batches_are_answered(request, serve):
    message = _json(request)
    if not isinstance(message, list) or not message or not all(isinstance(item, dict) for item in message):
        return await serve(request)
    answers = [(await serve(_with(request, json.dumps(item)))) for item in message]
    return httpx.Response(200, json=[json.loads(await answer.aread()) for answer in answers])


@breaks("RPC-03")
async def the_version_of_json_rpc_is_not_looked_at(request, serve):
    message = _json(request)
    if isinstance(message, dict) and message.get("jsonrpc") in ("1.0", 2.0):
        message["jsonrpc"] = "2.0"
        return await serve(_with(request, json.dumps(message)))
    return await serve(request)


@breaks("RPC-07")
async def parameters_may_be_a_list(request, serve):
    message = _json(request)
    if isinstance(message, dict) and isinstance(message.get("params"), list):
        message["params"] = {}
        return await serve(_with(request, json.dumps(message)))
    return await serve(request)


@breaks("RPC-09")
async def notifications_are_dropped(request, serve):
    message = _json(request)
    told = isinstance(message, dict) and "id" not in message and message.get("method") == "memory/remember"
    return httpx.Response(202) if told else await serve(request)


@breaks("RPC-11")
async def deep_nesting_is_an_internal_error(request, serve):
    if b"[[[[[[[[[[[[" not in request.content:
        return await serve(request)
    error = {"code": -32603, "message": "recursion"}
    return httpx.Response(200, json={"jsonrpc": "2.0", "id": _json(request)["id"], "error": error})


@breaks("SCOPES-12")
async def scopes_are_declared_to_nobody(request, serve):
    response = await serve(request)
    body = await response.aread()
    if b'"capabilities"' in body:
        return httpx.Response(200, json=json.loads(body.replace(b'"core",', b'"core","scopes",')))
    return response


def _json(request):
    try:
        return json.loads(request.content)
    except ValueError:
        return None


def _with(request, body):
    headers = {name: value for name, value in request.headers.items() if name != "content-length"}
    return httpx.Request(request.method, request.url, headers=headers, content=body)


def _without(request, header):
    # Its content is at hand now, so its length is told instead.
    gone = {header, "transfer-encoding"}
    headers = {name: value for name, value in request.headers.items() if name not in gone}
    return httpx.Request(request.method, request.url, headers=headers, content=request.content)


@pytest.mark.parametrize(("requirement", "companions", "mutation"), CASES)
async def test_a_broken_server_fails_where_it_is_broken(
    try_server, failed, requirement, companions, mutation
):
    finished = await try_server(http=mutation)
    assert sorted(failed(finished)) == sorted({requirement, *companions}), failed(finished)
