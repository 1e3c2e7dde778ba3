"""Bounds of the budget state, each with its reason. Together they keep a snapshot of it below one record."""

LIMITS_MAX = 4_000
"""Accounts with a limit. Only those are counted; more belong in a billing system."""
OPEN_MAX = 4_000
"""Open reservations at one time: sixteen runtimes with all 256 slots of one provider in use."""
REMEMBERED_MAX = 1_000
"""Closed reservations known by id, newest first: at least this many, at most twice as many. A repeated command arrives
within seconds, and so does the result of a call that was counted as lost.
"""
CALL_AMOUNT_MAX = 2**40
"""Largest amount of one call, in tokens or millionths; more is an error of the sender."""
CALL_ID_MAX = 300
"""Characters of the id of a call (run id, turn and attempt), of a user id and of a tenant."""
RESERVATION_MS = 30 * 60_000
"""Milliseconds after which an unsettled reservation counts as lost. Longer than any model call; a call that takes
longer is still counted correctly as long as it is remembered.
"""
EXPIRED_PER_DECISION = 100
"""Reservations that one decision closes because they have expired, so that it fits one append."""
AMOUNT_MAX = 2**53
"""Largest limit or amount: what JSON clients can still count exactly, nine thousand million units of money."""
