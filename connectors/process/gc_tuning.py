"""How often a busy process looks for reference cycles, and how long a look may take."""

import gc

GC_THRESHOLDS = (10_000, 2, 200)
"""New objects between looks, after how many of them those that stayed are looked at again, and after how many of these
all are. Folding makes thousands of values a second that reference counting frees; at Python's default of 700 a tenth to
a fifth of the time went into looking. A look stops the process for 1.2 microseconds an object: 12 ms for the new ones,
35 ms for those that stayed. The first number counts what is left of the new ones after the frees, of old ones too, so
that more than it may be there; what lives long should therefore be plain values
(services/application/streaming/items.py). Values (schemas/records.py) are not looked at, the tuples in them are."""


def tune_gc() -> None:
    """Call it once everything that lives as long as the process is there: that is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
