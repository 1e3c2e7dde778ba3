"""Broker options in the form of Faust: addresses as URLs, security as credentials.

Before: settings.py. After: faust_adapters.py configures Faust, main.py builds the credentials at the start.
"""

import faust
from faust.types.auth import CredentialsT

from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions


def broker_urls(options: KafkaOptions) -> str:
    """The bootstrap servers as Faust's `broker`."""
    return ";".join(f"kafka://{server.strip()}" for server in options.bootstrap.split(",") if server.strip())


def build_credentials(options: KafkaOptions) -> CredentialsT | None:
    """None for a plain connection. Reads the certificate files, so not on an event loop. Raises Permanent."""
    try:
        context = options.client_arguments().get("ssl_context")
    except OSError as error:
        raise Permanent(
            f"LOOMLOG_KAFKA_CA_FILE ({options.ca_file!r}), _CERT_FILE ({options.cert_file!r}) and _KEY_FILE "
            f"({options.key_file!r}) cannot be used ({error}); expected readable PEM files that belong together",
            kind="invalid",
        ) from error
    if options.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=options.sasl_username,
            password=options.sasl_password,
            mechanism=options.sasl_mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None
