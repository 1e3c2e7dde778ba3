"""What every seed needs and no seed changes is made when this is imported: codecs, statements, parsed schemas.

The server from which worker processes are forked imports it (workers.py), so that none of them takes the fifth of a
second that it costs. Its garbage is collected here for the same reason.
"""

import gc

from tests.simulation.seeds import simulate, simulated

WARM_SEEDS = range(4)
"""Enough to have met every kind of record and statement that is common."""

with simulated():
    for _seed in WARM_SEEDS:
        simulate(_seed)
gc.collect()
gc.freeze()
