"""JSON-RPC over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, part
from a2m_conformance.values import equal

_DESCRIBE: dict[str, Json] = {"jsonrpc": "2.0", "id": 1, "method": "memory/describe", "params": {}}
_CHUNK = 1 << 20
_MOST_WE_SEND = 64


@check("HTTP-01")
async def requests_are_answered_200(probe: Probe) -> None:
    for method, params in (("memory/describe", {}), ("memory/no-such", {}), ("memory/recall", {"limit": -1})):
        response = await probe.http.post({**_DESCRIBE, "method": method, "params": params})
        equal(response.status_code, 200, f"the status of {method}")
        equal(response.json().get("id"), 1, "id")


@check("HTTP-02")
async def notifications_are_answered_202(probe: Probe) -> None:
    for method in ("memory/describe", "memory/no-such"):
        response = await probe.http.post({"jsonrpc": "2.0", "method": method, "params": {}})
        equal(response.status_code, 202, "the status of a notification")
        equal(response.content.decode(), "", "the body of a notification's response")


@check("HTTP-03")
async def get_is_not_allowed(probe: Probe) -> None:
    response = await probe.http.client.get(probe.http.url, headers=probe.http.headers())
    equal(response.status_code, 405, "the status of a GET")


@check("HTTP-04")
async def browsers_are_kept_out(probe: Probe) -> None:
    params = {"records": [probe.record("from a browser")]}
    message = _DESCRIBE if probe.read_only else {**_DESCRIBE, "method": "memory/remember", "params": params}
    for origin in ("https://example.org", "null", "http://localhost", probe.http.url.rstrip("/")):
        response = await probe.http.post(message, Origin=origin)
        equal(response.status_code, 403, f"the status with the Origin {origin}")
    if not probe.read_only:
        expect(not await probe.mine(), "a request that was refused for its Origin was carried out")


@check("HTTP-05")
async def other_versions_are_refused(probe: Probe) -> None:
    for version in ("a2m/0.2", "a2m/9.9", "nonsense"):
        response = await probe.http.post(_DESCRIBE, A2M_Protocol_Version=version)
        equal(response.status_code, 400, f"the status with the version {version}")
        equal(part(response.json().get("error"), "code"), -32007, "the code of the error")


@check("HTTP-06")
async def our_version_passes(probe: Probe) -> None:
    response = await probe.http.post(_DESCRIBE, A2M_Protocol_Version="a2m/0.1")
    equal(response.status_code, 200, "the status with the version a2m/0.1")
    expect("result" in response.json(), "describe was refused")


@check("HTTP-07", phase="alone")
async def bodies_have_a_cap(probe: Probe) -> None:
    async def flood() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc": "2.0", "id": 1, "method": "'
        for _ in range(_MOST_WE_SEND):
            yield b"x" * _CHUNK
        yield b'"}'

    response = await probe.http.client.post(probe.http.url, content=flood(), headers=probe.http.headers())
    if response.status_code == 200:
        raise NotApplicable(f"no cap below {_MOST_WE_SEND} MB")
    equal(response.status_code, 413, f"the status of a body of {_MOST_WE_SEND} MB")


@check("HTTP-08")
async def the_document_is_describe(probe: Probe) -> None:
    response = await probe.http.client.get(probe.http.well_known, headers=probe.http.headers())
    equal(response.status_code, 200, f"the status of {probe.http.well_known}")
    document, about = response.json(), await probe.call("describe")
    for field in ("protocol", "name", "capabilities", "methods", "limits"):
        equal(document.get(field), about.get(field), f"{field} of the document")
    equal(sorted(document), sorted(about), "the fields of the document")


@check("HTTP-09")
async def responses_are_json(probe: Probe) -> None:
    response = await probe.http.post(_DESCRIBE)
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    equal(kind, "application/json", "the content type")


@check("HTTP-10")
async def credentials_come_first(probe: Probe) -> None:
    if probe.http.token is None:
        raise NotApplicable("no token given")
    bad: list[dict[str, str]] = [
        {"Authorization": f"Bearer wrong-{probe.mark}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic eA=="},
    ]
    # A server may serve those who show none; whom it then is, SCOPES-12 looks at.
    if (await _with_credential(probe, {}, json.dumps(_DESCRIBE))) != 200:
        bad.append({})
    for credential in bad:
        for body in (json.dumps(_DESCRIBE), "no json", "[]"):
            status = await _with_credential(probe, credential, body)
            equal(status, 401, f"the status with {credential or 'no credential'}")


@check("HTTP-11")
async def connections_are_apart(probe: Probe) -> None:
    async def one(number: int) -> None:
        response = await probe.http.post({**_DESCRIBE, "id": f"{probe.mark}-{number}"})
        equal(response.json().get("id"), f"{probe.mark}-{number}", "id")

    await asyncio.gather(*(one(number) for number in range(20)))


async def _with_credential(probe: Probe, credential: dict[str, str], body: str) -> int:
    headers = {"Content-Type": "application/json", **credential}
    return (await probe.http.client.post(probe.http.url, content=body, headers=headers)).status_code
