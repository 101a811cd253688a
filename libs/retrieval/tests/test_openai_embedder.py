"""The embedder against endpoints of OpenAI's kind that misbehave, over real sockets."""

from __future__ import annotations

import asyncio
import json
import math
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from a2m_protocol.errors import A2MError
from a2m_retrieval.embed.openai import OpenAIEmbedder

Answer = Callable[[dict[str, Any]], "bytes | None"]
KEY = "sk-very-secret"


def http(body: object, status: str = "200 OK", **headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Content-Length": str(len(data))} | {k.replace("_", "-"): v for k, v in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


def vector(text: str, width: int = 4) -> list[float]:
    return [float(len(text)), *(float(ord(letter)) for letter in text.ljust(width)[: width - 1])]


def embeddings(message: dict[str, Any]) -> dict[str, Any]:
    data = [{"index": at, "embedding": vector(text)} for at, text in enumerate(message["input"])]
    return {"object": "list", "data": data, "model": message["model"]}


def well(message: dict[str, Any]) -> bytes:
    return http(embeddings(message))


def in_turn(*answers: bytes | None) -> Answer:
    """These answers first, good ones after them."""
    left = list(answers)
    return lambda message: left.pop(0) if left else well(message)


class Endpoint:
    """Answers each request as it is told; to None with silence, and hangs up after an answer cut short."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n"))}
                message = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.heads.append(head)
                self.requests.append(message)
                answer = self.answer(message)
                if answer is None:
                    continue
                writer.write(answer)
                await writer.drain()
                if not answer.endswith((b"}", b"]", b">")):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    @property
    def sent(self) -> list[list[str]]:
        return [request["input"] for request in self.requests]


@asynccontextmanager
async def endpoint(answer: Answer = well) -> AsyncIterator[Endpoint]:
    it = Endpoint(answer)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield it
    finally:
        server.close()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[OpenAIEmbedder]:
    made = OpenAIEmbedder(url, options.pop("model", "m"), **({"pause": 0.001, "timeout": 10.0} | options))
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def failure(answer: Answer, texts: tuple[str, ...] = ("one", "two"), **options: Any) -> A2MError:
    """How embedding at an endpoint that answers like this fails; it never tells the key or a text."""
    async with endpoint(answer) as it, opened(it.url, **({"retries": 0, "key": KEY} | options)) as embedder:
        with pytest.raises(A2MError) as caught:
            await embedder.embed(texts, kind="document")
    assert KEY not in str(caught.value)
    assert texts[0] not in str(caught.value)
    return caught.value


async def test_vectors_are_float32_of_length_one_in_the_order_of_the_texts() -> None:
    async with endpoint() as it, opened(it.url) as embedder:
        assert embedder.dimensions is None
        texts = ["a", "bc", "déf"]
        for text, got in zip(texts, await embedder.embed(texts, kind="document"), strict=True):
            length = math.hypot(*vector(text))
            assert got == array("f", [number / length for number in vector(text)]).tolist()
        assert (embedder.dimensions, embedder.metric) == (4, "cosine")
        assert await embedder.embed([], kind="document") == []
        assert embedder.reads("東京")
    assert it.requests == [{"model": "m", "encoding_format": "float", "input": texts}]
    assert it.heads[0].startswith("POST /v1/embeddings HTTP/1.1\r\n")
    assert "authorization" not in it.heads[0].lower()


async def test_answers_are_put_in_the_order_of_their_indexes() -> None:
    def shuffled(message: dict[str, Any]) -> bytes:
        return http({"data": embeddings(message)["data"][::-1]})

    async with endpoint(shuffled) as it, opened(it.url) as embedder, endpoint() as straight:
        texts = ["a", "bb", "ccc"]
        async with opened(straight.url) as other:
            assert await embedder.embed(texts, kind="query") == await other.embed(texts, kind="query")


async def test_batches_are_bounded_by_count_and_by_characters() -> None:
    async with endpoint() as it, opened(it.url, batch=3, batch_characters=10) as embedder:
        texts = ["a", "b", "c", "d", "e" * 9, "f" * 40, "g"]
        assert len(await embedder.embed(texts, kind="document")) == len(texts)
    assert it.sent == [["a", "b", "c"], ["d", "e" * 9], ["f" * 40], ["g"]]


async def test_dimensions_and_prefixes_are_sent_and_the_width_is_part_of_the_models_name() -> None:
    options: dict[str, Any] = {"query_prefix": "query: ", "document_prefix": "passage: "}
    async with endpoint() as it, opened(it.url, model="e5", dimensions=4, **options) as embedder:
        assert (embedder.model, embedder.dimensions) == ("e5@4", 4)
        await embedder.embed(["what"], kind="query")
        await embedder.embed(["that"], kind="document")
    assert it.sent == [["query: what"], ["passage: that"]]
    assert {request["dimensions"] for request in it.requests} == {4}


async def test_blank_texts_and_lone_surrogates_are_sent_as_what_an_endpoint_takes() -> None:
    async with endpoint() as it, opened(it.url) as embedder:
        await embedder.embed(["", " \n", "\ud800x", "東京"], kind="document")
    assert it.sent == [[".", ".", "?x", "東京"]]


async def test_the_key_is_sent_as_a_bearer_token() -> None:
    async with endpoint() as it, opened(it.url, key=KEY) as embedder:
        await embedder.embed(["x"], kind="query")
    assert f"authorization: Bearer {KEY}" in it.heads[0]


async def test_a_key_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("first\n")
    async with endpoint() as it, opened(it.url, key_file=path) as embedder:
        await embedder.embed(["x"], kind="query")
        path.write_text("the-second\n")
        await embedder.embed(["x"], kind="query")
    assert "Bearer first\r\n" in it.heads[0]
    assert "Bearer the-second\r\n" in it.heads[1]


@pytest.mark.parametrize("status", ["408 T", "429 T", "500 T", "502 T", "503 T", "504 T"])
async def test_a_busy_or_broken_endpoint_is_asked_again(status: str) -> None:
    busy = http({"error": {"message": "later"}}, status)
    async with endpoint(in_turn(busy, busy)) as it, opened(it.url, retries=2) as embedder:
        assert len(await embedder.embed(["x"], kind="query")) == 1
    assert len(it.requests) == 3


async def test_an_endpoint_that_stays_busy_is_a_retryable_error_after_the_last_try() -> None:
    tries: list[int] = []

    def busy(_: dict[str, Any]) -> bytes:
        tries.append(1)
        return http({"error": {"message": KEY}}, "503 Service Unavailable")

    error = await failure(busy, retries=3)
    assert error.retryable
    assert "503" in str(error)
    assert len(tries) == 4


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
async def test_retry_after_is_waited_for(as_date: bool) -> None:
    begun = time.monotonic()
    # A date has whole seconds, so that two ahead is at least one away.
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    busy = http({}, "429 Too Many Requests", Retry_After=date if as_date else "0.3")
    async with endpoint(in_turn(busy)) as it, opened(it.url) as embedder:
        await embedder.embed(["x"], kind="query")
    assert time.monotonic() - begun >= 0.3
    assert len(it.requests) == 2


@pytest.mark.parametrize(
    "header", ["soon", "-5", "nan", "inf", "Mon, 9 Foo", "Wed, 21 Oct 2015 07:28:00 GMT"]
)
async def test_a_retry_after_without_sense_or_in_the_past_is_not_waited_for(header: str) -> None:
    busy = http({}, "429 Too Many Requests", Retry_After=header)
    async with endpoint(in_turn(busy)) as it, opened(it.url) as embedder:
        await embedder.embed(["x"], kind="query")
    assert len(it.requests) == 2


async def test_a_long_retry_after_is_left_to_the_caller() -> None:
    begun = time.monotonic()
    error = await failure(lambda _: http({}, "429 T", Retry_After="3600"), retries=5)
    assert error.retryable
    assert "3600 s" in str(error)
    assert time.monotonic() - begun < 5


async def test_silence_is_a_retryable_error_within_the_timeout() -> None:
    error = await failure(lambda _: None, timeout=0.1)
    assert error.retryable
    assert "0.1 s" in str(error)


async def test_a_connection_that_breaks_or_is_refused_is_a_retryable_error() -> None:
    for cut in (b"", http(embeddings({"input": ["one", "two"], "model": "m"}))[:-9], b"no HTTP\r\n\r\n"):
        assert (await failure(lambda _, cut=cut: cut)).retryable
    async with endpoint() as gone:
        pass
    async with opened(gone.url, retries=1) as embedder:
        with pytest.raises(A2MError, match="does not answer") as caught:
            await embedder.embed(["x"], kind="query")
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "hint"), [("401 U", "the key"), ("403 F", "the key"), ("404 N", "the URL")]
)
async def test_a_wrong_key_or_url_is_an_error_at_once_that_says_what_to_check(status: str, hint: str) -> None:
    tries: list[int] = []

    def refusing(_: dict[str, Any]) -> bytes:
        tries.append(1)
        return http({"error": {"message": f"Incorrect API key provided: {KEY}"}}, status)

    error = await failure(refusing, retries=5)
    assert not error.retryable
    assert hint in str(error)
    assert len(tries) == 1


async def test_a_redirect_is_not_followed_so_that_the_key_stays_here() -> None:
    error = await failure(lambda _: http({}, "302 Found", Location="http://127.0.0.1:9/v1/embeddings"))
    assert not error.retryable


def changed(change: Callable[[list[Any]], object]) -> Answer:
    """A good answer whose embeddings are changed."""

    def answer(message: dict[str, Any]) -> bytes:
        data = embeddings(message)["data"]
        change(data)
        return http({"data": data})

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        changed(lambda data: data.pop()),
        changed(lambda data: data.append({"index": 2, "embedding": vector("x")})),
        changed(lambda data: data.clear()),
        changed(lambda data: data[1].update(index=0)),
        changed(lambda data: data[1].update(index=-1)),
        changed(lambda data: data[1].pop("index")),
        changed(lambda data: data[1]["embedding"].append(1.0)),
        changed(lambda data: [item["embedding"].clear() for item in data]),
        changed(lambda data: data[0]["embedding"].__setitem__(0, math.nan)),
        changed(lambda data: data[0]["embedding"].__setitem__(0, math.inf)),
        changed(lambda data: data[0]["embedding"].__setitem__(0, None)),
        changed(lambda data: data[0]["embedding"].__setitem__(0, "1")),
        changed(lambda data: data[0].update(embedding=[0.0] * 4)),
        changed(lambda data: data[0].update(embedding="AACAPw==")),
        lambda _: http({"data": None}),
        lambda _: http([1, 2]),
        lambda _: http(b"<html>one moment please</html>"),
        lambda _: http(b""),
        lambda _: http(b"\xff\xfe\x00"),
    ],
    ids=[
        "one too few", "one too many", "none", "index twice", "index below zero", "no index", "two widths",
        "width 0", "NaN", "infinity", "null", "string", "zeros", "base64", "no data", "no object", "HTML",
        "nothing", "no text",
    ],
)  # fmt: skip
async def test_an_answer_that_is_no_vectors_for_the_texts_is_refused(answer: Answer) -> None:
    error = await failure(answer)
    assert not error.retryable
    assert "answered" in str(error)


async def test_the_width_of_the_first_answer_holds_for_all_later_ones() -> None:
    widths = [4, 4, 3]

    def answer(message: dict[str, Any]) -> bytes:
        return http({"data": [{"index": 0, "embedding": [1.0] * widths.pop(0)}]})

    async with endpoint(answer) as it, opened(it.url) as embedder:
        await embedder.embed(["x"], kind="query")
        await embedder.embed(["x"], kind="query")
        with pytest.raises(A2MError, match=r"\[3\] numbers instead of 4"):
            await embedder.embed(["x"], kind="query")


async def test_another_width_than_the_one_asked_for_is_refused() -> None:
    assert "[4] numbers instead of 3" in str(await failure(well, dimensions=3))


async def test_large_numbers_are_scaled_without_overflow() -> None:
    large = changed(lambda data: data[0].update(embedding=[3e300, 4e300]))
    async with endpoint(large) as it, opened(it.url) as embedder:
        (got,) = await embedder.embed(["x"], kind="query")
    assert got == pytest.approx([0.6, 0.8])


async def test_a_text_is_sent_by_its_head_and_halved_while_the_endpoint_refuses_it() -> None:
    def short_ones(message: dict[str, Any]) -> bytes:
        if any(len(text) > 600 for text in message["input"]):
            return http({"error": {"message": "too long"}}, "400 Bad Request")
        return well(message)

    async with endpoint(short_ones) as it, opened(it.url, max_characters=4_000) as embedder:
        texts = ["a", "b" * 9_000, "c", "d"]
        got = await embedder.embed(texts, kind="document")
        assert got == [(await embedder.embed([t], kind="query"))[0] for t in ["a", "b" * 500, "c", "d"]]
    assert max(len(text) for batch in it.sent for text in batch) == 4_000


async def test_a_request_that_is_refused_however_short_is_an_error_after_few_tries() -> None:
    tries: list[int] = []

    def refusing(_: dict[str, Any]) -> bytes:
        tries.append(1)
        return http({"error": {"message": "no such model"}}, "400 Bad Request")

    error = await failure(
        refusing, texts=tuple("abcdefgh" * 1_000 for _ in range(64)), batch_characters=10**9
    )
    assert not error.retryable
    assert len(tries) < 15


async def test_a_cancelled_call_leaves_the_embedder_usable() -> None:
    asked = asyncio.Event()

    def silent_once(message: dict[str, Any]) -> bytes | None:
        answer = well(message) if asked.is_set() else None
        asked.set()
        return answer

    async with endpoint(silent_once) as it, opened(it.url) as embedder:
        call = asyncio.create_task(embedder.embed(["x"], kind="query"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(await embedder.embed(["x"], kind="query")) == 1


async def test_an_embedder_that_is_not_open_says_so() -> None:
    with pytest.raises(A2MError, match="not open"):
        await OpenAIEmbedder("http://127.0.0.1:9/v1", "m").embed(["x"], kind="query")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:11434",
        "ftp://x/v1",
        "http://",
        "http://u:secret@x/v1",
        "http://x/v1?key=secret",
        "http://x:y",
    ],
)
def test_what_is_no_url_of_an_endpoint_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="URL is wanted in the form") as caught:
        OpenAIEmbedder(url, "m")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "line\nbreak"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ValueError, match="key holds") as caught:
        OpenAIEmbedder("http://127.0.0.1:9/v1", "m", key=key)
    assert not key or key not in str(caught.value)
