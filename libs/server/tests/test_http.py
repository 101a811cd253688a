from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

CALL = b'{"jsonrpc":"2.0","id":1,"method":"memory/echo"}'


def head(length: int | None = len(CALL), **headers: str) -> bytes:
    lines = {"Host": "localhost", "Content-Type": "application/json"}
    if length is not None:
        lines["Content-Length"] = str(length)
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    return "".join(
        ["POST / HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in lines.items()), "\r\n"]
    ).encode()


def test_a_request_is_answered_200_with_its_id(served: Any) -> None:
    answer = served.call("memory/echo", {"text": "žluťoučký 🐎"})
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == 1
    assert answer["result"]["params"] == {"text": "žluťoučký 🐎"}


def test_a_notification_is_answered_202_with_an_empty_body(served: Any) -> None:
    response = served.post({"jsonrpc": "2.0", "method": "memory/echo"})
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize("method", ["memory/crash", "memory/surrogate"])
def test_a_notification_that_fails_is_answered_202_too(served: Any, method: str) -> None:
    response = served.post({"jsonrpc": "2.0", "method": method})
    assert (response.status_code, response.content) == (202, b"")


def test_an_array_is_refused_as_an_invalid_request(served: Any) -> None:
    response = served.post([{"jsonrpc": "2.0", "id": 1, "method": "memory/echo"}])
    assert response.status_code == 200
    assert response.json()["error"]["code"] == -32600
    assert response.json()["id"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"id": NaN}',
        b'{"id": -Infinity}',
        b"[" * 200_000,
        b'{"a":' * 100_000 + b"1",
        b'{"id": ' + b"9" * 5_000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
    ids=["empty", "cut", "utf-8", "nan", "infinity", "deep", "deep-objects", "long-number", "bom"],
)
def test_what_is_not_json_is_a_parse_error_and_the_server_goes_on(served: Any, body: bytes) -> None:
    response = served.post(body)
    assert response.status_code == 200
    assert response.json()["error"]["code"] == -32700
    assert response.json()["id"] is None
    assert served.call("memory/echo")["result"]


def test_a_lone_surrogate_in_an_error_message_is_escaped(served: Any) -> None:
    response = served.post({"jsonrpc": "2.0", "id": 1, "method": "memory/surrogate"})
    assert b"\\ud800" in response.content
    assert response.json()["error"]["code"] == -32602


def test_an_unexpected_exception_is_logged_under_an_id_and_its_text_kept_from_the_client(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = served.call("memory/crash")["error"]
    assert error["code"] == -32603
    assert "secret" not in json.dumps(error)
    assert "Traceback" not in json.dumps(error)
    assert error["data"]["request"] in caplog.text
    assert "a secret of the inside" in caplog.text


def test_get_on_the_endpoint_is_405_and_says_what_is_allowed(served: Any) -> None:
    response = served.client.get("/")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; charset=latin-1",
    ],
)
def test_another_content_type_is_415(served: Any, kind: str) -> None:
    assert served.post(CALL, Content_Type=kind).status_code == 415


def test_a_missing_content_type_is_415(served: Any) -> None:
    assert served.client.post("/", content=CALL).status_code == 415


def test_a_compressed_body_is_415(served: Any) -> None:
    assert served.post(CALL, Content_Encoding="gzip").status_code == 415


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_is_taken_however_its_type_is_spelt(served: Any, kind: str) -> None:
    assert served.post(CALL, Content_Type=kind).status_code == 200


@pytest.mark.parametrize("version", ["a2m/9.9", "a2m/0.2", "1.0", "garbage", ""])
def test_a_protocol_version_that_we_do_not_speak_is_400(served: Any, version: str) -> None:
    response = served.post(CALL, A2M_Protocol_Version=version)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32007


@pytest.mark.parametrize("version", ["a2m/0.1", "0.1"])
def test_the_protocol_version_that_we_speak_passes(served: Any, version: str) -> None:
    assert served.post(CALL, A2M_Protocol_Version=version).status_code == 200


@pytest.mark.parametrize("path", ["/", "/.well-known/a2m-server.json", "/metrics", "/readyz"])
def test_an_origin_is_403_by_default(served: Any, path: str) -> None:
    for origin in ("https://evil.example", "null", served.url, ""):
        assert (
            served.client.request(
                "POST" if path == "/" else "GET", path, headers={"Origin": origin}
            ).status_code
            == 403
        )


def test_a_configured_origin_passes_and_may_ask_first(serve: Any) -> None:
    with serve(origins="https://console.example,https://other.example") as served:
        answer = served.post(CALL, Origin="https://console.example")
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://console.example"
        assert served.post(CALL, Origin="https://console.example.evil").status_code == 403
        asked = served.client.options(
            "/",
            headers={
                "Origin": "https://other.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type, authorization, a2m-protocol-version",
            },
        )
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://other.example"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "10.0.0.1", "2130706433", ""])
def test_a_host_that_is_not_ours_is_421(served: Any, host: str) -> None:
    assert served.post(CALL, Host=host).status_code == 421
    assert served.client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "127.9.9.9", "[::1]:8781", "[::1]"]
)
def test_a_loopback_host_passes(served: Any, host: str) -> None:
    assert served.post(CALL, Host=host).status_code == 200


def test_a_configured_host_passes(serve: Any) -> None:
    with serve(hosts="episodic, memory.internal") as served:
        assert served.post(CALL, Host="Episodic:8782").status_code == 200
        assert served.post(CALL, Host="episodic.evil").status_code == 421


def test_a_body_declared_over_the_cap_is_413_before_it_is_sent(serve: Any) -> None:
    with serve(max_body=2_048) as served:
        assert b" 413 " in served.raw(head(2_049)).splitlines()[0]
        assert b" 413 " in served.raw(head(10**18)).splitlines()[0]
        assert served.handler.seen == []


def test_a_chunked_body_over_the_cap_is_413_while_it_is_sent(serve: Any) -> None:
    with serve(max_body=2_048) as served:
        chunk = b"400\r\n" + b" " * 0x400 + b"\r\n"
        begun = head(None, Transfer_Encoding="chunked") + chunk * 3
        assert b" 413 " in served.raw(begun).splitlines()[0]
        assert served.handler.seen == []


def test_a_body_of_just_the_cap_passes(serve: Any) -> None:
    with serve(max_body=2_048) as served:
        assert served.post(CALL.ljust(2_048)).status_code == 200
        response = served.post(CALL.ljust(2_049))
        assert response.status_code == 413
        assert "2048" in response.json()["error"]


def test_a_large_body_that_is_refused_does_not_spoil_the_answer(serve: Any) -> None:
    with serve(max_body=2_048) as served:
        for _ in range(3):
            assert served.post(b" " * 3_000_000).status_code == 413
        assert served.call("memory/echo")["result"]


def test_a_body_that_never_ends_is_408(serve: Any) -> None:
    with serve(body_timeout=0.2) as served:
        answer = served.raw(head(1_000) + b'{"jsonrpc"')
        assert b" 408 " in answer.splitlines()[0]
        assert served.handler.seen == []


@pytest.mark.parametrize("begun", [b"", b"POST / HTTP/1.1\r\nHost: loc"])
def test_a_connection_that_sends_no_whole_head_is_closed(serve: Any, begun: bytes) -> None:
    with serve(header_timeout=0.5, keep_alive=60) as served:
        assert served.raw(begun) == b""
        assert served.call("memory/echo")["result"]


def test_a_connection_lives_on_between_requests_and_over_a_long_one(serve: Any) -> None:
    with (
        serve(keep_alive=2, header_timeout=0.2) as served,
        socket.create_connection(("127.0.0.1", served.port)) as connection,
    ):
        slow = b'{"jsonrpc":"2.0","id":1,"method":"memory/slow","params":{"seconds":1.3}}'
        for call in (CALL, slow, CALL):
            connection.sendall(head(len(call)) + call)
            got = b""
            while b'"result"' not in got:
                chunk = connection.recv(65_536)
                assert chunk
                got += chunk


def test_those_who_say_nothing_keep_nobody_out(serve: Any) -> None:
    with serve(max_connections=20, header_timeout=60) as served, contextlib.ExitStack() as opened:
        one = opened.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
        one.sendall(head(len(CALL)) + CALL)
        assert b" 200 " in one.recv(65_536)
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
            for _ in range(60)
        ]
        assert served.call("memory/echo")["result"]
        one.sendall(head(len(CALL)) + CALL)
        assert b" 200 " in one.recv(65_536)
        # It is the oldest that made room.
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
        silent[-1].sendall(head(len(CALL)) + CALL)
        assert b" 200 " in silent[-1].recv(65_536)


def test_a_client_that_leaves_in_the_middle_of_a_body_disturbs_nobody(served: Any) -> None:
    before = len(served.handler.seen)
    served.raw(head(1_000) + b'{"jsonrpc"', finish=True)
    assert served.call("memory/echo")["result"]
    assert len(served.handler.seen) == before + 1


def test_a_call_that_takes_too_long_is_a_retryable_error(serve: Any) -> None:
    with serve(request_timeout=0.1) as served:
        error = served.call("memory/slow")["error"]
        assert error["code"] == -32603
        assert error["data"]["retryable"] is True
        assert served.handler.cancelled == 1


def test_the_well_known_document_is_the_describe_result(served: Any) -> None:
    response = served.client.get("/.well-known/a2m-server.json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"protocol": "a2m/0.1", "trusted": False}


def test_health_is_the_process_and_readiness_the_database(serve: Any) -> None:
    with serve() as served:
        assert served.client.get("/readyz").status_code == 200
        served.handler.down = True
        response = served.client.get("/readyz")
        assert response.status_code == 503
        assert "switched off" in response.json()["reason"]
        assert served.client.get("/healthz").status_code == 200


def test_metrics_count_by_method_and_code_and_take_no_names_from_clients(serve: Any) -> None:
    with serve() as served:
        served.call("memory/recall")
        served.call("memory/recall")
        served.call("memory/trace")
        served.call("memory/crash")
        served.post(b"{")
        served.post({"jsonrpc": "2.0", "method": "memory/made-up"})
        text = served.client.get("/metrics").text
        assert 'a2m_requests_total{code="0",method="memory/recall"} 2.0' in text
        assert 'a2m_requests_total{code="0",method="memory/trace"} 1.0' in text
        assert 'a2m_requests_total{code="-32603",method="other"} 1.0' in text
        assert 'a2m_requests_total{code="-32700",method="other"} 1.0' in text
        assert "made-up" not in text


def test_what_is_beyond_a_rate_is_refused_and_makes_no_labels(serve: Any) -> None:
    with serve(rate="2/minute") as served:
        answers = [served.call(f"memory/secret-{n}") for n in range(4)]
        codes = [answer.get("error", {}).get("code") for answer in answers]
        assert codes == [None, None, -32006, -32006]
        refused = answers[3]["error"]["data"]
        assert refused["retryable"] is True
        assert refused["retry_after"] >= 1
        assert "secret" not in served.client.get("/metrics").text


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc", "/nothing"])
def test_there_is_nothing_else(served: Any, path: str) -> None:
    assert served.client.get(path).status_code == 404


def test_without_authentication_a_caller_is_not_trusted_but_may_move_records(served: Any) -> None:
    result = served.call("memory/echo", Authorization="Bearer whatever")["result"]
    assert result["trusted"] is False
    assert result["roles"] == ["operator", "router"]


def test_the_service_token_makes_a_caller_trusted(serve: Any, token_file: Path) -> None:
    with serve(token_file=token_file) as served:
        result = served.call("memory/echo", Authorization="bearer first-token")["result"]
        assert (result["trusted"], result["roles"]) == (True, ["operator", "router"])
        result = served.call("memory/echo")["result"]
        assert (result["trusted"], result["roles"]) == (False, ["agent"])


@pytest.mark.parametrize(
    "shown", ["Bearer wrong", "Bearer", "Bearer ", "first-token", "Basic Zmlyc3QtdG9rZW4="]
)
def test_a_bad_credential_is_401_before_the_body_is_read(serve: Any, token_file: Path, shown: str) -> None:
    with serve(token_file=token_file) as served:
        answer = served.raw(head(1_000, Authorization=shown))
        assert b" 401 " in answer.splitlines()[0]
        assert b"www-authenticate: bearer" in answer.lower()
        for path in ("/.well-known/a2m-server.json", "/metrics"):
            assert served.client.get(path, headers={"Authorization": shown.strip()}).status_code == 401
        assert served.handler.seen == []


def test_two_credentials_are_401(serve: Any, token_file: Path) -> None:
    with serve(token_file=token_file) as served:
        twice = head(len(CALL), Authorization="Bearer first-token\r\nAuthorization: Bearer other")
        assert b" 401 " in served.raw(twice + CALL).splitlines()[0]


def test_a_token_that_is_replaced_in_its_file_is_taken_at_once(serve: Any, token_file: Path) -> None:
    with serve(token_file=token_file) as served:
        token_file.write_text("second-and-longer-token\n")
        assert served.post(CALL, Authorization="Bearer first-token").status_code == 401
        assert served.call("memory/echo", Authorization="Bearer second-and-longer-token")["result"]["trusted"]
        token_file.unlink()
        assert served.call("memory/echo", Authorization="Bearer second-and-longer-token")["result"]["trusted"]


def test_beyond_loopback_the_token_must_be_shown(serve: Any, token_file: Path) -> None:
    with serve(host="0.0.0.0", token_file=token_file) as served:
        assert served.post(CALL, Host="localhost").status_code == 401
        # The address of all interfaces is no name of this one: browsers reach loopback by it.
        assert served.post(CALL, Host="0.0.0.0").status_code == 421
        result = served.call("memory/echo", Host="localhost", Authorization="Bearer first-token")["result"]
        assert result["trusted"] is True


def test_the_token_is_never_logged(serve: Any, token_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with serve(token_file=token_file) as served:
        served.call("memory/crash", Authorization="Bearer first-token")
        served.post(CALL, Authorization="Bearer wrong-token")
    assert "-token" not in caplog.text


def test_the_store_is_opened_before_and_closed_after_serving(serve: Any) -> None:
    with serve() as served:
        assert (served.handler.opened, served.handler.closed) == (1, 0)
    assert (served.handler.opened, served.handler.closed) == (1, 1)


def test_a_shutdown_finishes_what_is_in_flight(serve: Any, eventually: Any) -> None:
    answers: list[Any] = []
    with serve() as served:
        call = threading.Thread(target=lambda: answers.append(served.call("memory/slow", {"seconds": 0.3})))
        call.start()
        eventually(lambda: len(served.handler.seen) == 1)
    call.join()
    assert answers[0]["result"]
    assert served.handler.closed == 1


def test_a_shutdown_does_not_wait_for_ever(serve: Any, eventually: Any) -> None:
    started = time.monotonic()
    with serve(shutdown_timeout=0) as served:
        connection = socket.create_connection(("127.0.0.1", served.port))
        connection.sendall(head(1_000) + b"{")
        eventually(lambda: served.client.get("/healthz").status_code == 200)
    connection.close()
    assert time.monotonic() - started < 10
