"""Bounds of the books, each with its reason. All of them together keep a snapshot of the state below one record."""

LIMITS_MAX = 4_000
"""Accounts with a limit. Only those are counted; more belong in a system that sends bills."""
OPEN_MAX = 4_000
"""Reservations at one time: sixteen runtimes with all 256 slots of one provider in use."""
REMEMBERED_MAX = 1_000
"""Closed reservations of which the newest so many, and up to twice as many, are known by id: a command that is sent
again comes within seconds, and so does the result of a call that was counted as lost."""
CALL_AMOUNT_MAX = 2**40
"""Largest amount of one call, in tokens or millionths; more is a mistake of whoever says it."""
CALL_ID_MAX = 300
"""Characters of the id of a call, and of a user's name in it: a run id, a turn and an attempt."""
RESERVATION_MS = 30 * 60_000
"""A reservation that nobody settles for so long counts as lost. Longer than any model call; a call that is longer all
the same is counted right as long as it is remembered."""
EXPIRED_PER_DECISION = 100
"""Reservations that one decision closes because their time is up, so that it fits one append."""
AMOUNT_MAX = 2**53
"""Largest limit or amount: what JSON clients can still count exactly, nine thousand million units of money."""
