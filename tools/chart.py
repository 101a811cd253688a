"""Makes the Helm chart out of the kustomize base, so that both say the same: `make chart`.

What a cluster differs in becomes a value; `values.yaml` has what the base has. `--check` says whether the
chart is that of the base.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "deploy/kubernetes/base"
CHART = ROOT / "deploy/kubernetes/chart"
SERVICES = {
    "router": "router",
    "working": "working",
    "episodic": "episodic",
    "semantic": "semantic",
    "semantic-embedded": "semanticEmbedded",
    "procedural": "procedural",
}
"""The folders of the base, and what each is called in the values."""
OFF = {"semantic-embedded"}
"""Instead of another: off unless asked for."""
HEAD = "# Written by tools/chart.py from deploy/kubernetes/base: change it there.\n"


def main() -> None:
    files = chart()
    if sys.argv[1:] == ["--check"]:
        stale = [name for name, text in files.items() if _read(CHART / name) != text]
        if stale:
            raise SystemExit(f"the chart is not that of the base ({', '.join(stale)}): run `make chart`")
        print("chart: up to date")
        return
    for name, text in files.items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_text(text)


def chart() -> dict[str, str]:
    """The files of the chart, by their names in it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    values: dict[str, Any] = {"registry": "a2m", "version": "", "imagePullSecrets": []}
    templates: dict[str, str] = {}
    for service, name in SERVICES.items():
        text = (BASE / service / f"{service}.yaml").read_text()
        values[name] = _values(service, text)
        templates[f"templates/{service}.yaml"] = HEAD + _template(name, text)
    about = {
        "apiVersion": "v2",
        "name": "a2m",
        "description": "A2M Federation: one memory for AI agents, a router over four tiers",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.29.0-0",
    }
    return {
        "Chart.yaml": HEAD + yaml.safe_dump(about, sort_keys=False),
        "values.yaml": HEAD + yaml.safe_dump(values, sort_keys=False),
        **templates,
    }


def _values(service: str, text: str) -> dict[str, Any]:
    objects = {one["kind"]: one for one in yaml.safe_load_all(text)}
    workload = objects.get("Deployment") or objects["StatefulSet"]
    container = workload["spec"]["template"]["spec"]["containers"][0]
    found: dict[str, Any] = {
        "enabled": service not in OFF,
        "settings": {},
        "resources": container["resources"],
    }
    if scaler := objects.get("HorizontalPodAutoscaler"):
        found["replicas"] = {
            "min": scaler["spec"]["minReplicas"],
            "max": scaler["spec"]["maxReplicas"],
        }
    if claims := workload["spec"].get("volumeClaimTemplates"):
        found["storage"] = claims[0]["spec"]["resources"]["requests"]["storage"]
        found["storageClass"] = ""
    if service == "router":
        maps = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] == "a2m-federation"]
        found["federation"] = yaml.safe_load(maps[0]["data"]["federation.yaml"])
    return found


def _template(service: str, text: str) -> str:
    own = f".Values.{service}"
    tag = "{{ .Values.version | default .Chart.AppVersion }}"
    changes = [
        (r"image: a2m/([\w-]+):\S+", rf'image: "{{{{ .Values.registry }}}}/\1:{tag}"'),
        (
            r"( +)resources:\n(?:\1  .*\n)+(?= +securityContext)",
            rf"\1resources:\n\1  {{{{- toYaml {own}.resources | nindent 12 }}}}\n",
        ),
        (
            r"(      serviceAccountName: .*\n)",
            r"\1      {{- with .Values.imagePullSecrets }}\n      imagePullSecrets:\n"
            r"        {{- toYaml . | nindent 8 }}\n      {{- end }}\n",
        ),
        (
            r"(  A2M_[A-Z]+_HOST: .*\n)",
            rf"\1  {{{{- with {own}.settings }}}}\n  {{{{- toYaml . | nindent 2 }}}}\n  {{{{- end }}}}\n",
        ),
    ]
    if "HorizontalPodAutoscaler" in text:
        changes += [
            (r"minReplicas: \d+", f"minReplicas: {{{{ {own}.replicas.min }}}}"),
            (r"maxReplicas: \d+", f"maxReplicas: {{{{ {own}.replicas.max }}}}"),
        ]
    if "volumeClaimTemplates" in text:
        claim = rf"\1storage: {{{{ {own}.storage }}}}\n"
        named = f"        {{{{- with {own}.storageClass }}}}\n        storageClassName: {{{{ . }}}}\n"
        changes += [
            (r"( +)storage: \S+\n", claim),
            (r"(        accessModes: .*\n)", rf"\1{named}        {{{{- end }}}}\n"),
        ]
    if service == "router":
        changes.append(
            (
                r"  federation\.yaml: \|\n(?:    .*\n)+",
                r"  federation.yaml: |\n    {{- toYaml .Values.router.federation | nindent 4 }}\n",
            )
        )
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text)
        if count != 1:
            raise SystemExit(f"{service}: {count} places for {pattern!r}, not one")
    return f"{{{{- if {own}.enabled }}}}\n{text}{{{{- end }}}}\n"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    main()
