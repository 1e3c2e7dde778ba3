"""Bounds of consolidation."""

LEASE_MS = 60_000
LEASE_MS_MAX = 3_600_000
"""Longest lease (parity: reference runtime 5.4)."""
PENDING_MAX = 10_000
"""Pending entries of a target. A state with a gap between any two of them has 60 KB."""
PAYLOAD_BYTES_MAX = 1024 * 1024
"""Bytes of a pending payload, and of the entries of one answer."""
PAYLOAD_INLINE_BYTES = 64 * 1024
"""Bytes of a payload in its event; a longer one is in the blob store."""
INLINE_CHARACTERS_MAX = 128 * 1024
"""Characters of that field: a payload as it is, or its ciphertext."""
SCAN, SCAN_MAX = 10, 50
DRAIN, DRAIN_MAX = 50, 200
ACK_IDS_MAX = DRAIN_MAX
ACK_EVENT_IDS_MAX = 100
"""Ids of one event: with the row of the target they are fewer than services/core/families.py ITEMS_MAX."""
SESSION_ID_CHARACTERS_MAX = 256
CLOCK_SKEW_MS = 60_000
"""How far the clock of the process that ended a chat may be ahead of the owner's."""
START_DELAY_MS = 60_000
"""Time from the first work to a pass, so that a pass finds what comes together. It doubles with each start after which
nothing moved.
"""
DROPPED_MS = 60_000
"""How long chats that settle after a drop do not count: the erasure of the user has cancelled them."""
STARTS_MAX = 8
"""Starts without any progress, over four hours; then only new work leads to a start, one each."""
