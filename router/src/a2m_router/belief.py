"""What may be believed: who may write to a tier, what stays pending there, and how sources are trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from a2m_protocol.errors import scope_denied
from a2m_protocol.types import EVIDENCE, Draft, Provenance, Record
from a2m_server.values import Written


class Rule(StrEnum):
    """From the least strict to the strictest."""

    OPEN = "open"
    EVIDENCE = "evidence"
    CLOSED = "closed"


Caller = Annotated[str, Field(pattern="^(agent|curator|operator|router)$")]
Share = Annotated[float, Field(ge=0, le=1)]
Pattern = Annotated[str, Field(min_length=1)]

REVIEWERS: frozenset[str] = frozenset({"curator", "operator"})
"""Whose word is enough, unless a policy says otherwise."""


class Policy(BaseModel):
    """What a tier asks of a record that enters it.

    `open` takes it as it is; under `evidence` it stays pending until it is approved or others say the same;
    `closed` refuses it. `callers` says it by the role of the principal that wrote it (curators and operators
    are `open` unless it does), `default` of everybody else. `roles`, by the record's own role, and `facts`,
    of records with a key, make it stricter, never less strict.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: Rule = Rule.OPEN
    callers: Mapping[Caller, Rule] = Field(default_factory=dict)
    roles: Mapping[str, Rule] = Field(default_factory=dict)
    facts: Rule = Rule.OPEN

    @model_validator(mode="before")
    @classmethod
    def _one_for_all(cls, value: object) -> object:
        return {"default": value} if isinstance(value, str) else value

    @property
    def rules(self) -> frozenset[Rule]:
        """Every rule that may apply: to curators, who are not named, `open` at least."""
        return frozenset({Rule.OPEN, self.default, self.facts, *self.callers.values(), *self.roles.values()})

    def rule(self, one: Draft | Record) -> Rule:
        """What applies to a record, whatever its source; of what somebody approved already, `open`.

        Evidence is enough where evidence is asked for, and opens nothing that is closed.
        """
        origin = one.provenance or Provenance()
        authority = origin.authority or ""
        own = self.callers.get(authority)
        by_somebody = origin.approved not in (None, EVIDENCE)
        if by_somebody or (own is None and authority in REVIEWERS):
            return Rule.OPEN
        rules = [own or self.default, self.roles.get(one.role or "", Rule.OPEN)]
        if one.key is not None:
            rules.append(self.facts)
        rule = _strictest(rules)
        return Rule.OPEN if rule is Rule.EVIDENCE and origin.approved is not None else rule


class Trust(BaseModel):
    """How much records are trusted, from 0 to 1, by where they come from.

    By `provenance.source` and principal (names, or beginnings that end in `*`), and by a record's role; what
    none of them names is trusted by `default`. The least of those that name it counts, for a source is only
    what a client says; so do the sources of what it was derived from. From `believed` on, no evidence is
    asked for. `corroboration` is how many independent records have to say the same as one that is pending;
    what is not trusted at all is none of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: Share = 0.5
    sources: Mapping[Pattern, Share] = Field(default_factory=dict)
    principals: Mapping[Pattern, Share] = Field(default_factory=dict)
    roles: Mapping[str, Share] = Field(default_factory=dict)
    believed: Share = 0.8
    corroboration: Annotated[int, Field(ge=1, le=100)] = 1

    @model_validator(mode="after")
    def _principals_vouch(self) -> Self:
        if self.sources and not self.principals and max(self.sources.values()) > self.default:
            # Anybody may claim a source.
            raise ValueError(
                "sources: one is trusted more than `default`, but no principal is: name in `principals` who "
                "may speak for it"
            )
        return self

    @property
    def knows(self) -> bool:
        """Whether one source is trusted otherwise than another."""
        return bool(self.sources or self.principals or self.roles)

    def of(self, one: Draft | Record) -> float:
        """How much a record is trusted."""
        origin = one.provenance or Provenance()
        writer = _named(self.principals, origin.principal)
        writer = self.default if writer is None else writer
        said = [_named(self.sources, source) for source in sources_of(origin)]
        return min(share for share in (writer, self.roles.get(one.role or ""), *said) if share is not None)


@dataclass(frozen=True, slots=True)
class Belief:
    """The policies of tiers, by name, and how much sources are trusted."""

    policies: Mapping[str, Policy] = field(default_factory=dict[str, Policy])
    trust: Trust = field(default_factory=Trust)

    def asks(self, tier: str) -> bool:
        """Whether a tier takes anything otherwise than as it is."""
        return tier in self.policies and self.policies[tier].rules > {Rule.OPEN}

    @property
    def doubts(self) -> bool:
        """Whether there may be pending records."""
        return any(map(self.asks, self.policies))

    def entering(self, drafts: Sequence[Draft], tiers: Sequence[Sequence[str]]) -> list[Draft]:
        """Drafts as they enter `tiers`, several for each: pending where evidence is asked for.

        Raises -32005 for the first that one of its tiers is closed to.
        """
        if not self.doubts:
            return [*drafts]
        entered: list[Draft] = []
        for at, (draft, asked) in enumerate(zip(drafts, tiers, strict=True)):
            rule = self.rule(draft, *asked)
            if rule is Rule.CLOSED:
                raise scope_denied(
                    f"records[{at}]: the policy of {' and '.join(asked)} takes no such record from this "
                    "caller: have a curator write it, or write to another tier"
                )
            doubted = rule is Rule.EVIDENCE and draft.status == "active"
            entered.append(draft.model_copy(update={"status": "pending"}) if doubted else draft)
        return entered

    def rule(self, one: Draft | Record, *tiers: str) -> Rule:
        """The strictest of what `tiers` ask of a record; from a trusted source no evidence is asked for."""
        rules = [self.policies[tier].rule(one) for tier in tiers if self.asks(tier)]
        rule = _strictest(rules)
        return Rule.OPEN if rule is Rule.EVIDENCE and self.trust.of(one) >= self.trust.believed else rule


def _strictest(rules: Iterable[Rule]) -> Rule:
    return max(rules, key=[*Rule].index, default=Rule.OPEN)


def sources_of(origin: Provenance) -> list[str]:
    """All sources that a record has what it says from."""
    own = [] if origin.source is None else [origin.source]
    return [*own, *(origin.origins or ())]


def contesting(draft: Draft, tier: str) -> Draft:
    """What contradicts the fact at its key, to be kept beside it in a tier."""
    origin = (draft.provenance or Provenance()).model_copy(update={"contests": draft.key})
    return draft.model_copy(update={"key": None, "tier": tier, "provenance": origin})


def told(drafts: Sequence[Draft], written: Sequence[Written]) -> list[Written]:
    """Receipts that say which of what was written is pending."""
    pending = {draft.id for draft in drafts if draft.status == "pending"}
    if not pending:
        return [*written]
    fresh = ("created", "replaced")
    return [replace(w, pending=w.outcome in fresh and w.id in pending) for w in written]


def _named(shares: Mapping[str, float], name: str | None) -> float | None:
    """The share of a name: its own, else that of the longest beginning that it has."""
    if name is None:
        return None
    if name in shares:
        return shares[name]
    fitting = [p for p in shares if p.endswith("*") and name.startswith(p[:-1])]
    return shares[max(fitting, key=len)] if fitting else None
