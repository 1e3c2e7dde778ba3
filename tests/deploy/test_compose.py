import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from loomlog.connectors.configuration.settings import setting_rows

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
OURS = ("topics", "api", "grpc", "runtime", "projector", "auditor", "insights")


def example() -> dict[str, str]:
    lines = [line for line in (DEPLOY / ".env.example").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_it_has_the_log_the_rows_and_one_service_for_each_process() -> None:
    assert set(COMPOSE["services"]) == {"redpanda", "postgres", *OURS}


@pytest.mark.parametrize("name", OURS)
def test_every_process_is_a_module_of_ours(name: str) -> None:
    (module,) = COMPOSE["services"][name]["command"]
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    assert path.exists()
    assert '__name__ == "__main__"' in path.read_text()


@pytest.mark.parametrize("name", OURS)
def test_every_setting_given_to_a_process_is_one_it_knows(name: str) -> None:
    known = {row.name for row in setting_rows()}
    variables = {key for key in COMPOSE["services"][name]["environment"] if key.startswith("LOOMLOG_")}
    assert {"LOOMLOG_KAFKA", "LOOMLOG_POSTGRES"} <= variables
    assert variables <= known


def test_the_example_has_every_variable_that_compose_asks_for_and_no_secret() -> None:
    variables = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    assert set(example()) == variables | {"COMPOSE_PROFILES"}, "what compose itself reads"
    for name, value in example().items():
        if any(part in name for part in ("KEY", "TOKEN", "PASSWORD")):
            assert value == "", name


def test_secrets_have_no_default() -> None:
    for name in ("POSTGRES_PASSWORD", "LOOMLOG_AUTH_TOKEN"):
        forms = set(re.findall(r"\$\{" + name + r"([^}]*)\}", TEXT))
        assert forms == {":?set it in deploy/.env"}


def test_only_api_and_grpc_can_be_reached_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in COMPOSE["services"].items() if "ports" in service}
    assert published == {
        "api": ["127.0.0.1:${API_PORT:-8787}:8787"],
        "grpc": ["127.0.0.1:${GRPC_PORT:-8788}:8788"],
    }


@pytest.mark.parametrize("name", OURS)
def test_our_processes_have_minimal_privileges(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_every_service_with_a_health_endpoint_has_a_healthcheck() -> None:
    checked = {name for name, service in COMPOSE["services"].items() if "test" in service.get("healthcheck", {})}
    assert checked == {"redpanda", "postgres", "api", "grpc", "insights", "runtime"}
    for name in ("projector", "auditor"):
        assert COMPOSE["services"][name]["restart"] == "unless-stopped"


def test_the_api_asks_insights_where_it_listens() -> None:
    host = COMPOSE["services"]["insights"]["environment"]["LOOMLOG_INSIGHTS_HOST"]
    assert host == "insights", "the name of its service, which only the others reach"
    assert "ports" not in COMPOSE["services"]["insights"]
    port = {row.name: row.default for row in setting_rows()}["LOOMLOG_INSIGHTS_PORT"]
    assert COMPOSE["services"]["api"]["environment"]["LOOMLOG_INSIGHTS_URL"] == f"http://{host}:{port}"
    assert f"http://{host}:{port}/" in COMPOSE["services"]["insights"]["healthcheck"]["test"][-1]


def test_the_auditor_needs_its_profile_and_only_it_gets_the_key() -> None:
    profiles = {name: service["profiles"] for name, service in COMPOSE["services"].items() if "profiles" in service}
    assert profiles == {"auditor": ["audit"], "grpc": ["grpc"]}, "without a key it would be restarted for ever"
    services_with_key = {name for name in OURS if "LOOMLOG_AUDIT_KEY" in COMPOSE["services"][name]["environment"]}
    assert services_with_key == {"auditor"}


def test_our_processes_start_after_the_topics_are_created() -> None:
    for name in OURS[1:]:
        assert COMPOSE["services"][name]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
    assert COMPOSE["services"]["topics"]["depends_on"] == {"redpanda": {"condition": "service_healthy"}}


def test_the_broker_is_a_redpanda_of_at_least_25_that_syncs_before_it_answers() -> None:
    redpanda = COMPOSE["services"]["redpanda"]
    image, _, version = redpanda["image"].partition(":v")
    assert image == "redpandadata/redpanda"
    assert int(version.split(".")[0]) >= 25
    assert not any("--mode" in word or "bypass-fsync" in word for word in redpanda["command"])
    bootstrap = yaml.safe_load((DEPLOY / "bootstrap.yaml").read_text())
    assert bootstrap["write_caching_default"] == "disabled"
    assert bootstrap["auto_create_topics_enabled"] is False


def test_the_broker_allows_the_owners_session() -> None:
    rows = {row.name: row.default for row in setting_rows()}
    bootstrap = yaml.safe_load((DEPLOY / "bootstrap.yaml").read_text())
    assert bootstrap["group_min_session_timeout_ms"] <= int(str(rows["LOOMLOG_SESSION_TIMEOUT_MS"]))


def test_the_rows_live_in_a_postgres_with_pgvector_and_all_data_in_volumes() -> None:
    assert COMPOSE["services"]["postgres"]["image"].startswith("pgvector/pgvector:pg")
    used = {
        volume.split(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", [])
        if not volume.startswith((".", "$"))
    }
    assert used == set(COMPOSE["volumes"])


def test_files_mounted_from_the_project_exist() -> None:
    mounted = {
        volume.split(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    }
    assert mounted == {"./bootstrap.yaml", "../loomlog.yaml"}
    assert all((DEPLOY / path).exists() for path in mounted)


def test_the_reviewer_has_something_to_review() -> None:
    volumes = COMPOSE["services"]["runtime"]["volumes"]
    (mounted,) = [volume for volume in volumes if volume.startswith("$")]
    assert mounted == f"${{REVIEW_FOLDER:-{example()['REVIEW_FOLDER']}}}:/srv/loomlog/review:ro"
    assert list((DEPLOY / example()["REVIEW_FOLDER"]).glob("*.py"))


def test_runtimes_stand_by_for_each_other() -> None:
    runtime = COMPOSE["services"]["runtime"]
    assert runtime["deploy"]["replicas"] == 3
    host, _, port = runtime["environment"]["LOOMLOG_STANDBY_ADDR"].rpartition(":")
    assert host == "0.0.0.0", "the other containers are told this one's address"
    assert port in runtime["healthcheck"]["test"][-1]


def test_no_registry_is_named() -> None:
    for service in COMPOSE["services"].values():
        assert "." not in service["image"].split("/")[0] or "/" not in service["image"]
