"""What insights is told, and how Faust hears of the broker."""

import faust
import pytest
from faust.types.auth import AuthProtocol

from loomlog.connectors.configuration import Settings
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions
from loomlog.services.insights.broker import broker_urls, build_credentials
from loomlog.services.insights.settings import insights_settings


def test_what_the_settings_say_is_what_insights_is_told() -> None:
    told = insights_settings(
        Settings(kafka="a:1", insights_port=7, insights_history_minutes=30, replication_factor=3, kafka_username="ada")
    )
    assert (told.kafka.bootstrap, told.kafka.sasl_username) == ("a:1", "ada")
    assert (told.port, told.history_minutes, told.replication_factor) == (7, 30, 3)
    assert (told.source_topic, told.dead_letter_topic) == ("loom.insights.runs", "loom.dead-letter")


def test_no_broker_is_named_as_what_is_missing() -> None:
    with pytest.raises(Permanent, match="LOOMLOG_KAFKA is not set"):
        insights_settings(Settings())


def test_several_brokers_are_several_urls() -> None:
    assert broker_urls(KafkaOptions(bootstrap="a:1, b:2")) == "kafka://a:1;kafka://b:2"


def test_a_plain_connection_needs_no_credentials() -> None:
    assert build_credentials(KafkaOptions(bootstrap="a:1")) is None


def test_sasl_gives_faust_the_credentials() -> None:
    found = build_credentials(
        KafkaOptions(
            bootstrap="a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="insights",
            sasl_password="hush",
        )
    )
    assert isinstance(found, faust.SASLCredentials)
    assert found.protocol is AuthProtocol.SASL_SSL
    assert found.mechanism.value == "SCRAM-SHA-512"
    assert (found.username, found.password) == ("insights", "hush")
    assert found.ssl_context is not None


def test_sasl_without_tls_has_no_context() -> None:
    found = build_credentials(
        KafkaOptions(bootstrap="a:1", security_protocol="SASL_PLAINTEXT", sasl_username="a", sasl_password="b")
    )
    assert isinstance(found, faust.SASLCredentials)
    assert found.protocol is AuthProtocol.SASL_PLAINTEXT


def test_tls_alone_gives_faust_a_context() -> None:
    found = build_credentials(KafkaOptions(bootstrap="a:1", security_protocol="SSL"))
    assert isinstance(found, faust.SSLCredentials)


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Permanent, match=r"/nowhere/cert\.pem"):
        build_credentials(KafkaOptions(bootstrap="a:1", security_protocol="SSL", cert_file="/nowhere/cert.pem"))


def test_the_password_never_shows() -> None:
    assert "hush" not in repr(insights_settings(Settings(kafka="a:1", kafka_password="hush")))
