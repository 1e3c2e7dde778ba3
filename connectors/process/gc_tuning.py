"""Garbage collection settings of a busy process."""

import gc

GC_THRESHOLDS = (10_000, 2, 200)
"""Allocations between collections of new objects, and numbers of collections between those of the middle and the old
generation. Folding makes thousands of values a second that reference counting frees; at Python's default of 700,
collection took a tenth to a fifth of the time. A collection stops the process for 1.2 microseconds an object: 12 ms for
the new ones, 35 ms for the middle generation. The first number counts allocations minus frees, of old objects too, so
there may be more than that. Long-lived data should therefore be plain values (services/application/streaming/items.py).
Values (schemas/records.py) are not tracked by the collector, the tuples in them are.
"""


def tune_gc() -> None:
    """Apply the settings and freeze existing objects. Call it once everything long-lived is loaded: it is not scanned
    again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
