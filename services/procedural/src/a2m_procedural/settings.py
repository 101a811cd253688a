"""Settings of the procedural service, from the environment."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from a2m_procedural.store import Place
from a2m_protocol.types import MAX_WIDTH
from a2m_retrieval.metric import Metric
from a2m_server.settings import Seconds, ServerSettings

Line = Annotated[str, Field(pattern=r"^[^<>\x00-\x1f\x7f]*[^<>\x00-\x20\x7f.,;:'\"][^<>\x00-\x1f\x7f]*$")]


class Settings(ServerSettings):
    """A2M_PROCEDURAL_*: the repository, its branch, the author of commits, and how vectors compare.

    `path` is a repository, bare or not, or a folder to make one in. `folder` is where new skills go in it.
    """

    model_config = SettingsConfigDict(env_prefix="A2M_PROCEDURAL_")

    port: Annotated[int, Field(ge=0, le=65_535)] = 8784
    path: Path = Path(".a2m/procedural")
    branch: Annotated[str, Field(min_length=1)] | None = None
    folder: str = ""
    author_name: Line = "A2M procedural memory"
    author_email: Line = "procedural@a2m.invalid"
    tombstone_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    dimensions: Annotated[int, Field(ge=1, le=MAX_WIDTH)] | None = None
    metric: Metric = "cosine"
    lock_timeout: Seconds = 20.0

    @field_validator("folder")
    @classmethod
    def _inside(cls, value: str) -> str:
        parts = PurePosixPath(value).parts
        if any(part in ("..", "/") or part.lower() == ".git" or not part.isprintable() for part in parts):
            raise ValueError("must be a folder inside the repository, such as skills")
        return "/".join(parts)

    def place(self) -> Place:
        return Place(
            path=self.path.absolute(),
            branch=self.branch,
            folder=self.folder,
            author_name=self.author_name,
            author_email=self.author_email,
            tombstone_days=self.tombstone_days,
            dimensions=self.dimensions,
            metric=self.metric,
            lock_timeout=self.lock_timeout,
        )
