"""Options of insights, and broker options of Faust."""

import faust
import pytest
from faust.types.auth import AuthProtocol

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions
from loomlog.services.insights.broker import broker_urls, build_credentials
from loomlog.services.insights.settings import insights_settings


def test_options_are_taken_from_the_settings() -> None:
    options = insights_settings(
        Settings(kafka="a:1", insights_port=7, insights_history_minutes=30, replication_factor=3, kafka_username="ada")
    )
    assert (options.kafka.bootstrap, options.kafka.sasl_username) == ("a:1", "ada")
    assert (options.port, options.history_minutes, options.replication_factor) == (7, 30, 3)
    assert (options.source_topic, options.dead_letter_topic) == ("loom.insights.runs", "loom.dead-letter")


def test_a_missing_broker_is_named() -> None:
    with pytest.raises(Permanent, match="LOOMLOG_KAFKA is not set"):
        insights_settings(Settings())


def test_several_brokers_are_several_urls() -> None:
    assert broker_urls(KafkaOptions(bootstrap="a:1, b:2")) == "kafka://a:1;kafka://b:2"


def test_a_plain_connection_needs_no_credentials() -> None:
    assert build_credentials(KafkaOptions(bootstrap="a:1")) is None


def test_sasl_gives_faust_the_credentials() -> None:
    credentials = build_credentials(
        KafkaOptions(
            bootstrap="a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="insights",
            sasl_password="hush",
        )
    )
    assert isinstance(credentials, faust.SASLCredentials)
    assert credentials.protocol is AuthProtocol.SASL_SSL
    assert credentials.mechanism.value == "SCRAM-SHA-512"
    assert (credentials.username, credentials.password) == ("insights", "hush")
    assert credentials.ssl_context is not None


def test_sasl_without_tls_has_no_context() -> None:
    credentials = build_credentials(
        KafkaOptions(bootstrap="a:1", security_protocol="SASL_PLAINTEXT", sasl_username="a", sasl_password="b")
    )
    assert isinstance(credentials, faust.SASLCredentials)
    assert credentials.protocol is AuthProtocol.SASL_PLAINTEXT


def test_tls_alone_gives_faust_a_context() -> None:
    credentials = build_credentials(KafkaOptions(bootstrap="a:1", security_protocol="SSL"))
    assert isinstance(credentials, faust.SSLCredentials)


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Permanent, match=r"/nowhere/cert\.pem"):
        build_credentials(KafkaOptions(bootstrap="a:1", security_protocol="SSL", cert_file="/nowhere/cert.pem"))


def test_the_password_is_not_shown() -> None:
    assert "hush" not in repr(insights_settings(Settings(kafka="a:1", kafka_password="hush")))
