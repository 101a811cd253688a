"""What `docker-compose.yml` says: against its schema, the code, and what an operator relies on."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest
import yaml
from compose_file import FILE, ROOT, ComposeFile, load

from a2m_cli.provision import FOLDERS
from a2m_router.config import load as load_config
from a2m_server.settings import ServerSettings

TIERS = ("working", "episodic", "semantic", "procedural")
SERVERS = (*TIERS, "router")
DATABASES = {"working": "valkey", "episodic": "postgres", "semantic": "qdrant"}
DATA_PATHS = {
    "valkey": "/data",
    "postgres": "/var/lib/postgresql",  # since 18; the version's folder is below
    "qdrant": "/qdrant/storage",
    "procedural": "/data",
    "router": "/data",
    "prometheus": "/prometheus",
    "grafana": "/var/lib/grafana",
}


@pytest.fixture(scope="module")
def file() -> ComposeFile:
    return load()


def settings_of(server: str) -> type[ServerSettings]:
    module = importlib.import_module(f"a2m_{server}.settings")
    return next(
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, ServerSettings) and one is not ServerSettings
    )


def test_the_file_is_valid_by_the_schema_of_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_image_that_is_not_ours_has_a_fixed_version(file: ComposeFile) -> None:
    tags = {s.name: s.raw["image"].rpartition(":")[2] for s in file.services.values() if not s.ours}
    assert all(any(c.isdigit() for c in tag) and tag.count(".") >= 2 for tag in tags.values()), tags


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_takes_every_variable_and_no_other(
    server: str, file: ComposeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = settings_of(server)
    prefix = kind.model_config.get("env_prefix", "")
    told = file.services[server].environment
    given = {name: value for name, value in told.items() if not name.startswith("OTEL_")}
    names = {name.removeprefix(prefix).lower().partition("__")[0] for name in given}
    assert all(name.startswith(prefix) for name in given)
    assert names <= set(kind.model_fields)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = kind()
    assert settings.host == "0.0.0.0"
    assert settings.keeps_owners_apart  # nobody is taken without a token


@pytest.mark.parametrize("server", SERVERS)
def test_ports_of_build_health_check_and_code_agree(server: str, file: ComposeFile) -> None:
    service = file.services[server]
    port = settings_of(server).model_fields["port"].default
    assert service.raw["build"]["args"]["PORT"] == port
    assert service.health is not None
    assert service.health.test[-1] == f"http://127.0.0.1:{port}/readyz"
    assert service.command == ["python", "-m", f"a2m_{server}"]
    assert service.raw["build"]["args"]["PACKAGE"] == server


def test_the_configuration_of_the_router_names_the_tiers_and_their_ports(file: ComposeFile) -> None:
    config = load_config(file.config("federation"))
    ports = {name: settings_of(name).model_fields["port"].default for name in TIERS}
    assert {tier.url for tier in config.tiers} == {f"http://{name}:{port}" for name, port in ports.items()}
    assert all(file.services[t].environment[f"A2M_{t.upper()}_HOSTS"] == t for t in TIERS)


def test_only_loopback_is_published_and_no_database_at_all(file: ComposeFile) -> None:
    published = {name: s.raw["ports"] for name, s in file.services.items() if "ports" in s.raw}
    assert set(published) == {"router", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_a_database_is_reached_by_its_tier_alone(file: ComposeFile) -> None:
    for tier, database in DATABASES.items():
        (network,) = file.services[database].networks
        assert {s.name for s in file.services.values() if network in s.networks} == {tier, database}
        assert file.raw["networks"][network]["internal"] is True
    assert all(
        "tiers" in s.networks for s in (file.services["router"], *(file.services[tier] for tier in TIERS))
    )


@pytest.mark.parametrize("name", [*SERVERS, "init", "a2m"])
def test_ours_run_without_root_capabilities_or_a_place_to_write(name: str, file: ComposeFile) -> None:
    raw = file.services[name].raw
    assert raw["user"] == "10001:10001"
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert raw["tmpfs"] == ["/tmp:size=64m,mode=1777"]


def test_every_service_has_limits_and_rotated_logs_and_comes_back(file: ComposeFile) -> None:
    for name, service in file.services.items():
        limits = service.raw["deploy"]["resources"]["limits"]
        assert {"cpus", "memory", "pids"} <= set(limits), name
        assert service.raw["logging"]["options"]["max-size"] == "10m", name
        assert service.restart == ("no" if name in ("init", "a2m") else "unless-stopped"), name


def test_every_server_waits_until_what_it_needs_is_there(file: ComposeFile) -> None:
    for name, service in file.services.items():
        if name != "init" and name != "otel":
            assert service.depends_on["init"] == "service_completed_successfully", name
    for tier, database in DATABASES.items():
        assert file.services[tier].depends_on[database] == "service_healthy"
    needed = file.services["router"].depends_on
    assert {needed[tier] for tier in TIERS} == {"service_healthy"}
    for service in file.default.values():
        assert service.health is not None or service.name == "init"


def test_data_are_on_named_volumes_at_the_paths_where_they_are_kept(file: ComposeFile) -> None:
    for name, path in DATA_PATHS.items():
        sources = [s for s, target, writable in file.services[name].mounts if target == path and writable]
        assert len(sources) == 1, name
        assert sources[0] in file.raw["volumes"], name


def test_secrets_are_mounted_read_only_and_where_they_are_needed_alone(file: ComposeFile) -> None:
    holders: dict[str, set[str]] = {}
    for service in file.services.values():
        for source, target, writable in service.mounts:
            if source.endswith("-secrets"):
                name = source.removesuffix("-secrets")
                assert target == ("/run/secrets/a2m" if service.name == "prometheus" else f"/secrets/{name}")
                assert not writable or service.name == "init" or (service.name, name) == ("a2m", "router")
                holders.setdefault(name, set()).add(service.name)
    assert holders == {
        "service": {"init", "router", *TIERS},
        "router": {"init", "router", "a2m"},
        "you": {"init", "a2m"},
        "metrics": {"init", "prometheus"},
        "postgres": {"init", "postgres", "episodic"},
        "valkey": {"init", "valkey", "working"},
        "qdrant": {"init", "qdrant", "semantic"},
        "grafana": {"init", "grafana"},
    }
    assert set(holders) == set(FOLDERS)


def test_valkey_is_set_so_that_nothing_acknowledged_is_lost(file: ComposeFile) -> None:
    words = file.services["valkey"].command
    told = dict(zip(words[2::2], words[3::2], strict=True))
    assert told["--appendonly"] == "yes"
    assert told["--appendfsync"] == "always"
    assert told["--maxmemory-policy"] == "noeviction"


def test_every_file_that_is_mounted_exists_and_parses(file: ComposeFile) -> None:
    for config in file.raw["configs"]:
        assert yaml.safe_load(file.config(config).read_text())
    sources = {s for service in file.default.values() for s, _, _ in service.mounts}
    assert sources <= set(file.raw["volumes"])


def test_prometheus_asks_every_server_of_ours_with_the_token_that_init_made(file: ComposeFile) -> None:
    mounts = {target: source for source, target, _ in file.services["prometheus"].mounts}
    assert mounts["/run/secrets/a2m"] == "metrics-secrets"
    configured = ROOT / mounts["/etc/prometheus"] / "prometheus.yml"
    jobs: list[Any] = yaml.safe_load(configured.read_text())["scrape_configs"]
    asked = {target for job in jobs for one in job["static_configs"] for target in one["targets"]}
    assert asked == {f"{s}:{settings_of(s).model_fields['port'].default}" for s in SERVERS}
    assert {job["authorization"]["credentials_file"] for job in jobs} == {"/run/secrets/a2m/token"}


def test_the_images_of_the_file_are_those_that_make_builds(file: ComposeFile) -> None:
    known = importlib.util.spec_from_file_location("images", ROOT / "tools/images.py")
    assert known is not None
    assert known.loader is not None
    images = importlib.util.module_from_spec(known)
    sys.modules["images"] = images  # where its dataclasses look for themselves
    known.loader.exec_module(images)
    built = {images.tag_of(image): (image.target, image.arguments()) for image in images.IMAGES}
    for service in file.services.values():
        if service.ours:
            target, arguments = built[service.raw["image"]]
            given = {n: str(v) for n, v in service.raw["build"]["args"].items() if n != "BASE"}
            assert (service.raw["build"]["target"], given) == (target, arguments)
