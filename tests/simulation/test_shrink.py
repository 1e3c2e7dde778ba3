"""Shrinking keeps what the failure needs and nothing else."""

from tests.simulation.checker import Violation
from tests.simulation.seeds import Outcome
from tests.simulation.shrink import shrunk

FAULTS = tuple(f"fault {number}" for number in range(40))


def outcome_of(needed: frozenset[str], without: frozenset[str]) -> Outcome:
    """Fails when all of `needed` happen."""
    fired = tuple(name for name in FAULTS if name not in without)
    broken = Violation(kind="gap", text="", at_s=0.0) if needed <= set(fired) else None
    return Outcome(seed=1, violation=broken, fired=fired, wishes=(), events=0, virtual_s=0.0)


def test_only_the_faults_that_matter_are_left() -> None:
    needed = frozenset({"fault 3", "fault 17", "fault 39"})
    without, best = shrunk(outcome_of(needed, frozenset()), lambda seed, without: outcome_of(needed, without))
    assert set(best.fired) == needed
    assert without == frozenset(FAULTS) - needed


def test_a_failure_that_needs_no_fault_is_told_without_any() -> None:
    nothing: frozenset[str] = frozenset()
    _, best = shrunk(outcome_of(nothing, nothing), lambda seed, without: outcome_of(nothing, without))
    assert best.fired == ()


def test_another_broken_invariant_does_not_count_as_the_same() -> None:
    def run(seed: int, without: frozenset[str]) -> Outcome:
        kind = "gap" if "fault 5" not in without else "stuck"
        fired = tuple(name for name in FAULTS if name not in without)
        violation = Violation(kind=kind, text="", at_s=0.0)
        return Outcome(seed=seed, violation=violation, fired=fired, wishes=(), events=0, virtual_s=0.0)

    _, best = shrunk(run(1, frozenset()), run)
    assert best.fired == ("fault 5",)
