"""Settings as the options of the drivers."""

from pathlib import Path

from loomlog.connectors.configuration.driver_options import embedder_options, kafka_options, postgres_options
from loomlog.connectors.configuration.memory_block import EmbedderBlock, MemoryBlock
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.embedders.options import EmbedderOptions

SETTINGS = Settings(
    kafka="broker:9092",
    kafka_security_protocol="SASL_SSL",
    kafka_sasl_mechanism="SCRAM-SHA-512",
    kafka_username="ada",
    kafka_password="hush",
    kafka_ca_file=Path("/ca.pem"),
    kafka_cert_file=Path("/cert.pem"),
    kafka_key_file=Path("/key.pem"),
    kafka_key_password="hush too",
    kafka_compression="zstd",
    postgres="postgresql://db/loomlog",
    postgres_sslmode="verify-full",
)


def test_everything_about_the_broker_reaches_the_driver() -> None:
    options = kafka_options(SETTINGS, "me")
    assert (options.bootstrap, options.client_id) == ("broker:9092", "me")
    assert (options.security_protocol, options.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (options.sasl_username, options.sasl_password) == ("ada", "hush")
    assert (options.ca_file, options.cert_file, options.key_file) == ("/ca.pem", "/cert.pem", "/key.pem")
    assert (options.key_password, options.compression) == ("hush too", "zstd")


def test_everything_about_postgres_reaches_the_driver() -> None:
    options = postgres_options(SETTINGS, "me")
    assert (options.dsn, options.application_name) == ("postgresql://db/loomlog", "me")
    assert options.tls == {"sslmode": "verify-full"}


def test_an_address_found_elsewhere_wins_and_the_security_stays() -> None:
    broker = kafka_options(SETTINGS, "me", bootstrap="127.0.0.1:1")
    assert (broker.bootstrap, broker.security_protocol) == ("127.0.0.1:1", "SASL_SSL")
    server = postgres_options(SETTINGS, "me", dsn="postgresql://here/")
    assert (server.dsn, server.tls) == ("postgresql://here/", {"sslmode": "verify-full"})


def test_what_is_not_given_is_left_to_the_driver() -> None:
    options = kafka_options(Settings(kafka="broker:9092"), "me")
    assert (options.sasl_mechanism, options.ca_file, options.cert_file, options.key_file) == ("PLAIN", "", "", "")
    assert options.compression == "lz4"


def test_everything_about_the_embedder_reaches_the_driver() -> None:
    settings = Settings(memory_embed_timeout_ms=5, memory_embed_batch_size=6)
    full = EmbedderBlock(
        provider="openai",
        model="m",
        base_url="https://llm.example",
        api_key_env="KEY",
        dimensions=256,
        timeout_ms=7,
        batch_size=8,
    )
    options = embedder_options(Configuration(memory=MemoryBlock(embedder=full)), settings)
    assert options == EmbedderOptions(
        provider="openai",
        model="m",
        base_url="https://llm.example",
        api_key_env="KEY",
        dimensions=256,
        timeout_ms=7,
        batch_size=8,
    )
    sparse = Configuration(memory=MemoryBlock(embedder=EmbedderBlock(provider="gemini")))
    assert embedder_options(sparse, settings) == EmbedderOptions(provider="gemini", timeout_ms=5, batch_size=6)
    assert embedder_options(Configuration(), settings) is None


def test_the_stub_of_tests_replaces_every_other_embedder() -> None:
    settings = Settings(embedder_stub=True)
    openai = Configuration(memory=MemoryBlock(embedder=EmbedderBlock(provider="openai", dimensions=256)))
    assert embedder_options(openai, settings) == embedder_options(Configuration(), settings)
    assert embedder_options(openai, settings) == EmbedderOptions(provider="stub")
    own = Configuration(memory=MemoryBlock(embedder=EmbedderBlock(provider="stub", dimensions=64)))
    assert embedder_options(own, settings) == EmbedderOptions(provider="stub", dimensions=64)
