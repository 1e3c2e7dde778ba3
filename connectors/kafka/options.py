"""How to reach the broker, and the limits of every client."""

import ssl
from dataclasses import dataclass
from typing import Any

MAX_BATCH_BYTES = 900_000
"""Maximum bytes of one append; below the broker's default message.max.bytes of 1 MiB, with room for framing."""
FETCH_MAX_WAIT_MS = 50
"""Maximum wait of an empty fetch of a range: the next range waits for the fetch in flight."""
TAIL_FETCH_MAX_WAIT_MS = 5_000
"""Maximum wait of an empty fetch of a tail that only reads forward: a new record ends it at once, and so does a lost
connection; half of REQUEST_TIMEOUT_MS. An empty fetch costs broker and client 0.7 ms of CPU together, and a stack has
some twenty tails.
"""
REQUEST_TIMEOUT_MS = 10_000
"""Time without a response after which a request is abandoned and the client reconnects."""
METADATA_WAIT_S = 10.0
"""Time to wait for the broker when a client starts."""
METADATA_MAX_AGE_MS = 10_000
"""Maximum age of cluster metadata. aiokafka's default of five minutes is long for a client that knows one broker of
three; a refresh is one small request.
"""
RETRY_BACKOFF_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How to reach the broker. `bootstrap` is host:port, or several with commas; secrets never show in repr."""

    bootstrap: str
    client_id: str = "loomlog"
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    sasl_mechanism: str = "PLAIN"
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    sasl_username: str = ""
    sasl_password: str = ""
    ca_file: str = ""
    """PEM file of certificate authorities; empty for the system's."""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = ""
    compression: str = "lz4"
    """Compression of appended batches: none, gzip, lz4 or zstd. lz4 reduces a run of A3x2 from 9.2 to 7.1 KB of log (5
    KB of it random) without a measurable difference in CPU.
    """

    def __repr__(self) -> str:
        return f"KafkaOptions(bootstrap={self.bootstrap!r}, security_protocol={self.security_protocol!r})"

    def client_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments common to all aiokafka clients."""
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        }
        if self.security_protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None, self.key_password or None)
            arguments["ssl_context"] = context
        if self.security_protocol.startswith("SASL"):
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = self.sasl_username
            arguments["sasl_plain_password"] = self.sasl_password
        return arguments
