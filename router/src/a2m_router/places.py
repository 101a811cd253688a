"""Where tiers have been moved to since `federation.yaml` was written, in a file that outlives the router."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, RootModel, ValidationError

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.files import whole_file
from a2m_protocol.types import explain
from a2m_router.config import ConfigError, FederationConfig

log = logging.getLogger(__name__)


class _Place(BaseModel):
    """A tier was moved; this holds as long as the configuration still names the place `given`."""

    model_config = ConfigDict(frozen=True, strict=True)

    given: str
    to: str


_File = RootModel[dict[str, _Place]]


class Places:
    """Places of tiers by name, laid over a configuration; without a `path`, none can be kept.

    An entry holds while the configuration still names the URL from which the tier was moved: whoever writes
    another URL there is heeded, and the entry is of no account any more.
    """

    def __init__(self, path: Path | None, given: Mapping[str, str] | None = None) -> None:
        """`given` are the URLs of the configuration, by tier."""
        self._path = path
        self._given = dict(given or {})

    def over(self, config: FederationConfig) -> FederationConfig:
        """The configuration with tiers where they are now; raises `ConfigError` for a file that is broken."""
        self._given = {tier.name: tier.url for tier in config.tiers}
        try:
            kept = self._kept()
        except (OSError, ValueError) as error:
            why = explain(error, "file") if isinstance(error, ValidationError) else error
            raise ConfigError(
                f"{self._path}: says where tiers were moved to, and cannot be read: {why}"
            ) from error
        for name, place in kept.items():
            if self._given.get(name) not in (place.given, place.to, None):
                log.warning(
                    "tier %s was moved from %s to %s, but is asked at %s, which the configuration names now",
                    *(name, place.given, place.to, self._given[name]),
                )
        moved = {name: p.to for name, p in kept.items() if self._given.get(name) == p.given}
        tiers = tuple(t.model_copy(update={"url": moved.get(t.name, t.url)}) for t in config.tiers)
        return config.model_copy(update={"tiers": tiers})

    def check(self) -> None:
        """Raise -32603 where the place of a tier could not be kept."""
        if self._path is None:
            raise A2MError(
                Code.INTERNAL,
                "this router has no file in which to keep where a tier was moved to: give it one "
                "(A2M_ROUTER_PLACES_FILE), or a federation.yaml in a folder that it may write to",
            )
        try:
            self._keep(self._kept())
        except (OSError, ValueError) as error:
            raise A2MError(
                Code.INTERNAL,
                f"where a tier was moved to could not be kept in {self._path}: {error}; name another file "
                "(A2M_ROUTER_PLACES_FILE)",
            ) from error

    def move(self, tier: str, url: str) -> None:
        """Keep for good that a tier is at `url` now; on disk when this returns. Raises `OSError`."""
        kept = {name: place for name, place in self._kept().items() if self._given.get(name) == place.given}
        kept.pop(tier, None)
        if self._given[tier] != url:
            kept[tier] = _Place(given=self._given[tier], to=url)
        self._keep(kept)

    def _kept(self) -> dict[str, _Place]:
        if self._path is None or not self._path.exists():
            return {}
        return _File.model_validate_json(self._path.read_bytes()).root

    def _keep(self, places: dict[str, _Place]) -> None:
        if self._path is None:
            raise OSError("there is no file for it")
        with whole_file(self._path) as out:
            out.write(_File(places).model_dump_json(indent=2).encode() + b"\n")
