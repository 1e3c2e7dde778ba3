"""A broken product is found out: every mutation within a few seconds of seeds."""

from contextlib import closing

import pytest

from tests.simulation.main import run_seeds
from tests.simulation.mutations import MUTATIONS
from tests.simulation.seeds import Outcome

ENOUGH_SEEDS = 1_000
"""Most are found among the first ten; the rarest needs some hundreds."""

KNOWN_SEEDS = {
    "dense_seq_at_a_take_over": 14,
    "dense_seq_in_the_rows": 13,
    "lost_summaries_forgotten": 13,
    "deliveries_behind_the_row_forgotten": 410,
    "rows_behind_their_checkpoint": 124,
    "timers_of_resting_aggregates_forgotten": 10,
    "pin_ignored_on_recovery": 13,
    "two_actives": 13,
    "reducer_without_its_revision": 28,
    "command_id_of_an_attempt": 7,
    "timeout_told_as_failure": 45,
    "lease_not_returned": 120,
    "cursor_moved_before_the_result": 7,
    "lost_settlement_counts_as_taken": 120,
    "lease_forgotten": 224,
    "leases_of_replaced_owners": 127,
    "wait_asleep": 120,
    "wrong_clocks_believed": 50,
    "clock_set_back_fires_again": 397,
    "ends_forgotten": 67,
}
"""The seeds that found what the first few do not: tried first, and all others when they find nothing any more."""

MISFITS = ("TypeError", "AttributeError", "NameError")


def first_failure(seeds: range) -> Outcome | None:
    with closing(run_seeds(seeds)) as outcomes:
        return next((outcome for outcome in outcomes if outcome.violation is not None), None)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_finds(name: str) -> None:
    with MUTATIONS[name]():
        known = KNOWN_SEEDS.get(name, 0)
        failure = first_failure(range(known, known + 1)) or first_failure(range(ENOUGH_SEEDS))
    assert failure is not None, f"{name} was not found in {ENOUGH_SEEDS} seeds: {MUTATIONS[name].__doc__}"
    assert failure.violation is not None
    assert not any(error in failure.violation.text for error in MISFITS), (
        "the mutation does not fit the product of today"
    )


def test_without_a_mutation_the_same_rules_hold() -> None:
    """The patches are gone when their context is left."""
    for mutation in MUTATIONS.values():
        with mutation():
            pass
    assert first_failure(range(20)) is None
