"""How often a busy process looks for reference cycles."""

import gc

COLLECT_EVERY = (50_000, 20, 100)
"""Objects made between looks, and how often the older ones are looked at. Folding makes thousands of values a second
that reference counting frees; at Python's default of 700 a tenth to a fifth of the time went into looking."""


def collect_rarely() -> None:
    """Call it once everything that lives as long as the process is there: that is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)
