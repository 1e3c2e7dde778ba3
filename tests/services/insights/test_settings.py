"""What insights is told, and how it says what is wrong."""

import faust
import pytest
from faust.types.auth import AuthProtocol

from services.insights.settings import DEFAULT_HISTORY_MINUTES, DEFAULT_PORT, WrongSettings, read_settings

GIVEN = {"LOOMLOG_KAFKA": "127.0.0.1:9092"}


def test_the_broker_is_all_that_has_to_be_said() -> None:
    settings = read_settings(GIVEN | {"LOOMLOG_INSIGHTS_PORT": ""})
    assert (settings.port, settings.history_minutes) == (DEFAULT_PORT, DEFAULT_HISTORY_MINUTES)
    assert settings.broker.url == "kafka://127.0.0.1:9092"
    assert settings.broker.credentials() is None


def test_several_brokers_are_several_urls() -> None:
    assert read_settings({"LOOMLOG_KAFKA": "a:1, b:2"}).broker.url == "kafka://a:1;kafka://b:2"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(WrongSettings) as raised:
        read_settings(
            {
                "LOOMLOG_KAFKA": "nowhere",
                "LOOMLOG_INSIGHTS_PORT": "70000",
                "LOOMLOG_INSIGHTS_HISTORY_MINUTES": "soon",
                "LOOMLOG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
                "LOOMLOG_KAFKA_SASL_MECHANISM": "MAGIC",
            }
        )
    said = str(raised.value)
    for part in ("'nowhere'", "'70000'", "'soon'", "'MAGIC'", "LOOMLOG_KAFKA_PASSWORD"):
        assert part in said


def test_no_broker_is_named_as_what_is_missing() -> None:
    with pytest.raises(WrongSettings, match="LOOMLOG_KAFKA is empty"):
        read_settings({})


def test_sasl_gives_faust_the_credentials() -> None:
    broker = read_settings(
        GIVEN
        | {
            "LOOMLOG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "LOOMLOG_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "LOOMLOG_KAFKA_USERNAME": "insights",
            "LOOMLOG_KAFKA_PASSWORD": "hush",
        }
    ).broker
    credentials = broker.credentials()
    assert isinstance(credentials, faust.SASLCredentials)
    assert credentials.protocol is AuthProtocol.SASL_SSL
    assert credentials.mechanism.value == "SCRAM-SHA-512"
    assert (credentials.username, credentials.password) == ("insights", "hush")
    assert credentials.ssl_context is not None


def test_tls_alone_gives_faust_a_context() -> None:
    credentials = read_settings(GIVEN | {"LOOMLOG_KAFKA_SECURITY_PROTOCOL": "SSL"}).broker.credentials()
    assert isinstance(credentials, faust.SSLCredentials)


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    broker = read_settings(
        GIVEN | {"LOOMLOG_KAFKA_SECURITY_PROTOCOL": "SSL", "LOOMLOG_KAFKA_CERT_FILE": "/nowhere/cert.pem"}
    ).broker
    with pytest.raises(WrongSettings, match=r"/nowhere/cert\.pem"):
        broker.credentials()


def test_the_password_never_shows() -> None:
    settings = read_settings(GIVEN | {"LOOMLOG_KAFKA_PASSWORD": "hush"})
    assert "hush" not in repr(settings)
