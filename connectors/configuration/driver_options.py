"""Driver options built from the settings and the files, for every driver in one place."""

from loomlog.connectors.configuration.memory_block import STUB_EMBEDDER, EmbedderBlock
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, load_key_encryption_keys
from loomlog.connectors.crypto.installation_key import SecretKey, parse_secret_key
from loomlog.connectors.embedders.options import EmbedderOptions
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions


def kafka_options(settings: Settings, client_id: str, *, bootstrap: str = "") -> KafkaOptions:
    """Return the connection options of the broker; `client_id` shows in the broker's logs and quotas.

    `bootstrap` overrides the settings: the command line finds the local stack by itself.
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
    """Return the connection options of Postgres; `application_name` shows in pg_stat_activity; `dsn` overrides the
    settings.
    """
    return PostgresOptions(
        dsn=dsn or settings.postgres, tls=settings.postgres_tls_options(), application_name=application_name
    )


def encryption_keys(settings: Settings) -> KeyEncryptionKeys | None:
    """Return the keys that wrap subjects' data keys; None without encryption. Blocking. Raises Permanent."""
    return load_key_encryption_keys(
        text=settings.encryption_key, file=settings.encryption_key_file, previous=settings.encryption_key_previous
    )


def installation_key(settings: Settings) -> SecretKey | None:
    """Return the installation's secret key; None when there is none. Raises Permanent."""
    return parse_secret_key(text=settings.secret_key, previous=settings.secret_key_previous)


def embedder_options(configuration: Configuration, settings: Settings) -> EmbedderOptions | None:
    """Return the options of the embedder: those of memory.embedder with the settings for what it leaves out, those of
    the stub if a setting asks for it, and None when there is no embedder.
    """
    block = configuration.memory.embedder
    if settings.embedder_stub and (block is None or block.provider != STUB_EMBEDDER):
        block = EmbedderBlock(provider=STUB_EMBEDDER)
    if block is None:
        return None
    return EmbedderOptions(
        provider=block.provider,
        model=block.model,
        base_url=block.base_url,
        api_key_env=block.api_key_env or "",
        dimensions=block.dimensions,
        timeout_ms=block.timeout_ms or settings.memory_embed_timeout_ms,
        batch_size=block.batch_size or settings.memory_embed_batch_size,
    )
