"""Reports: for people, for CI and for programs."""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from a2m_conformance.outcome import Outcome, Status
from a2m_conformance.requirement import Requirement
from a2m_conformance.runner import Run

_COLOURS = {Status.passed: "green", Status.failed: "red", Status.warned: "yellow", Status.skipped: "dim"}


def print_report(run: Run, console: Console, *, every: bool = False) -> None:
    """A table of subjects, what failed and why, and one line of totals; with `every`, each requirement."""
    console.print(_subjects(run))
    for outcome in run.outcomes:
        if every or outcome.status in (Status.failed, Status.warned):
            console.print(_line(outcome))
    skips = Counter(outcome.detail for outcome in run.outcomes if outcome.status == Status.skipped)
    for reason, count in skips.most_common():
        console.print(f"[dim]skipped {count:3}: {escape(reason)}[/dim]")
    profile = "read-only" if run.read_only else "writable"
    totals = ", ".join(f"{run.count(status)} {status}" for status in Status if run.count(status))
    name = escape(str(run.about.get("name")))
    verdict = "[green]conforms[/green]" if run.passed else "[red]does not conform[/red]"
    console.print(
        f"{name} ({profile}, {run.transport}) {verdict}: {totals} in {run.seconds:.1f} s", highlight=False
    )


def print_requirements(requirements: list[Requirement], console: Console) -> None:
    """The manifest as a table."""
    table = Table(box=None, pad_edge=False)
    for title in ("id", "section", "needs", "requirement"):
        table.add_column(title, no_wrap=title != "requirement")
    for requirement in requirements:
        needs = [*sorted(requirement.needs), *filter(None, [requirement.transport])]
        if requirement.profile != "writable":
            needs.append(requirement.profile)
        local = " [dim](local)[/dim]" if requirement.local else ""
        table.add_row(
            requirement.id, requirement.section, " ".join(needs) or "core", escape(requirement.text) + local
        )
    console.print(table)


def write_json(run: Run, path: Path) -> None:
    """The run as one JSON object: `server`, `profile`, `transport`, `passed`, `seconds`, `results`."""
    document = {
        "server": run.about,
        "profile": "read-only" if run.read_only else "writable",
        "transport": run.transport,
        "passed": run.passed,
        "seconds": round(run.seconds, 3),
        "counts": {status.value: run.count(status) for status in Status},
        "results": [
            {
                "id": outcome.requirement.id,
                "section": outcome.requirement.section,
                "capability": outcome.requirement.capability,
                "local": outcome.requirement.local,
                "text": outcome.requirement.text,
                "status": outcome.status.value,
                "detail": outcome.detail,
                "seconds": round(outcome.seconds, 3),
            }
            for outcome in run.outcomes
        ],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_junit(run: Run, path: Path) -> None:
    """The run as a JUnit test suite, a test case a requirement."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"a2m-conformance {run.transport}",
        tests=str(len(run.outcomes)),
        failures=str(run.count(Status.failed)),
        skipped=str(run.count(Status.skipped)),
        time=f"{run.seconds:.3f}",
    )
    for outcome in run.outcomes:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"a2m.{outcome.requirement.capability}",
            name=f"{outcome.requirement.id} {outcome.requirement.text}",
            time=f"{outcome.seconds:.3f}",
        )
        if outcome.status == Status.failed:
            ElementTree.SubElement(case, "failure", message=_xml_safe(outcome.detail))
        elif outcome.status == Status.skipped:
            ElementTree.SubElement(case, "skipped", message=_xml_safe(outcome.detail))
        elif outcome.status == Status.warned:
            ElementTree.SubElement(case, "system-out").text = _xml_safe(outcome.detail)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _subjects(run: Run) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("subject")
    for status in Status:
        table.add_column(status.value, justify="right", style=_COLOURS[status])
    counts: dict[str, Counter[Status]] = {}
    for outcome in run.outcomes:
        subject = outcome.requirement.id.rsplit("-", 1)[0].lower()
        counts.setdefault(subject, Counter())[outcome.status] += 1
    for subject, counter in counts.items():
        table.add_row(subject, *(str(counter[status] or "") for status in Status))
    return table


def _line(outcome: Outcome) -> str:
    requirement = outcome.requirement
    colour = _COLOURS[outcome.status]
    text = f"[{colour}]{outcome.status:8}[/{colour}] {requirement.id} {escape(requirement.text)}"
    if outcome.status != Status.passed:
        text += f" [dim](section {escape(requirement.section)})[/dim]\n         {escape(outcome.detail)}"
    return text


def _xml_safe(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
