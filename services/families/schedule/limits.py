"""Bounds of schedules."""

from loomlog.connectors.cron import CATCH_UP_MAX, JITTER_MS_MAX

__all__ = ["CATCH_UP_MAX", "JITTER_MS_MAX"]

RUNNING_MAX = 100
"""Runs of one schedule at once, with overlap allow; each is in the state until it has ended."""
MISSED_MS = 60_000
"""An instant that is decided later than this has passed unseen: catch_up_max 0 leaves it out. Less is an owner that was
busy, or a takeover.
"""
AHEAD_MS = 300_000
"""A next instant that lies further beyond the times than this comes from a clock that was ahead. Clocks that are
believed differ by two minutes at most (services/core/clock.py), and five minutes more of a wait repair themselves.
"""
PASSED_RANGES_MAX = 4
"""Ranges of instants that fired before their time and do not fire again; the newest are kept."""
COUNTED_MAX = 1_000
"""Missed instants that are counted one by one; the number of more is said to be at least this."""
PAUSED_MS = 100 * 365 * 86_400_000
"""A pause without an end: a hundred years (parity: reference surfaces 1.9)."""
TIMES_CHARACTERS_MAX = 1_000
ERROR_CHARACTERS_MAX = 500
"""The beginning of a failure is in the state and the row; the run has all of it."""
HISTORY_MS = 90 * 86_400_000
"""How long the row of a fire is kept. The log has it for ever."""
TEXT_BYTES_MAX = 300_000
"""Bytes of a run's request and data: the command must fit one record together with its definition."""
