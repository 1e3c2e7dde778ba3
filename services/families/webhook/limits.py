"""Bounds of webhooks, each with its reason.

After: decide.py, mapping.py; the api and the reader of loom.ingress refuse earlier what these refuse.
"""

REQUESTS_PER_MINUTE, BURST = 60, 10
"""Deliveries of a webhook that names no limit (parity: reference surfaces 6.1)."""
REQUESTS_PER_MINUTE_MAX = 10_000_000
"""Larger numbers count as this one: products with times must stay below 2^63."""
GENERATIONS, GENERATION_MAX = 5, 500
"""Ids of deliveries in the state are in generations, so that an event copies at most one: the last 2,000 at least,
2,500 at most, 120 KB encoded. Older ones are found in the rows.
"""
REMEMBERED = (GENERATIONS - 1) * GENERATION_MAX
BODY_BYTES = 1024 * 1024
"""Largest body (parity: reference surfaces 6.1)."""
BODY_DEPTH_MAX = 64
"""Nested lists and objects of a body; more would exhaust the stack of a parser."""
INLINE_BYTES = 64 * 1024
"""A longer text lies in the blob store: decisions and starts of runs stay far below the size of a record."""
METADATA_BYTES_MAX = 64 * 1024
"""All that a body says about its run together."""
DELIVERY_ID_CHARACTERS_MAX = 256
ATTRIBUTE_CHARACTERS_MAX = 1_024
"""Longest attribute of a CloudEvent."""
USER_ID_CHARACTERS_MAX = 128
CREDENTIAL_CHARACTERS_MAX = 8_192
EVENT_BYTES_MAX = 400_000
"""Texts of a delivery together: the run's command and its first event must fit a record with the agent's definition."""
ROWS_KEPT_MS = 30 * 86_400_000
"""How long deliveries are listed, and ids beyond the state recognised."""
RECENT_MAX = 50
"""Deliveries of one list (parity: reference surfaces 6.6)."""
