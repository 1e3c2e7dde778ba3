from dataclasses import replace
from pathlib import Path

import pytest

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import Permanent
from loomlog.services.projector.settings import projector_settings

GIVEN = Settings(
    kafka="broker:9092",
    kafka_security_protocol="SASL_SSL",
    kafka_sasl_mechanism="SCRAM-SHA-256",
    kafka_username="u",
    kafka_password="hunter2",
    kafka_ca_file=Path("/certs/ca.pem"),
    postgres="postgresql://u:hunter2@db/loom",
    postgres_sslmode="verify-full",
    replica_id="replica-3",
)


def test_the_projectors_part_is_taken_from_the_one_table():
    found = projector_settings(GIVEN)
    assert (found.kafka.bootstrap, found.kafka.security_protocol) == ("broker:9092", "SASL_SSL")
    assert (found.kafka.sasl_mechanism, found.kafka.sasl_username, found.kafka.ca_file) == (
        "SCRAM-SHA-256",
        "u",
        "/certs/ca.pem",
    )
    assert (found.postgres.dsn, found.postgres.tls) == (GIVEN.postgres, {"sslmode": "verify-full"})
    assert (found.owner, found.topic, found.prefix) == ("replica-3", "loom.run.events", "loom")


def test_a_process_without_a_name_gets_its_own():
    assert "-" in projector_settings(replace(GIVEN, replica_id="")).owner


def test_secrets_are_not_shown():
    assert "hunter2" not in repr(projector_settings(GIVEN))


@pytest.mark.parametrize("missing", ["kafka", "postgres"])
def test_what_is_missing_is_named(missing):
    with pytest.raises(Permanent, match=f"LOOMLOG_{missing.upper()} is not set"):
        projector_settings(replace(GIVEN, **{missing: ""}))
