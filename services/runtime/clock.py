"""Clock of this process. The core has none: it receives times in commands.

Before: main.py passes it to every component that needs it. After: no other module reads the time of an event from the
operating system.
"""

import time


def clock_ms() -> int:
    """Return the current UTC time in milliseconds."""
    return time.time_ns() // 1_000_000
