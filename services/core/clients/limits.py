"""Limits of client tools, each with its reason."""

from loomlog.schemas.client_names import TOOL_NAME_PREFIX

NAME_CHARACTERS_MAX = 64 - len(TOOL_NAME_PREFIX)
"""Maximum characters of a tool's name; providers accept function names of 64 characters."""
TOOLS_MAX = 64
"""Maximum tools of one connection; with more, a model does not find the right one."""
DESCRIPTION_CHARACTERS_MAX = 4_096
SCHEMA_BYTES_MAX = 64 * 1024
"""Maximum bytes of one tool's schema; it is part of every request to the model."""
OFFER_BYTES_MAX = 512 * 1024
"""Maximum bytes of all tools of a connection, which are sent in one record."""
CLIENT_CHARACTERS_MAX = 200
"""Maximum characters of a client's name for itself."""
CALLS_MAX = 32
"""Maximum open calls of one client; more are refused. A turn requests fewer, and a client belongs to one person."""
SEEN_CALLS_MAX = 10_000
"""Maximum calls of a connection that are remembered, so that none is sent twice."""
SEEN_CALL_TTL_MS = 60_000
"""Milliseconds a call is remembered after its deadline.

A request is in the log twice when a broker did not answer, which takes less.
"""
PROTOCOL_ERRORS_MAX = 16
"""Maximum invalid frames before the connection is closed: each costs a response."""
TEXT_BYTES_MAX = 800 * 1024
"""Maximum bytes of a result; more is cut. It has to fit one append."""
ERROR_CHARACTERS_MAX = 200
"""Maximum characters of a client's input that are quoted back."""

HELLO_TIMEOUT_S = 10.0
"""Seconds from the connection to its first frame; a silent client must not occupy a place."""
SEND_TIMEOUT_S = 10.0
"""Seconds for a frame to be sent; a client that reads more slowly is dropped."""
HEARTBEAT_S = 5.0
"""Seconds between two heartbeats of a process."""
LEASE_MS = 15_000
"""Milliseconds that the registrations of a process count after its last heartbeat: three intervals."""
RENEWAL_INTERVAL_S = 300.0
"""Seconds between two records of an unchanged registration; the topic keeps them for half an hour."""
REGISTRATIONS_MAX = 20_000
"""Maximum connections that one process keeps; further ones are ignored."""
