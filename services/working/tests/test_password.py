"""The password of the database, from a file."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from a2m_protocol.errors import A2MError
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore


def url_of(valkey_url: str, user: str) -> str:
    scheme, _, rest = valkey_url.partition("://")
    return f"{scheme}://{user}@{rest}"


async def test_a_server_that_asks_for_a_password_gets_that_of_the_file(
    valkey_url: str, tmp_path: Path
) -> None:
    user, file = f"u{uuid4().hex}", tmp_path / "password"
    file.write_text("s3cret with spaces \n")
    admin = Redis.from_url(valkey_url)
    await admin.execute_command("ACL", "SETUSER", user, "on", ">s3cret with spaces", "~*", "&*", "+@all")
    try:
        store = WorkingStore(WorkingSettings(url=url_of(valkey_url, user), password_file=file))
        await store.open()
        await store.ready()
        await store.close()
        file.write_text("another")
        store = WorkingStore(WorkingSettings(url=url_of(valkey_url, user), password_file=file))
        with pytest.raises(A2MError):
            await store.open()
    finally:
        await admin.execute_command("ACL", "DELUSER", user)
        await admin.aclose()


@pytest.mark.parametrize(("held", "why"), [(None, "cannot be read"), (" \n", "holds no password")])
def test_a_file_without_one_is_refused_at_the_start(held: str | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    if held is not None:
        file.write_text(held)
    with pytest.raises(ValueError, match=f"A2M_WORKING_PASSWORD_FILE.*{why}"):
        WorkingStore(WorkingSettings(password_file=file))
