"""What insights is told: read once in main from a mapping (the environment), then frozen.

    LOOMLOG_KAFKA                       bootstrap servers, host:port with commas between; required
    LOOMLOG_KAFKA_SECURITY_PROTOCOL     PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    LOOMLOG_KAFKA_SASL_MECHANISM        PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    LOOMLOG_KAFKA_USERNAME, _PASSWORD   for SASL
    LOOMLOG_KAFKA_CA_FILE               authorities to trust (PEM); empty = the system's
    LOOMLOG_KAFKA_CERT_FILE, _KEY_FILE, _KEY_PASSWORD   client certificate
    LOOMLOG_REPLICATION_FACTOR          copies of the topic Faust creates for its table
    LOOMLOG_INSIGHTS_PORT               port of /metrics and /insights on 127.0.0.1
    LOOMLOG_INSIGHTS_HISTORY_MINUTES    how long windows are kept; a restart reads that much again

An empty variable counts as not set. Everything that is wrong is reported together.

Before: main passes os.environ. After: app connects with it, web listens.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import faust
from faust.types.auth import CredentialsT

SOURCE_TOPIC = "loom.insights.runs"
DEAD_LETTER_TOPIC = "loom.dead-letter"
GROUP = "loomlog-insights"
DEFAULT_PORT = 18901
DEFAULT_HISTORY_MINUTES = 15
MAX_HISTORY_MINUTES = 240
"""At 100 runs/s a restart reads 1.4 million records again, 8 minutes of work; longer views belong to Prometheus."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class WrongSettings(ValueError):
    """One line for each setting that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Broker:
    """How to reach the log. Never shown: it may hold a password."""

    bootstrap: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    username: str = ""
    password: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = ""

    @property
    def url(self) -> str:
        """As Faust wants it."""
        return ";".join(f"kafka://{server}" for server in self.bootstrap)

    def credentials(self) -> CredentialsT | None:
        """As Faust wants them. Reads the certificate files, so not on an event loop. Raises WrongSettings."""
        context: ssl.SSLContext | None = None
        if self.security_protocol.endswith("SSL"):
            try:
                context = ssl.create_default_context(cafile=self.ca_file or None)
                if self.cert_file:
                    context.load_cert_chain(self.cert_file, self.key_file or None, self.key_password or None)
            except OSError as error:
                raise WrongSettings(
                    f"LOOMLOG_KAFKA_CA_FILE ({self.ca_file!r}), _CERT_FILE ({self.cert_file!r}) and _KEY_FILE "
                    f"({self.key_file!r}) cannot be used ({error}); expected readable PEM files that belong together"
                ) from error
        if self.security_protocol.startswith("SASL"):
            return faust.SASLCredentials(
                username=self.username, password=self.password, mechanism=self.sasl_mechanism, ssl_context=context
            )
        return faust.SSLCredentials(context) if context else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightsSettings:
    broker: Broker
    port: int = DEFAULT_PORT
    """On 127.0.0.1; 0 takes a free one."""
    history_minutes: int = DEFAULT_HISTORY_MINUTES
    replication_factor: int = 1
    source_topic: str = SOURCE_TOPIC
    dead_letter_topic: str = DEAD_LETTER_TOPIC
    group: str = GROUP


def read_settings(environ: Mapping[str, str]) -> InsightsSettings:
    """The settings in these variables. Raises WrongSettings."""
    reading = _Reading(environ)
    bootstrap = tuple(server.strip() for server in reading.text("KAFKA").split(",") if server.strip())
    if not bootstrap:
        reading.wrong.append("LOOMLOG_KAFKA is empty; expected the bootstrap servers, such as 127.0.0.1:9092")
    for server in bootstrap:
        if not _is_address(server):
            reading.wrong.append(f"LOOMLOG_KAFKA: {server!r} is not host:port")
    settings = InsightsSettings(
        broker=Broker(
            bootstrap=bootstrap,
            security_protocol=reading.one_of("KAFKA_SECURITY_PROTOCOL", PROTOCOLS),
            sasl_mechanism=reading.one_of("KAFKA_SASL_MECHANISM", MECHANISMS),
            username=reading.text("KAFKA_USERNAME"),
            password=reading.text("KAFKA_PASSWORD"),
            ca_file=reading.text("KAFKA_CA_FILE"),
            cert_file=reading.text("KAFKA_CERT_FILE"),
            key_file=reading.text("KAFKA_KEY_FILE"),
            key_password=reading.text("KAFKA_KEY_PASSWORD"),
        ),
        port=reading.whole("INSIGHTS_PORT", DEFAULT_PORT, 1, 65_535),
        history_minutes=reading.whole("INSIGHTS_HISTORY_MINUTES", DEFAULT_HISTORY_MINUTES, 1, MAX_HISTORY_MINUTES),
        replication_factor=reading.whole("REPLICATION_FACTOR", 1, 1, 7),
    )
    sasl = settings.broker.security_protocol.startswith("SASL")
    if sasl and not (settings.broker.username and settings.broker.password):
        reading.wrong.append(
            f"LOOMLOG_KAFKA_SECURITY_PROTOCOL is {settings.broker.security_protocol}, which needs "
            "LOOMLOG_KAFKA_USERNAME and LOOMLOG_KAFKA_PASSWORD"
        )
    if reading.wrong:
        raise WrongSettings("\n".join(reading.wrong))
    return settings


class _Reading:
    """Takes values out of the mapping and remembers what was wrong."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.wrong: list[str] = []

    def text(self, name: str) -> str:
        return self._environ.get(f"LOOMLOG_{name}", "").strip()

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name) or allowed[0]
        if value not in allowed:
            self.wrong.append(f"LOOMLOG_{name}: {value!r} is not one of {', '.join(allowed)}")
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            self.wrong.append(f"LOOMLOG_{name}: {text!r} is not a whole number from {least} to {most}")
            return default
        return int(text)


def _is_address(server: str) -> bool:
    host, _, port = server.rpartition(":")
    return bool(host) and "/" not in server and port.isascii() and port.isdigit() and 0 < int(port) < 65_536
