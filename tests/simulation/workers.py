"""Many seeds in many processes, none of which lives long enough to have to collect garbage."""

import gc
import multiprocessing
from collections.abc import Callable, Iterable

from tests.simulation.seeds import Outcome, simulate, simulated

CHUNK_SEEDS = 50
"""Seeds a worker process takes at once: half a second of work."""
CHUNKS_A_PROCESS = 5
"""Then another process goes on: collecting a world's garbage would take a sixth of the time its seed took."""
WARM = "tests.simulation.warm"
TELL_EVERY_SEEDS = 40 * CHUNK_SEEDS


def first_of_many(first: int, count: int, jobs: int, say: Callable[[str], None] = lambda text: None) -> Outcome | None:
    """The first failure that one of so many processes finds; None when there is none."""
    chunks = [range(at, min(at + CHUNK_SEEDS, first + count)) for at in range(first, first + count, CHUNK_SEEDS)]
    done = 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([WARM])
    with context.Pool(jobs, initializer=_never_collect, maxtasksperchild=CHUNKS_A_PROCESS) as pool:
        # Leaving the pool ends what is under way.
        for failure in pool.imap_unordered(first_failure, chunks):
            if failure is not None:
                return failure
            done += CHUNK_SEEDS
            if done % TELL_EVERY_SEEDS == 0:
                say(f"{done} of {count} seeds")
    return None


def first_failure(seeds: Iterable[int]) -> Outcome | None:
    """The first outcome that breaks an invariant, in a process of first_of_many."""
    with simulated():
        return next((outcome for outcome in map(simulate, seeds) if outcome.violation is not None), None)


def _never_collect() -> None:
    """The process ends before its garbage is a burden: a quarter of a MB a seed."""
    gc.collect()
    gc.freeze()
    gc.disable()
