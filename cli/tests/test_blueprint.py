"""The plan of a federation: ports, settings, and a configuration that the router takes."""

from pathlib import Path

import pytest

from a2m_cli.blueprint import TIERS, Blueprint, BlueprintError, parse_tiers
from a2m_router.config import DEFAULT, parse


def test_ports_count_from_the_base() -> None:
    blueprint = Blueprint(Path("/data"), 9000)
    assert blueprint.ports == {
        "router": 9000,
        "working": 9003,
        "episodic": 9004,
        "semantic": 9005,
        "procedural": 9006,
    }


def test_the_configuration_is_the_router_s_own_default() -> None:
    assert parse(Blueprint(Path("/data")).config(), "it") == parse(DEFAULT, "default")


@pytest.mark.parametrize("tiers", ["working", "working,semantic", "working, episodic", "procedural,working"])
def test_a_part_of_the_tiers_is_a_configuration_too(tiers: str) -> None:
    config = parse(Blueprint(Path("/data"), tiers=parse_tiers(tiers)).config(), "it")
    names = [tier.name for tier in config.tiers]
    assert names == [name for name in TIERS if name in tiers]
    working = config.tiers[0]
    # Over capacity with nothing below would mean to drop what was remembered.
    assert (working.capacity > 0) is ("episodic" in names)


def test_a_tier_is_given_its_port_its_engine_and_the_token() -> None:
    blueprint = Blueprint(Path("/data"), 9000)
    assert blueprint.settings("working", "unix:///socket") == {
        "A2M_WORKING_HOST": "127.0.0.1",
        "A2M_WORKING_PORT": "9003",
        "A2M_WORKING_TOKEN_FILE": "/data/token",
        "A2M_WORKING_URL": "unix:///socket",
    }
    assert blueprint.settings("semantic")["A2M_SEMANTIC_PATH"] == "/data/semantic"


def test_the_router_is_given_its_configuration_and_shows_the_token_to_tiers_alone() -> None:
    assert Blueprint(Path("/data")).settings("router") == {
        "A2M_ROUTER_HOST": "127.0.0.1",
        "A2M_ROUTER_PORT": "8778",
        "A2M_ROUTER_CONFIG": "/data/federation.yaml",
        "A2M_ROUTER_TIER_TOKEN_FILE": "/data/token",
    }


@pytest.mark.parametrize(
    ("tiers", "complaint"), [("working,cold", "no tier 'cold'"), ("semantic", "`working`")]
)
def test_tiers_that_make_no_federation_are_refused(tiers: str, complaint: str) -> None:
    with pytest.raises(BlueprintError, match=complaint):
        parse_tiers(tiers)


@pytest.mark.parametrize("base", [0, -1, 65_530, 70_000])
def test_a_base_without_room_for_the_ports_is_refused(base: int) -> None:
    with pytest.raises(BlueprintError, match="--port-base"):
        Blueprint(Path("/data"), base)


def test_redaction_is_the_router_s_and_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert "A2M_ROUTER_REDACT" not in Blueprint(tmp_path).settings("router")
    redacting = Blueprint(tmp_path, redact=True)
    assert redacting.settings("router")["A2M_ROUTER_REDACT"] == "credentials"
    assert not any("REDACT" in name for name in redacting.settings("episodic", "url"))
