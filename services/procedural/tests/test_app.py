from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from a2m_procedural.app import create
from a2m_procedural.settings import Settings


async def test_the_service_serves_what_the_environment_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2M_PROCEDURAL_PATH", str(path))
    monkeypatch.setenv("A2M_PROCEDURAL_DIMENSIONS", "3")
    app = create()
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        request = {"jsonrpc": "2.0", "id": 1, "method": "memory/describe", "params": {}}
        described = (await client.post("/", json=request)).json()["result"]
        assert described["embeddings"]["dimensions"] == 3
        assert "scopes" not in described["capabilities"] or described["name"] == "procedural"
        assert (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("folder", ["../out", "/etc", "a/.git", "a/../../b", "a\nb"])
def test_new_skills_cannot_be_sent_outside(folder: str) -> None:
    with pytest.raises(ValidationError):
        Settings(folder=folder)


@pytest.mark.parametrize("author", ["", " ", "<x>", "a\nb", "..."])
def test_an_author_that_git_would_refuse_is_refused_at_start(author: str) -> None:
    with pytest.raises(ValidationError):
        Settings(author_name=author)
