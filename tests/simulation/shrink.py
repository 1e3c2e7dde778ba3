"""The shortest story: of all faults and wishes of a failing seed, the few without which it does not fail.

Delta debugging over names (faults.py): leave out halves, then quarters, then single ones, and keep what still breaks
the same invariant. Leaving one out changes what comes after it, so a smaller set is tried, never reckoned; each trial
is a whole deterministic run, some milliseconds long.
"""

from collections.abc import Callable, Sequence

from tests.simulation.seeds import Outcome, simulate

MOST_TRIALS = 2_000
"""A few seconds; the story is then as short as it got."""


def shrunk(
    failed: Outcome, run: Callable[[int, frozenset[str]], Outcome] | None = None
) -> tuple[frozenset[str], Outcome]:
    """The names to leave out, and the outcome without them, which breaks the same invariant."""
    assert failed.violation is not None, f"seed {failed.seed} did not fail"
    attempt = run or (lambda seed, without: simulate(seed, without=without))
    kind, seed = failed.violation.kind, failed.seed
    without: frozenset[str] = frozenset()
    best, trials = failed, 0
    size = max(1, len(_names(best)) // 2)
    while trials < MOST_TRIALS:
        progressed = False
        names = _names(best)
        at = 0
        while at < len(names) and trials < MOST_TRIALS:
            leave = without | set(names[at : at + size])
            trials += 1
            outcome = attempt(seed, leave)
            if outcome.violation is not None and outcome.violation.kind == kind:
                without, best, progressed = leave, outcome, True
                # What happens now is another run with other faults: their names are looked at anew.
                names = _names(best)
            else:
                at += size
        if size == 1 and not progressed:
            break
        size = size if progressed and size == 1 else max(1, size // 2)
    return without, best


def _names(outcome: Outcome) -> Sequence[str]:
    return (*outcome.fired, *outcome.wishes)
