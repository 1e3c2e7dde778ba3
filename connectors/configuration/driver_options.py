"""The outside as the settings describe it: one place that turns settings into options for each driver."""

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, load_key_encryption_keys
from loomlog.connectors.crypto.installation_key import SecretKey, parse_secret_key
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions


def kafka_options(settings: Settings, client_id: str, *, bootstrap: str = "") -> KafkaOptions:
    """How this process reaches the broker; `client_id` shows in the broker's logs and quotas.

    `bootstrap` wins over the settings: the command line finds the local stack by itself.
    """
    return KafkaOptions(
        bootstrap=bootstrap or settings.kafka,
        client_id=client_id,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism or "PLAIN",
        sasl_username=settings.kafka_username,
        sasl_password=settings.kafka_password,
        ca_file=str(settings.kafka_ca_file or ""),
        cert_file=str(settings.kafka_cert_file or ""),
        key_file=str(settings.kafka_key_file or ""),
        key_password=settings.kafka_key_password,
        compression=settings.kafka_compression,
    )


def postgres_options(settings: Settings, application_name: str, *, dsn: str = "") -> PostgresOptions:
    """How this process reaches Postgres; `application_name` shows in pg_stat_activity; `dsn` as above."""
    return PostgresOptions(
        dsn=dsn or settings.postgres, tls=settings.postgres_tls_options(), application_name=application_name
    )


def encryption_keys(settings: Settings) -> KeyEncryptionKeys | None:
    """What wraps the data keys of subjects; None when content is not encrypted. Blocking. Raises Permanent."""
    return load_key_encryption_keys(
        text=settings.encryption_key, file=settings.encryption_key_file, previous=settings.encryption_key_previous
    )


def installation_key(settings: Settings) -> SecretKey | None:
    """The installation's secret key; None when there is none. Raises Permanent."""
    return parse_secret_key(text=settings.secret_key, previous=settings.secret_key_previous)
