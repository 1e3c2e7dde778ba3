from collections.abc import Mapping
from pathlib import Path

import pytest

from loomlog.connectors.configuration.environment import check_names, read_settings, secret_names
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.settings import Settings

HERE = Path("/somewhere")


def read(environ: Mapping[str, str]) -> Settings:
    return read_settings(environ, working_directory=HERE)[0]


def problems(environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_settings(environ, working_directory=HERE)
    return [str(problem) for problem in caught.value.findings]


def test_an_empty_environment_gives_the_defaults():
    settings = read({})
    assert settings.listen_addr == "127.0.0.1:8787"
    assert settings.home == HERE / ".loomlog"
    assert settings.max_request_bytes == 16 * 1024 * 1024
    assert settings.sse_keepalive_ms == 20_000
    assert (settings.provider_header_timeout_ms, settings.provider_idle_timeout_ms) == (60_000, 90_000)
    assert (settings.mock_enabled, settings.mock_latency_ms, settings.mock_latency_jitter_ms) == (False, 50, 25)
    assert settings.partitions == 4
    assert settings.session_timeout_ms == 3000
    assert settings.tool_parallelism == 8


def test_names_of_the_reference_are_aliases():
    settings = read(
        {"LOOMCYCLE_LISTEN_ADDR": "127.0.0.1:1", "LOOMCYCLE_DATA_DIR": "/d", "LOOMCYCLE_PG_DSN": "postgres://x"}
    )
    assert settings.listen_addr == "127.0.0.1:1"
    assert settings.home == Path("/d")
    assert settings.postgres == "postgres://x"


def test_our_name_wins_over_the_alias_and_a_disagreement_is_said():
    settings, warnings = read_settings(
        {"LOOMLOG_LISTEN_ADDR": "127.0.0.1:1", "LOOMCYCLE_LISTEN_ADDR": "127.0.0.1:2"}, working_directory=HERE
    )
    assert settings.listen_addr == "127.0.0.1:1"
    assert [str(w) for w in warnings] == [
        "LOOMLOG_LISTEN_ADDR and LOOMCYCLE_LISTEN_ADDR are both set and differ; LOOMLOG_LISTEN_ADDR is used"
    ]


def test_both_names_with_one_value_are_no_disagreement():
    same = {"LOOMLOG_AUTH_TOKEN": "x", "LOOMCYCLE_AUTH_TOKEN": "x"}
    assert read_settings(same, working_directory=HERE)[1] == []


def test_an_empty_variable_counts_as_not_set():
    assert read({"LOOMLOG_PARTITIONS": " ", "LOOMLOG_LISTEN_ADDR": ""}) == read({})
    assert read({"LOOMLOG_AUTH_TOKEN": "", "LOOMCYCLE_AUTH_TOKEN": "old"}).auth_token == "old"


def test_all_wrong_values_are_reported_together_with_their_names():
    actual = problems(
        {"LOOMLOG_PARTITIONS": "many", "LOOMCYCLE_MAX_REQUEST_BYTES": "-1", "LOOMLOG_BASH_ENABLED": "perhaps"}
    )
    assert len(actual) == 3
    assert "LOOMLOG_PARTITIONS: 'many' is not usable: expected a whole number from 1 to 1024" in actual
    assert any(line.startswith("LOOMCYCLE_MAX_REQUEST_BYTES: '-1'") for line in actual)


def test_a_retired_name_stops_the_start_with_a_hint():
    for name in ("LOOMCYCLE_READ_ROOT", "LOOMLOG_WRITE_ROOT", "LOOMCYCLE_BASH_CWD"):
        (line,) = problems({name: "/"})
        assert line.startswith(f"{name} was replaced by volumes")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"LOOMLOG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "needs LOOMLOG_KAFKA_SASL_MECHANISM"),
        ({"LOOMLOG_KAFKA_PASSWORD": "hunter22"}, "would not send them"),
        ({"LOOMLOG_KAFKA_CA_FILE": "ca.pem"}, "does not encrypt"),
        ({"LOOMLOG_KAFKA_SECURITY_PROTOCOL": "SSL", "LOOMLOG_KAFKA_CERT_FILE": "c"}, "belong together"),
        ({"LOOMLOG_POSTGRES_SSLKEY": "k"}, "belong together"),
        ({"LOOMLOG_POSTGRES_MIN_CONNECTIONS": "20"}, "larger than"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environ: dict[str, str], words: str):
    (line,) = problems(environ)
    assert words in line
    assert "hunter22" not in line


def test_a_complete_sasl_setup_is_taken():
    settings = read(
        {
            "LOOMLOG_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
            "LOOMLOG_KAFKA_SASL_MECHANISM": "scram-sha-512",
            "LOOMLOG_KAFKA_USERNAME": "loom",
            "LOOMLOG_KAFKA_PASSWORD": "hunter22",
            "LOOMLOG_KAFKA_CA_FILE": "ca.pem",
        }
    )
    assert (settings.kafka_security_protocol, settings.kafka_sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert settings.kafka_ca_file == HERE / "ca.pem"


def test_an_unknown_name_of_ours_is_an_error_that_names_the_nearest():
    errors, warnings = check_names({"LOOMLOG_LISTEN_ADRR": "x"})
    assert [str(e) for e in errors] == ["LOOMLOG_LISTEN_ADRR is not a setting; did you mean LOOMLOG_LISTEN_ADDR?"]
    assert warnings == []


def test_an_old_name_under_our_prefix_is_led_to_the_new_one():
    errors, _ = check_names({"LOOMLOG_PG_DSN": "x"})
    assert str(errors[0]) == "LOOMLOG_PG_DSN is not a setting; did you mean LOOMLOG_POSTGRES?"


def test_an_unknown_old_name_is_only_a_warning():
    errors, warnings = check_names({"LOOMCYCLE_WEBHOKS_ENABLED": "1"})
    assert errors == []
    assert "did you mean LOOMCYCLE_WEBHOOKS_ENABLED?" in str(warnings[0])


def test_names_of_later_features_are_accepted_silently_or_with_a_warning_under_our_prefix():
    assert check_names({"LOOMCYCLE_SCHEDULER_TICK_SECONDS": "1", "LOOMCYCLE_GRPC_ADDR": "x"}) == ([], [])
    errors, warnings = check_names({"LOOMLOG_SCHEDULER_TICK_SECONDS": "1"})
    assert errors == []
    assert "schedules" in str(warnings[0])


def test_names_the_operator_chose_are_no_mistakes():
    environ = {
        "LOOMLOG_TEAM_TOKEN": "x",
        "LOOMCYCLE_HOOK_SECRET": "x",
        "LOOMCYCLE_WEBHOOKS_ENV_ALLOWLIST": "LOOMCYCLE_HOOK_SECRET",
        "PATH": "/bin",
    }
    assert check_names(environ, {"LOOMLOG_TEAM_TOKEN"}) == ([], [])


def test_secret_names_have_both_prefixes():
    assert {"LOOMLOG_AUTH_TOKEN", "LOOMCYCLE_AUTH_TOKEN", "LOOMLOG_POSTGRES", "LOOMCYCLE_PG_DSN"} <= secret_names()
    assert {"LOOMCYCLE_SECRET_KEY", "LOOMCYCLE_OPERATOR_TOKEN_PEPPER", "LOOMLOG_KAFKA_PASSWORD"} <= secret_names()
    assert "LOOMLOG_LISTEN_ADDR" not in secret_names()
    assert "" not in secret_names()
