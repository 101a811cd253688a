"""`federation.yaml`: which tiers there are, and the policy that joins them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from a2m_router.belief import Policy, Rule, Trust
from a2m_server.values import TierInfo

Kind = Literal["working", "episodic", "semantic", "procedural"]
Link = Literal["spill_to", "promote_to"]
LINKS: tuple[Link, ...] = ("spill_to", "promote_to")
TierName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]

DEFAULT = """\
name: a2m
tiers:
  - name: working
    kind: working
    url: http://127.0.0.1:8781
    capacity: 20
    per_session: true
    spill_to: episodic
  - name: episodic
    kind: episodic
    url: http://127.0.0.1:8782
    promote_to: semantic
    promote_after: 3
  - name: semantic
    kind: semantic
    url: http://127.0.0.1:8783
  - name: procedural
    kind: procedural
    url: http://127.0.0.1:8784
"""


class ConfigError(Exception):
    """A configuration that cannot work; the message names the file, the line and the reason."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TierConfig(_Strict):
    """One tier. `capacity` 0 is unbounded; `ttl` and `half_life` are seconds.

    `ttl` counts from when a record was written or last recalled, and passes over facts (records with a key).
    `recall: false` leaves a tier out of recall that names none. `policy` says what it takes from whom.
    """

    name: TierName
    kind: Kind
    url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    capacity: Annotated[int, Field(ge=0)] = 0
    per_session: bool = False
    ttl: Annotated[float, Field(gt=0)] | None = None
    spill_to: TierName | None = None
    promote_to: TierName | None = None
    promote_after: Annotated[int, Field(ge=1)] | None = None
    half_life: Annotated[float, Field(gt=0)] | None = None
    recall: bool = True
    read_only: bool = False
    policy: Policy = Policy()

    def target(self, link: Link) -> str | None:
        return self.spill_to if link == "spill_to" else self.promote_to

    def info(self) -> TierInfo:
        return TierInfo(
            name=self.name,
            kind=self.kind,
            capacity=self.capacity,
            per_session=self.per_session,
            spill_to=self.spill_to,
            promote_to=self.promote_to,
            promote_after=self.promote_after,
            half_life=self.half_life,
        )


class FederationConfig(_Strict):
    """A federation: its tiers in the order of the chain, the first being where records land.

    `trust` says how much sources are trusted, in recall and where a `policy` asks for evidence.
    """

    name: Annotated[str, Field(min_length=1, max_length=128)] = "a2m"
    tiers: Annotated[tuple[TierConfig, ...], Field(min_length=1)]
    trust: Trust = Trust()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for where, reason in _problems(self.tiers):
            raise _PlacedError(reason, where)
        return self


class _PlacedError(Exception):
    """A problem that one field makes, by its path."""

    def __init__(self, reason: str, path: tuple[int | str, ...]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


def _problems(tiers: tuple[TierConfig, ...]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    known = {tier.name: tier for tier in tiers}
    names = [tier.name for tier in tiers]
    for at, tier in enumerate(tiers):
        here = ("tiers", at)
        if tier.name in names[:at]:
            yield (*here, "name"), f"there are two tiers named {tier.name}: names must differ"
        for link in LINKS:
            target = tier.target(link)
            if target is None:
                continue
            if target not in known:
                yield (
                    (*here, link),
                    f"{tier.name} names an unknown tier {target!r}; known: {', '.join(names)}",
                )
            elif known[target].read_only:
                yield (*here, link), f"{target} is read-only: nothing can move into it"
            elif link == "spill_to" and Rule.CLOSED in known[target].policy.rules:
                reason = "what has to leave must be taken: let its policy be evidence"
                yield (*here, link), f"{tier.name} spills into {target}, which is closed to some: {reason}"
            elif link == "spill_to" and known[target].kind == "procedural":
                reason = "procedures are written deliberately, and nothing spills into them"
                yield (*here, link), f"{tier.name} spills into the procedural tier {target}: {reason}"
            elif circle := _circle(tier, link, known):
                verb = link.removesuffix("_to")
                yield (*here, link), f"tiers {verb} in a circle: {' -> '.join(circle)}"
        if tier.per_session and tier.kind != "working":
            yield (*here, "per_session"), f"{tier.name} is not of kind working: only that counts by session"
        if tier.per_session and not tier.capacity:
            yield (*here, "per_session"), f"{tier.name} counts by session but has no capacity: set one"
        if tier.promote_to is not None and tier.promote_after is None:
            yield (*here, "promote_to"), f"{tier.name} promotes but does not say when: set promote_after"
    writable = [tier for tier in tiers if not tier.read_only]
    if writable and not any(tier.kind == "working" for tier in writable):
        yield (
            ("tiers",),
            "there is no writable tier of kind working, where the records of sessions land: add one",
        )


def _circle(start: TierConfig, link: Link, known: Mapping[str, TierConfig]) -> list[str] | None:
    """The way from a tier back to one on it by links of one kind."""
    path = [start.name]
    target = start.target(link)
    while target is not None and target in known:
        path.append(target)
        if target in path[:-1]:
            return path
        target = known[target].target(link)
    return None


def load(path: Path | None) -> FederationConfig:
    """The configuration in a file, or the default one; raises `ConfigError`."""
    if path is None:
        return parse(DEFAULT, "the built-in configuration")
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, origin: str) -> FederationConfig:
    """A configuration from YAML; `origin` names it in errors."""
    try:
        node = cast("yaml.Node | None", yaml.compose(text, yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType] its stubs say nothing
        value = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{origin}, line {line}: {error.problem}") from error
    try:
        return FederationConfig.model_validate(value)
    except _PlacedError as error:
        raise ConfigError(f"{origin}, line {_line(node, error.path)}: {error.reason}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"{origin}, line {_line(node, first['loc'])}: {field}: {first['msg']}") from error


def _line(node: yaml.Node | None, path: tuple[int | str, ...]) -> int:
    """The line of the deepest node on a path."""
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = [(key, held) for key, held in node.value if key.value == part]
            if not found:
                break
            key, node = found[0]
            line = _start(key)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = _start(node) if node else line
        else:
            break
    return line


def _start(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 1
