"""Bounds of tools that clients carry out, each with its reason."""

from loomlog.schemas.client_names import TOOL_NAME_PREFIX

NAME_CHARACTERS_MAX = 64 - len(TOOL_NAME_PREFIX)
"""Providers take function names of 64 characters."""
TOOLS_MAX = 64
"""Of one connection; a model that is shown more finds none of them."""
DESCRIPTION_CHARACTERS_MAX = 4_096
SCHEMA_BYTES_MAX = 64 * 1024
"""Of one tool; it is part of every request to the model."""
OFFER_BYTES_MAX = 512 * 1024
"""Of all tools of a connection, which travel in one record."""
CLIENT_CHARACTERS_MAX = 200
"""Of what a client calls itself."""
CALLS_MAX = 32
"""Calls that are open with one client; more are not handed out. A turn asks for fewer, and a client is one person's."""
SEEN_CALLS_MAX = 10_000
"""Calls of a connection that are remembered, so that none is handed out twice."""
SEEN_CALL_TTL_MS = 60_000
"""After their time is over. A request is in the log twice when a broker did not answer, which takes less."""
PROTOCOL_ERRORS_MAX = 16
"""Frames that make no sense, until the connection is closed: each costs an answer."""
TEXT_BYTES_MAX = 800 * 1024
"""Of a result; more is cut. It has to fit one append."""
ERROR_CHARACTERS_MAX = 200
"""Of what a client sent, when it is quoted back."""

HELLO_TIMEOUT_S = 10.0
"""From the connection to its first frame; whoever says nothing holds a place for nobody."""
SEND_TIMEOUT_S = 10.0
"""For a frame to leave; a client that reads more slowly is dropped."""
CONNECTIONS_MAX = 1_000
"""Of one process, all principals together."""
HEARTBEAT_S = 5.0
"""Between two words of a process that it is alive."""
LEASE_MS = 15_000
"""So long do the registrations of a process count after its last word: three beats."""
RENEWAL_INTERVAL_S = 300.0
"""Between two records of a registration that is still so; the topic keeps them for half an hour."""
REGISTRATIONS_MAX = 20_000
"""Connections that one process knows of; what comes after them is not seen."""
