"""Credentials that are written are not kept, where a server is told so; found by the real library."""

from __future__ import annotations

import logging
import secrets
import string
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from a2m_protocol.types import MAX_CONTENT
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.principals import make_token
from a2m_server.redaction import CredSweeperDetector, Redactor, Span, redactor_of
from a2m_server.values import Filter, Page

LETTERS = string.ascii_letters + string.digits


def random(size: int, letters: str = LETTERS) -> str:
    return "".join(secrets.choice(letters) for _ in range(size))


def private_key() -> str:
    key = rsa.generate_private_key(65_537, 2_048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


STRIPE = f"sk_live_{random(24)}"
SLACK = f"xoxb-{random(12, '123456789')}-{random(13, '123456789')}-{random(24)}"
OWN, _ = make_token(0)
AWS = f"AKIA{random(16, 'ABCDEFGHJKLMNPQRSTUVWXYZ234567')}"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(CredSweeperDetector())


@pytest.fixture
def caller(connect: Any, redactor: Redactor) -> Any:
    opened = connect()
    opened.dispatcher = Dispatcher(MemoryTier(), redactor=redactor)
    return opened


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"remember the key {STRIPE} for later", STRIPE),
        (f"Füße 猫 {SLACK} ü", SLACK),
        (f"one\r\ntwo\n\n  {AWS}\tlast", AWS),
        ("use postgres://alice:s3cretPw9x@db.example.org/app now", "s3cretPw9x"),
        ("password = Tr0ub4dor&3xQz", "Tr0ub4dor&3xQz"),
        (f"mine is {OWN}, yours not", OWN),
    ],
    # Some are made anew in each process, and names of tests must not differ between them.
    ids=["stripe", "slack", "aws", "url", "password", "ours"],
)
def test_what_is_a_credential_is_marked_and_nothing_else_changes(
    redactor: Redactor, text: str, secret: str
) -> None:
    before, after = text.split(secret)
    told = redactor.text(text)
    assert told.startswith(f"{before}[redacted: ")
    assert told.endswith(f"]{after}")
    assert secret not in told
    assert redactor.text(text) == told
    assert redactor.text(told) == told


def test_a_key_over_many_lines_is_one_mark(redactor: Redactor) -> None:
    key = private_key()
    assert redactor.text(f"here:\n{key}over") == "here:\n[redacted: PEM Private Key]\nover"


def test_prose_stays_what_it_is(redactor: Redactor) -> None:
    prose = "The key to the pump is turned at noon.\nA token of thanks; no password is needed, says Ann."
    assert redactor.text(prose * 50) == prose * 50


def test_of_two_that_overlap_one_mark_is_left() -> None:
    class Fixed:
        def find(self, text: str) -> list[Span]:
            return [Span(2, 6, "Key"), Span(0, 8, "Token"), Span(7, 9, "X"), Span(12, 14, "Y")]

    assert Redactor(Fixed()).text("0123456789abcdef") == "[redacted: Token]9ab[redacted: Y]ef"


async def test_content_metadata_and_uri_are_kept_without_them(caller: Any) -> None:
    record = {
        "id": "one",
        "key": "fact/token",
        "content": f"use {STRIPE}",
        "uri": "postgres://alice:s3cretPw9x@db.example.org/app",
        "metadata": {"password": "Tr0ub4dor&3xQz", "n": 1, "deep": [{"note": f"see {SLACK}"}, None, True]},
    }
    await caller.remember(record)
    (kept,) = (await caller.ok("timeline"))["records"]
    assert kept["content"] == "use [redacted: Stripe Credentials]"
    assert kept["uri"].startswith("postgres://alice:[redacted: ")
    assert kept["metadata"]["password"].startswith("[redacted: ")
    assert kept["metadata"]["deep"] == [{"note": "see [redacted: Slack Token]"}, None, True]
    assert (kept["id"], kept["key"], kept["metadata"]["n"]) == ("one", "fact/token", 1)
    assert (await caller.ok("describe"))["redaction"] == "credentials"
    assert (await caller.ok("recall", query=STRIPE))["records"] == []


async def test_a_retry_and_a_rewrite_find_the_same_text(caller: Any) -> None:
    record = {"id": "one", "content": f"use {STRIPE}"}
    assert await caller.remember(record, record) == ["one", "one"]
    assert await caller.remember(record) == ["one"]
    assert await caller.contents() == ["use [redacted: Stripe Credentials]"]


async def test_a_move_into_a_tier_changes_nothing_and_an_import_into_a_federation_is_redacted(
    caller: Any, stacked: Any, redactor: Redactor
) -> None:
    record = {"id": "one", "content": f"use {STRIPE}", "moves": 1}
    await caller.ok("remember", records=[record], transfer=True)
    assert await caller.contents() == [record["content"]]
    taken: list[Any] = []

    async def transfer(drafts: Any) -> Any:
        taken.extend(drafts)
        return await stacked.tiers["episodic"].transfer(drafts)

    stacked.transfer = transfer
    info = await stacked.info()

    async def told() -> Any:
        return info.__class__(**{**{n: getattr(info, n) for n in info.__slots__}, "extensions": {"transfer"}})

    stacked.info = told
    caller.dispatcher = Dispatcher(stacked, redactor=redactor)
    await caller.ok("remember", records=[record], transfer=True)
    assert [draft.content for draft in taken] == ["use [redacted: Stripe Credentials]"]


async def test_what_is_too_long_with_its_marks_is_refused_whole(connect: Any) -> None:
    class Fixed:
        def find(self, text: str) -> list[Span]:
            return [Span(0, 1, "Token")]

    caller = connect()
    caller.dispatcher = Dispatcher(MemoryTier(), redactor=Redactor(Fixed()))
    assert await caller.code("remember", records=[{"content": "x" * MAX_CONTENT}]) == -32006
    assert await caller.contents() == []


async def test_nothing_of_a_credential_is_logged(
    redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = MemoryTier()
    dispatcher = Dispatcher(store, redactor=redactor)
    params: Any = {
        "records": [{"content": f"use {STRIPE} and\n{private_key()}", "metadata": {"secret": AWS}}]
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "memory/remember", "params": params}
    await dispatcher.handle(message, Peer(LOCAL))
    assert STRIPE not in caplog.text
    assert AWS not in caplog.text
    assert "PRIVATE KEY" not in caplog.text
    (kept,) = (await store.timeline(Page(Filter()))).records
    assert STRIPE not in str(kept)


async def test_it_is_off_unless_it_is_asked_for(memory: Any) -> None:
    assert redactor_of("off") is None
    await memory.remember({"content": f"use {STRIPE}"})
    assert await memory.contents() == [f"use {STRIPE}"]
    assert "redaction" not in await memory.ok("describe")
