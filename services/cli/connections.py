"""Settings as the options of the two drivers, for the commands that read the log and the read models themselves.

Before: every command that does. After: connectors.
"""

from connectors.configuration import Settings
from connectors.kafka import KafkaOptions
from connectors.postgres import PostgresOptions


def kafka_options(settings: Settings, bootstrap: str) -> KafkaOptions:
    """The broker at `bootstrap`, with the security of the settings."""
    return KafkaOptions(
        bootstrap=bootstrap,
        client_id="loomlog-cli",
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism or "PLAIN",
        sasl_username=settings.kafka_username,
        sasl_password=settings.kafka_password,
        ca_file=str(settings.kafka_ca_file or ""),
        cert_file=str(settings.kafka_cert_file or ""),
        key_file=str(settings.kafka_key_file or ""),
    )


def postgres_options(settings: Settings, dsn: str, application_name: str = "loomlog-cli") -> PostgresOptions:
    """The server of `dsn`, with the TLS of the settings."""
    return PostgresOptions(dsn=dsn, tls=settings.postgres_tls(), application_name=application_name)
