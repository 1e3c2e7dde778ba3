from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import Permanent
from loomlog.projections.engine.builds import ENTITY_TABLES
from loomlog.services.projector.settings import projector_settings

SETTINGS = Settings(
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


def test_options_are_taken_from_the_settings():
    options = projector_settings(SETTINGS)
    assert (options.kafka.bootstrap, options.kafka.security_protocol) == ("broker:9092", "SASL_SSL")
    assert (options.kafka.sasl_mechanism, options.kafka.sasl_username, options.kafka.ca_file) == (
        "SCRAM-SHA-256",
        "u",
        "/certs/ca.pem",
    )
    assert (options.postgres.dsn, options.postgres.tls) == (SETTINGS.postgres, {"sslmode": "verify-full"})
    assert (options.owner, options.topic, options.prefix) == ("replica-3", "loom.run.events", "loom")


def test_entities_have_a_topic_and_schemas_of_their_own():
    options = projector_settings(SETTINGS).of_entities
    assert (options.owner, options.topic) == ("replica-3", "loom.entity.events")
    assert options.prefix == ENTITY_TABLES.prefix


def test_the_secret_key_is_taken_from_the_settings():
    assert projector_settings(SETTINGS).secret is None
    options = projector_settings(replace(SETTINGS, secret_key=b64encode(b"k" * 32).decode()))
    assert options.secret is not None
    assert "kkk" not in repr(options)


def test_the_feed_of_memory_is_on_for_a_day_unless_the_settings_differ():
    options = projector_settings(SETTINGS)
    assert (options.memory_changes_enabled, options.memory_changes_retention_hours) == (True, 24)
    assert options.change_sub_interval_s == 5
    changed = replace(
        SETTINGS, memory_changes_enabled=False, memory_changes_retention_hours=2, change_sub_interval_ms=250
    )
    options = projector_settings(changed)
    assert (options.memory_changes_enabled, options.memory_changes_retention_hours) == (False, 2)
    assert options.change_sub_interval_s == 0.25


def test_a_process_without_a_replica_id_gets_a_name():
    assert "-" in projector_settings(replace(SETTINGS, replica_id="")).owner


def test_secrets_are_not_shown():
    assert "hunter2" not in repr(projector_settings(SETTINGS))


@pytest.mark.parametrize("missing", ["kafka", "postgres"])
def test_a_missing_setting_is_named(missing):
    with pytest.raises(Permanent, match=f"LOOMLOG_{missing.upper()} is not set"):
        projector_settings(replace(SETTINGS, **{missing: ""}))
