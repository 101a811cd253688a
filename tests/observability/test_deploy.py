"""What deploy/grafana and deploy/prometheus ask for is what a running federation tells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
OPERATING = ROOT / "docs" / "operating.md"
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus gives to all that it scrapes."""
LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
DASHBOARD = json.loads((GRAFANA / "dashboard.json").read_text())


def targets() -> Iterator[tuple[str, str, str]]:
    """What each panel asks, and how it names the answers."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m"), target["legendFormat"]


ASKED = [
    *((rule["alert"], rule["expr"], rule["annotations"]["summary"]) for rule in ALERTS),
    *((name, expr, "") for name, expr in RECORDED.items()),
    *targets(),
]


@pytest.fixture(scope="module")
def told(observed: Any) -> dict[str, set[str]]:
    """The labels of every series that a federation has told, by its name."""
    found: dict[str, set[str]] = {"up": set()}
    for service in observed.services:
        for family in text_string_to_metric_families(observed.metrics(service)):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(expr: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(expr, visit)
    return found


def grouped(expr: Any) -> set[str]:
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)

    promql_parser.walk(expr, visit)
    return found


def aggregated(expr: Any) -> bool:
    return bool(grouped(expr)) or str(expr).startswith(("sum(", "absent("))


@pytest.mark.parametrize(("title", "text", "shown"), ASKED, ids=[f"{t}: {e[:40]}" for t, e, _ in ASKED])
def test_every_metric_that_is_asked_for_is_told_with_the_labels_that_are_used(
    title: str, text: str, shown: str, told: dict[str, set[str]]
) -> None:
    expr = promql_parser.parse(text)
    asked = selectors(expr)
    assert asked
    for selector in asked:
        assert selector.name in told, f"{title}: nobody tells {selector.name}"
        labels = told[selector.name] | OF_PROMETHEUS
        matched = {matcher.name for matcher in selector.matchers.matchers}
        assert matched <= labels, f"{title}: {selector.name}"
        assert grouped(expr) <= labels, f"{title}: {selector.name}"
        named = grouped(expr) if aggregated(expr) else labels
        assert {*LEGEND.findall(shown)} <= named, f"{title}: {shown}"


def test_no_metric_of_ours_has_a_label_that_a_caller_can_fill(told: dict[str, set[str]]) -> None:
    known = {"method", "code", "tier", "le", "found", "status", "source", "target", "why", "verdict", "kind"}
    ours = {label for name, labels in told.items() if name.startswith("a2m_") for label in labels}
    assert ours <= known


def test_every_metric_of_ours_is_on_the_dashboard_or_in_an_alert(told: dict[str, set[str]]) -> None:
    asked = {s.name for _, text, _ in ASKED for s in selectors(promql_parser.parse(text))}
    families = {re.sub(r"_(count|sum|bucket|created)$", "", name) for name in told if name.startswith("a2m_")}
    shown = {re.sub(r"_bucket$", "", name) for name in asked}
    assert {family.removesuffix("_total") for family in families} == {
        name.removesuffix("_total") for name in shown if name.startswith("a2m_")
    }


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_every_alert_says_where_the_guide_tells_what_to_do(rule: dict[str, Any]) -> None:
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert ROOT / page == OPERATING
    headings = re.findall(r"^#+ (.+)$", OPERATING.read_text(), re.MULTILINE)
    assert heading in {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}
    assert f"`{rule['alert']}`" in OPERATING.read_text()
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_every_alert_is_tried() -> None:
    tried = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
    fired = {
        case["alertname"] for test in tried for case in test["alert_rule_test"] if case.get("exp_alerts")
    }
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ],
    ids=["rules", "tests of rules", "configuration"],
)
def test_prometheus_itself_takes_them(command: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not there: Debian has it in the package prometheus")
    done = subprocess.run([promtool, *command], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_server_is_scraped_at_its_own_port() -> None:
    jobs = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    found = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    ports = {"router": 8778, "working": 8781, "episodic": 8782, "semantic": 8783, "procedural": 8784}
    assert found == {f"a2m-{name}": [f"{name}:{port}"] for name, port in ports.items()}


def test_the_dashboard_finds_its_data_source_and_no_two_panels_lie_on_one_another() -> None:
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/a2m.yml").read_text())["providers"][0]
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    assert provider["type"] == "file"
    assert [one["type"] for one in source["datasources"]] == ["prometheus"]
    assert DASHBOARD["templating"]["list"][0]["name"] == "datasource"
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & mine, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= mine
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
