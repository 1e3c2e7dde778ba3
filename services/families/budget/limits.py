"""Bounds of the budget state, each with its reason. Together they keep it below STATE_BYTES_MAX of the family kit with
ids of usual length; with long ones the kit's own bound comes first, and refuses what makes the state grow.
"""

LIMITS_MAX = 1_500
"""Accounts with a limit, some 180 bytes each. Only those are counted; more belong in a billing system."""
OPEN_MAX = 2_000
"""Open reservations at one time, some 130 bytes each: eight runtimes with all 256 slots of one provider in use. Further
calls wait for one of them to end.
"""
REMEMBERED_MAX = 1_000
"""Ended calls that are known by id, newest first: at least this many, at most twice as many. A repeated command arrives
within seconds, and so does the result of a call that was counted as lost.
"""
CALL_AMOUNT_MAX = 2**40
"""Largest amount of one call, in tokens or millionths; more is an error of the sender."""
RESERVATION_MS = 30 * 60_000
"""Milliseconds after which an unsettled reservation counts as lost, rounded up to a minute. Longer than any model call;
a call that takes longer is still counted correctly as long as it is remembered.
"""
EXPIRED_PER_DECISION = 100
"""Reservations that one decision closes because they have expired, so that it fits one append."""
