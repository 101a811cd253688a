"""Named queries out of the package's `.sql` files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template


@cache
def queries(name: str) -> Mapping[str, Template]:
    """The queries of `sql/<name>.sql`, each under the `-- name:` line above it.

    A query takes values as `%(name)s` and SQL, which only this package writes, as `$name`.
    """
    text = (files("a2m_episodic") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    found: dict[str, Template] = {}
    for part in text.split("-- name: ")[1:]:
        title, _, body = part.partition("\n")
        found[title.strip()] = Template(body.strip())
    return found


def query(file: str, name: str, /, **parts: str) -> str:
    """A query of `sql/<file>.sql` with its SQL parts put in."""
    return queries(file)[name].substitute(parts)


@cache
def migrations() -> Mapping[int, tuple[str, str]]:
    """Number to (name, SQL) of `sql/migrations/NNNN_name.sql`, ascending."""
    found = sorted((files("a2m_episodic") / "sql" / "migrations").iterdir(), key=lambda file: file.name)
    scripts = [file for file in found if file.name.endswith(".sql")]
    return {
        int(file.name[:4]): (file.name[5:].removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in scripts
    }
