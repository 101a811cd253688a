"""The manifests against the schemas, the restricted standard, each other and what the services have."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_file import load
from manifests import (
    FOLDERS,
    KUBERNETES,
    SERVICES,
    Manifest,
    base,
    by_name,
    container,
    one,
    run,
    tool,
    workload,
)

from a2m_router.config import load as load_config
from a2m_server.http import create_app
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings

TIERS = ("working", "episodic", "semantic", "procedural")
STATEFUL = {"procedural", "semantic-embedded"}
DATABASES = {"working": "a2m-valkey", "episodic": "a2m-postgres", "semantic": "a2m-qdrant"}
SECRETS = {
    "router": {"a2m-service", "a2m-router", "a2m-valkey"},
    "working": {"a2m-service", "a2m-valkey"},
    "episodic": {"a2m-service", "a2m-postgres-app"},
    "semantic": {"a2m-service", "a2m-qdrant"},
    "semantic-embedded": {"a2m-service"},
    "procedural": {"a2m-service"},
}
VALKEY = list(yaml.safe_load_all((KUBERNETES / "databases/valkey.yaml").read_text()))


@pytest.fixture(scope="session")
def programs() -> dict[str, str]:
    """`kubectl` and `helm`; neither talks to a cluster here."""
    finder = tool("kubernetes")
    try:
        return finder.programs()
    except finder.MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=["dev", "production", "base", "chart"])
def rendered(request: pytest.FixtureRequest, programs: dict[str, str]) -> list[Manifest]:
    return render(programs, request.param)


def render(programs: dict[str, str], what: str, *options: str) -> list[Manifest]:
    if what == "chart":
        said = run(programs["helm"], "template", "a2m", KUBERNETES / "chart", *options)
    else:
        folder = "base" if what == "base" else f"overlays/{what}" if "/" not in what else what
        said = run(programs["kubectl"], "kustomize", KUBERNETES / folder)
    return [one for one in yaml.safe_load_all(said) if one]


def settings_of(service: str) -> type[ServerSettings]:
    module = importlib.import_module(f"a2m_{service}.settings")
    return next(
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, ServerSettings) and kind is not ServerSettings
    )


def test_what_is_rendered_is_valid_by_the_schemas_of_the_api(
    rendered: list[Manifest], tmp_path: Path
) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(rendered))
    checker = Path(sys.executable).with_name("kubernetes-validate")
    done = subprocess.run([checker, "--strict", "--quiet", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_not_rendered_is_valid_too(tmp_path: Path) -> None:
    file = tmp_path / "valkey.yaml"
    file.write_text(yaml.safe_dump_all(VALKEY))
    checker = Path(sys.executable).with_name("kubernetes-validate")
    done = subprocess.run([checker, "--strict", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_says_what_the_base_says(programs: dict[str, str]) -> None:
    said, wanted = (by_name(render(programs, what)) for what in ("chart", "base"))
    for objects in (said, wanted):  # one policy, written in two ways
        data = objects["ConfigMap", "a2m-federation"]["data"]
        data["federation.yaml"] = yaml.safe_load(data["federation.yaml"])
    assert said == wanted


def test_the_chart_is_made_from_the_base() -> None:
    chart = tool("chart")
    for name, text in chart.chart().items():
        assert (KUBERNETES / "chart" / name).read_text() == text


def test_the_chart_takes_values_for_what_clusters_differ_in(programs: dict[str, str]) -> None:
    options = [
        "--set=registry=registry.example/a2m,version=9.9.9,semantic.enabled=false,semanticEmbedded.enabled=true",
        "--set=working.replicas.min=3,working.settings.A2M_WORKING_RATE=5/second,procedural.storage=9Gi",
        "--set=procedural.storageClass=fast,router.federation.name=ours,imagePullSecrets[0].name=pull",
        "--set=episodic.resources.requests.cpu=2",
    ]
    found = by_name(render(programs, "chart", *options))
    assert ("Deployment", "a2m-semantic") not in found
    assert ("StatefulSet", "a2m-semantic") in found
    assert found["HorizontalPodAutoscaler", "a2m-working"]["spec"]["minReplicas"] == 3
    assert found["ConfigMap", "a2m-working"]["data"]["A2M_WORKING_RATE"] == "5/second"
    pod = found["Deployment", "a2m-working"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/a2m/working:9.9.9"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    claim = found["StatefulSet", "a2m-procedural"]["spec"]["volumeClaimTemplates"][0]["spec"]
    assert claim["resources"]["requests"]["storage"] == "9Gi"
    assert claim["storageClassName"] == "fast"
    assert yaml.safe_load(found["ConfigMap", "a2m-federation"]["data"]["federation.yaml"])["name"] == "ours"
    assert container([found["Deployment", "a2m-episodic"]])["resources"]["requests"]["cpu"] == 2


def problems(pod: dict[str, Any]) -> Iterator[str]:
    """What the restricted Pod Security standard holds against a pod."""
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
    allowed |= {"projected", "secret"}
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    if pod.get("securityContext", {}).get("sysctls"):
        yield "sysctls"
    for volume in pod.get("volumes", []):
        if not set(volume) - {"name"} <= allowed:
            yield f"volume {volume['name']}"
    whole = pod.get("securityContext", {})
    for one_of in [*pod.get("initContainers", []), *pod["containers"]]:
        own = {**whole, **one_of.get("securityContext", {})}
        capabilities = own.get("capabilities", {})
        if own.get("privileged") or own.get("procMount", "Default") != "Default":
            yield "privileged"
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield "capabilities"
        if own.get("runAsNonRoot") is not True or own.get("runAsUser") == 0:
            yield "runAsNonRoot"
        if own.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile"
        if any("hostPort" in port for port in one_of.get("ports", [])):
            yield "hostPort"


@pytest.mark.parametrize("folder", [*FOLDERS, "valkey"])
def test_every_pod_keeps_to_the_restricted_standard_and_writes_into_volumes_alone(folder: str) -> None:
    objects = VALKEY if folder == "valkey" else base(folder)
    pod = workload(objects)["spec"]["template"]["spec"]
    assert [*problems(pod)] == []
    assert pod["automountServiceAccountToken"] is False
    assert container(objects)["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowPrivilegeEscalation", True),
        ("capabilities", {"drop": ["ALL"], "add": ["NET_ADMIN"]}),
        ("runAsUser", 0),
        ("privileged", True),
        ("seccompProfile", {"type": "Unconfined"}),
    ],
)
def test_the_check_of_the_standard_finds_what_breaks_it(field: str, value: object) -> None:
    objects = base("working")
    container(objects)["securityContext"][field] = value
    assert [*problems(workload(objects)["spec"]["template"]["spec"])] != []


@pytest.mark.parametrize("folder", FOLDERS)
def test_ports_probes_and_command_are_those_of_the_code_and_of_compose(folder: str) -> None:
    service = folder.partition("-")[0]
    objects, compose = base(folder), load().services[service]
    own = container(objects)
    port = settings_of(service).model_fields["port"].default
    assert own["ports"] == [{"name": "http", "containerPort": port}]
    assert one(objects, "Service")["spec"]["ports"] == [{"name": "http", "port": port, "targetPort": "http"}]
    assert own["command"] == compose.command
    assert own["image"] == compose.raw["image"]
    routes = {getattr(route, "path", "") for route in create_app(MemoryTier(), ServerSettings()).routes}
    paths = {name: own[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert paths == {
        "startup": {"path": "/healthz", "port": "http"},
        "liveness": {"path": "/healthz", "port": "http"},
        "readiness": {"path": "/readyz", "port": "http"},
    }
    assert {"/healthz", "/readyz"} <= routes


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_service_takes_every_variable_and_finds_every_file(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = folder.partition("-")[0]
    objects = base(folder)
    own, kind = container(objects), settings_of(service)
    prefix = f"A2M_{service.upper()}_"
    data = one(objects, "ConfigMap", f"a2m-{service}")["data"]
    names = [*data, *(variable["name"] for variable in own.get("env", []))]
    assert own["envFrom"] == [{"configMapRef": {"name": f"a2m-{service}"}}]
    assert {n.removeprefix(prefix).lower().partition("__")[0] for n in names} <= set(kind.model_fields)
    for name, value in data.items():
        monkeypatch.setenv(name, value)
    settings = kind()
    assert settings.keeps_owners_apart
    mounts = [mount["mountPath"] for mount in own["volumeMounts"]]
    files = [value for value in data.values() if value.startswith("/")]
    assert all(any(Path(file).is_relative_to(mount) for mount in mounts) for file in files), files
    volumes = {v["name"] for v in workload(objects)["spec"]["template"]["spec"]["volumes"]}
    claims = {c["metadata"]["name"] for c in workload(objects)["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in own["volumeMounts"]} == volumes | claims


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_service_stands_alone_but_for_the_secrets_that_are_documented(folder: str) -> None:
    objects = base(folder)
    text = (KUBERNETES / "base" / folder / f"{folder}.yaml").read_text()
    own, pod = container(objects), workload(objects)["spec"]["template"]["spec"]
    asked = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    asked |= {variable["valueFrom"]["secretKeyRef"]["name"] for variable in own.get("env", [])}
    assert asked == SECRETS[folder]
    assert pod["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]
    maps = {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} | {
        own["envFrom"][0]["configMapRef"]["name"]
    }
    assert maps == {o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"}
    page = (KUBERNETES.parents[1] / "docs/kubernetes.md").read_text()
    assert all(f"`{name}`" in page or f" {name} " in page for name in asked)
    assert "namespace:" not in text


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_service_is_spread_bounded_and_drained(folder: str) -> None:
    objects = base(folder)
    spec = workload(objects)["spec"]
    pod, own = spec["template"]["spec"], container(objects)
    labels = spec["selector"]["matchLabels"]
    assert labels.items() <= spec["template"]["metadata"]["labels"].items()
    assert one(objects, "Service")["spec"]["selector"] == labels
    assert one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    keys = {spread["topologyKey"] for spread in pod["topologySpreadConstraints"]}
    assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    assert {"cpu", "memory"} <= set(own["resources"]["requests"])
    assert "memory" in own["resources"]["limits"]
    drain = settings_of(folder.partition("-")[0]).model_fields["shutdown_timeout"].default
    assert pod["terminationGracePeriodSeconds"] > drain + 5 + 10
    if folder in STATEFUL:
        assert workload(objects)["kind"] == "StatefulSet"
        assert spec["replicas"] == 1
        assert {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]} == {"data"}
    else:
        scaler = one(objects, "HorizontalPodAutoscaler")["spec"]
        assert scaler["scaleTargetRef"]["name"] == workload(objects)["metadata"]["name"]
        assert scaler["minReplicas"] >= 2
        assert "replicas" not in spec  # an apply would set back what the autoscaler chose
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def callers(policy: Manifest) -> set[str]:
    """Who may come in: components of ours, or the label by which a namespace or pod is marked."""
    found: set[str] = set()
    for rule in policy["spec"]["ingress"]:
        for peer in rule["from"]:
            labels = {
                **peer.get("namespaceSelector", {}).get("matchLabels", {}),
                **peer.get("podSelector", {}).get("matchLabels", {}),
            }
            component = labels.get("app.kubernetes.io/component")
            found.add(component or next(iter(labels)))
    return found


def reached(policy: Manifest) -> set[str]:
    ports = {str(port["port"]) for rule in policy["spec"]["egress"] for port in rule["ports"]}
    return ports - {"53", "4318"}


def test_only_the_router_reaches_a_tier_and_only_a_tier_its_database() -> None:
    for tier in TIERS:
        policy = one(base(tier), "NetworkPolicy")
        assert callers(policy) == {"router", "a2m.federation/metrics"}
    assert callers(one(base("router"), "NetworkPolicy")) == {
        "a2m.federation/client",
        "a2m.federation/metrics",
    }
    text = (KUBERNETES / "databases/policies/network-policies.yaml").read_text()
    policies = {policy["metadata"]["name"]: policy for policy in yaml.safe_load_all(text)}
    assert callers(policies["a2m-valkey"]) == {"working", "router"}
    assert callers(policies["a2m-postgres"]) == {
        "episodic",
        "cnpg.io/cluster",
        "kubernetes.io/metadata.name",
    }
    assert callers(policies["a2m-qdrant"]) == {"semantic", "app.kubernetes.io/name"}


def test_a_service_may_reach_what_it_needs_and_nothing_else() -> None:
    asked = {folder: reached(one(base(folder), "NetworkPolicy")) for folder in FOLDERS}
    assert asked == {
        "router": {"6379", "8781", "8782", "8783", "8784"},
        "working": {"6379"},
        "episodic": {"5432"},
        "semantic": {"6333"},
        "semantic-embedded": set(),
        "procedural": set(),
    }


def test_the_router_is_configured_with_the_services_of_the_tiers(tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(one(base("router"), "ConfigMap", "a2m-federation")["data"]["federation.yaml"])
    urls = {tier.url for tier in load_config(file).tiers}
    services = {tier: one(base(tier), "Service") for tier in TIERS}
    assert urls == {
        f"http://{s['metadata']['name']}:{s['spec']['ports'][0]['port']}" for s in services.values()
    }
    compose = load_config(load().config("federation"))
    assert [t.model_dump(exclude={"url"}) for t in load_config(file).tiers] == [
        t.model_dump(exclude={"url"}) for t in compose.tiers
    ]


def test_overlays_differ_in_size_alone_and_are_enforced_as_restricted(programs: dict[str, str]) -> None:
    for overlay, namespace in (("dev", "a2m-dev"), ("production", "a2m")):
        objects = render(programs, overlay)
        space = one(objects, "Namespace")
        assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert {o["metadata"]["namespace"] for o in objects if o["kind"] != "Namespace"} == {namespace}
        services = {o["metadata"]["name"] for o in objects if o["kind"] == "Service"}
        assert services == {f"a2m-{name}" for name in SERVICES}
    least = {
        o["spec"]["minReplicas"] for o in render(programs, "dev") if o["kind"] == "HorizontalPodAutoscaler"
    }
    assert least == {1}


def test_versions_of_databases_are_those_of_compose() -> None:
    compose = load().services
    assert container(VALKEY)["image"] == compose["valkey"].raw["image"]
    assert container(VALKEY)["command"][4:] == compose["valkey"].command[2:]
    qdrant = yaml.safe_load((KUBERNETES / "databases/qdrant-values.yaml").read_text())
    assert qdrant["image"]["tag"] == compose["qdrant"].raw["image"].partition(":")[2]
    names = {
        tier: re.sub("-app$", "", name)
        for tier in DATABASES
        for name in SECRETS[tier]
        if name != "a2m-service"
    }
    assert names == DATABASES
