"""Bounds of the pauses. The loop bounds the bytes of the state as well (services/core/families.py STATE_BYTES_MAX)."""

PAUSES_MAX = 500
"""Maximum pauses at one time: every run is compared with them."""
NAME_BYTES_MAX = 256
"""Bytes of the name of a tenant or an agent, and of a value of the switch."""
SWITCHES_MAX = 1_000
"""Values of the start-paused switch that are known as used; each start of a stack with the setting on is one."""
REASON_CHARACTERS_MAX = 4_000
"""Characters of a reason in a request; the event has fewer (decide.py)."""
WAIT_MS, WAIT_MS_MAX = 30_000, 300_000
"""Milliseconds that a pause waits until all runs have stopped: by default, and at most."""
