"""The manifest: every sentence of the protocol that can be seen from outside, as data."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from a2m_conformance.shapes import is_object

Profile = Literal["writable", "read-only", "any"]
Transport = Literal["http", "stdio"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One rule of the protocol.

    `capability` is the one that it belongs to, `needs` all that must be declared for it to apply. `local`
    rules are this project's choices where the protocol leaves one open; breaking an advisory one (`should`)
    is reported but fails nothing. `trust` says whether it is for callers whose `owner` is believed, or for
    those whose is not.
    """

    id: str
    section: str
    text: str
    capability: str = "core"
    needs: frozenset[str] = frozenset()
    transport: Transport | None = None
    profile: Profile = "writable"
    local: bool = False
    should: bool = False
    trust: bool | None = None


def load() -> dict[str, Requirement]:
    """All requirements by id, in the order of their files."""
    found: dict[str, Requirement] = {}
    folder = resources.files("a2m_conformance") / "requirements"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".toml"):
            continue
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        defaults = {key: value for key, value in table.items() if not is_object(value)}
        for name, entry in table.items():
            if is_object(entry):
                if name in found:
                    raise ValueError(f"requirement {name} is defined twice, again in {file.name}")
                found[name] = _parse(name, {**defaults, **entry})
    return found


def _parse(name: str, entry: dict[str, Any]) -> Requirement:
    fields = dict(entry)
    also = fields.pop("also", [])
    capability = fields.get("capability", "core")
    needs = frozenset({capability, *also} - {"core"})
    return Requirement(id=name, needs=needs, **fields)
