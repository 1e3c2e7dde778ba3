"""Bounds of callbacks, and when an attempt is made."""

BODY_BYTES_MAX = 400_000
"""Bytes of a body, encrypted or not: the state has it until it is delivered (services/core/families.py
STATE_BYTES_MAX).
"""
URL_CHARACTERS_MAX = 3_000
"""Characters of an address, encrypted or not: a token is a third longer than its text, which has at most
connectors/definitions/triggers.py URL_CHARACTERS_MAX.
"""
HOOK_MAX = 1_000
"""Highest place of a hook; a run has at most connectors/definitions/triggers.py HOOKS_MAX."""
ERROR_CHARACTERS_MAX = 300
"""Characters of an error that are kept."""
GIVE_UP_MS = 24 * 3_600_000
"""Time from the request after which no further attempt is made."""
LOST_MS = 60_000
"""Time after which an attempt whose end is not known is made again: far longer than one may take."""
PAUSES_MS = (1_000, 5_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 7_200_000)
"""Pauses after the first, second ... failed attempt; after further ones the last pause. With a day for all of them a
receiver that is down is asked 19 times.
"""


def pause_ms(attempt: int) -> int:
    """Return the pause after a failed attempt, from 1 on."""
    return PAUSES_MS[min(attempt, len(PAUSES_MS)) - 1]
