"""A `federation.yaml` of one's own for `a2m up`: which of its tiers are to be run, and the urls of those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

from a2m_protocol.errors import JsonObject

EMBEDDED = "embedded"


class ConfigurationError(ValueError):
    """A file that cannot be read as a configuration; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a file says. A tier without `url`, or with `url: embedded`, is for `a2m up` to run.

    What the fields mean, and whether they fit together, is the router's to judge.
    """

    path: Path
    document: JsonObject

    @property
    def embedded(self) -> tuple[str, ...]:
        """The kinds of the tiers to be run, in the order of the file."""
        return tuple(str(tier["kind"]) for tier in _tiers(self.document) if _is_embedded(tier))

    def text(self, urls: Mapping[str, str]) -> str:
        """The file that a router reads, with the url of each embedded tier by its kind."""
        tiers = [
            {**tier, "url": urls[str(tier["kind"])]} if _is_embedded(tier) else tier
            for tier in _tiers(self.document)
        ]
        return yaml.safe_dump({**self.document, "tiers": tiers}, sort_keys=False, allow_unicode=True)


def read(path: Path, kinds: tuple[str, ...]) -> Configuration:
    """The configuration in a file, of whose embedded tiers each has one of `kinds`, and none the same."""
    try:
        document = cast("object", yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{path}, line {line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: expected a mapping with `tiers`")
    found = Configuration(path, cast("JsonObject", document))
    tiers = _tiers(found.document)
    if not tiers or len(tiers) != len(cast("list[object]", found.document["tiers"])):
        raise ConfigurationError(f"{path}: tiers: expected a list of tiers, each with a name and a kind")
    run: set[str] = set()
    for tier in filter(_is_embedded, tiers):
        name, kind = tier.get("name"), tier.get("kind")
        if kind not in kinds:
            raise ConfigurationError(f"{path}: tier {name!r}: kind: expected one of {', '.join(kinds)}")
        if kind in run:
            raise ConfigurationError(
                f"{path}: tier {name!r}: there is one embedded tier of kind {kind} already: give this its url"
            )
        run.add(str(kind))
    return found


def _tiers(document: JsonObject) -> list[JsonObject]:
    tiers = document.get("tiers")
    return [tier for tier in tiers if isinstance(tier, dict)] if isinstance(tiers, list) else []


def _is_embedded(tier: JsonObject) -> bool:
    return tier.get("url") in (None, EMBEDDED)
