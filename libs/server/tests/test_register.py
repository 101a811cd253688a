"""The file of principals, and the tokens in it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from a2m_protocol.clock import format_ms
from a2m_server.identity import Role, UnauthorizedError
from a2m_server.principals import Principal, Principals, Token, make_token, revoked, rotated
from a2m_server.register import Register, RegisterError, editing, read

NOW = 1_800_000_000_000
HOUR = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "principals.json"


def add(path: Path, name: str, lifetime_ms: int | None = None, **fields: Any) -> str:
    text, token = make_token(NOW, lifetime_ms)
    with editing(path) as edit:
        edit.principals = edit.principals.with_(Principal(name=name, tokens=(token,), **fields))
    return text


def test_a_token_has_an_id_and_256_random_bits_and_is_kept_as_a_hash_alone(path: Path) -> None:
    text = add(path, "ann")
    assert re.fullmatch(r"a2m_[0-9a-z]{8}_[A-Za-z0-9_-]{43}", text)
    kept = path.read_text()
    assert text not in kept
    assert text.split("_", 2)[2] not in kept
    assert hashlib.sha256(text.encode()).hexdigest() in kept
    assert len({make_token(NOW)[0] for _ in range(100)}) == 100


async def test_a_token_tells_whose_it_is(path: Path) -> None:
    text = add(path, "acme/support/agent-7", owner="acme/support", reads=("acme",), pooled=False)
    caller = await Register(path).verify(text.encode())
    assert caller is not None
    assert (caller.name, caller.owner, caller.trusted) == ("acme/support/agent-7", "acme/support", False)
    assert caller.readable == {"acme/support", "acme"}
    assert caller.roles == {Role.AGENT}


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t + "A", lambda t: t[:-1] + "~", lambda t: ""]
)
async def test_what_is_not_wholly_a_token_of_the_file_is_nobodys(path: Path, change: Any) -> None:
    text = add(path, "ann")
    other = make_token(NOW)[0]
    register = Register(path)
    # The id of one with the secret of another.
    mixed = text[:13] + other[13:]
    for wrong in (change(text), other, mixed, "a2m_\u0660" + text[5:], text.upper()):
        assert await register.verify(wrong.encode()) is None


async def test_a_token_ends_when_it_expires(path: Path) -> None:
    clock = Clock()
    text = add(path, "ann", HOUR)
    register = Register(path, clock)
    clock.now = NOW + HOUR - 1
    assert await register.verify(text.encode())
    clock.now += 1
    with pytest.raises(UnauthorizedError, match="expired"):
        await register.verify(text.encode())


async def test_rotation_ends_the_old_tokens_after_a_grace_and_no_later_than_they_would(path: Path) -> None:
    clock = Clock()
    (old, one), (short, two), (fresh, three) = make_token(NOW), make_token(NOW, HOUR), make_token(NOW)
    changed = rotated(Principal(name="ann", tokens=(one, two)), three, NOW, 2 * HOUR)
    with editing(path) as edit:
        edit.principals = Principals(principals=(changed,))
    register = Register(path, clock)
    clock.now = NOW + HOUR
    assert await register.verify(old.encode())
    with pytest.raises(UnauthorizedError):
        await register.verify(short.encode())
    clock.now = NOW + 2 * HOUR
    with pytest.raises(UnauthorizedError):
        await register.verify(old.encode())
    assert await register.verify(fresh.encode())


async def test_a_token_that_is_revoked_under_a_running_server_is_refused_at_once(path: Path) -> None:
    text = add(path, "ann")
    kept = add(path, "bob")
    register = Register(path)
    assert await register.verify(text.encode())
    with editing(path) as edit:
        ann = edit.principals.named("ann")
        assert ann is not None
        edit.principals = edit.principals.with_(revoked(ann, [ann.tokens[0].id], NOW))
    with pytest.raises(UnauthorizedError, match="revoked"):
        await register.verify(text.encode())
    assert await register.verify(kept.encode())
    late = add(path, "eve")
    assert await register.verify(late.encode())


def _read(path: Path) -> str:
    return path.read_text()


def _write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_text(text)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"roles"', '"rolls"'),
        lambda text: text.replace("agent", "king"),
        lambda text: "",
        None,
    ],
)
async def test_a_file_that_breaks_leaves_the_last_in_force_and_the_log_says_so_without_secrets(
    path: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    text = add(path, "ann")
    register = Register(path)
    whole = _read(path)
    _write(path, None if damage is None else damage(whole))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert await register.verify(text.encode())
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "stays in force" in caplog.text
    for secret in (text, hashlib.sha256(text.encode()).hexdigest(), "Traceback"):
        assert secret not in caplog.text
    _write(path, whole.replace("ann", "anna"))
    caller = await register.verify(text.encode())
    assert caller is not None
    assert caller.name == "anna"


def test_a_file_that_cannot_be_read_at_the_start_is_refused_with_the_reason(path: Path) -> None:
    with pytest.raises(RegisterError, match="No such file"):
        Register(path)
    text = add(path, "ann")
    path.write_text(path.read_text().replace('"pooled"', '"poold"'))
    with pytest.raises(RegisterError, match=r"principals\.0\.poold") as raised:
        Register(path)
    assert hashlib.sha256(text.encode()).hexdigest() not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": ""}, "at least 1"),
        ({"name": "x" * 513}, "at most 512"),
        ({"name": "x", "owner": "*"}, "no owner"),
        ({"name": "x", "reads": ["*"]}, "takes the role"),
        ({"name": "x", "roles": []}, "at least 1"),
        ({"name": "x\x00"}, "NUL"),
        ({"name": "x", "tokens": [{"id": "12345678", "sha256": "short", "created": "now"}]}, "sha256"),
        ({"name": "x", "role": "reader"}, "role: Extra inputs"),
    ],
)
def test_a_principal_that_cannot_be_is_refused(path: Path, fields: Any, complaint: str) -> None:
    path.write_text(json.dumps({"principals": [fields]}))
    with pytest.raises(RegisterError, match=re.compile(complaint, re.IGNORECASE)):
        read(path)


def test_names_and_ids_of_tokens_stand_once(path: Path) -> None:
    token = make_token(NOW)[1].model_dump(exclude_none=True)
    for principals in (
        [{"name": "x"}] * 2,
        [{"name": "x", "tokens": [token]}, {"name": "y", "tokens": [token]}],
    ):
        path.write_text(json.dumps({"principals": principals}))
        with pytest.raises(RegisterError, match="twice"):
            read(path)


def test_the_file_is_of_its_owner_alone_and_replaced_whole(path: Path) -> None:
    before = os.umask(0)
    try:
        add(path, "ann")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open() as held:
        inode = path.stat().st_ino
        add(path, "bob")
        # Who had it open still reads the old one whole.
        assert [p["name"] for p in json.load(held)["principals"]] == ["ann"]
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_edit_that_fails_or_changes_nothing_leaves_the_file_alone(path: Path) -> None:
    add(path, "ann")
    before = path.stat()

    def fail() -> None:
        with editing(path) as edit:
            edit.principals = Principals()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with editing(path):
        pass
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert {held.name for held in path.parent.iterdir()} == {path.name, f".{path.name}.lock"}


def test_a_link_to_the_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    add(path, "ann")
    link = tmp_path / "link.json"
    link.symlink_to(path)
    add(link, "bob")
    assert link.is_symlink()
    assert [p.name for p in read(path).principals] == ["ann", "bob"]


ADDING = """
import sys
from pathlib import Path
from a2m_server.principals import Principal
from a2m_server.register import editing
path, mark = Path(sys.argv[1]), sys.argv[2]
for number in range(40):
    with editing(path) as edit:
        edit.principals = edit.principals.with_(Principal(name=f"{mark}/{number}"))
"""


def test_two_processes_that_edit_at_once_lose_nothing_and_no_reader_sees_half(path: Path) -> None:
    add(path, "first")
    done = threading.Event()
    counts: list[int] = []

    def look() -> None:
        while not done.is_set():
            counts.append(len(read(path).principals))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        editors = [subprocess.Popen([sys.executable, "-c", ADDING, str(path), mark]) for mark in ("a", "b")]
        assert [editor.wait(60) for editor in editors] == [0, 0]
    finally:
        done.set()
        looking.join()
    assert len(read(path).principals) == 81
    assert counts == sorted(counts)
    assert len(set(counts)) > 2


def test_a_token_is_not_in_what_is_printed_of_it() -> None:
    text, token = make_token(NOW, HOUR)
    assert text not in repr(token)
    assert token == Token(
        id=text[4:12], sha256=token.sha256, created=format_ms(NOW), expires=format_ms(NOW + HOUR)
    )


async def test_a_file_that_could_not_be_read_for_a_moment_is_read_the_next_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = add(path, "ann")
    register = Register(path)
    with editing(path) as edit:
        edit.principals = Principals()
    read_bytes = Path.read_bytes

    def failing(_: Path) -> bytes:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(Path, "read_bytes", failing)
    assert await register.verify(text.encode()) is not None
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert await register.verify(text.encode()) is None
