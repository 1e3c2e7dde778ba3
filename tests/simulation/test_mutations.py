"""A broken product is found out: every mutation within a few seconds of seeds."""

import pytest

from tests.simulation.main import first_failure
from tests.simulation.mutations import MUTATIONS

ENOUGH_SEEDS = 1_000
"""Most are found among the first ten; the rarest needs some dozens."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_finds(name: str) -> None:
    with MUTATIONS[name]():
        failure = first_failure(range(ENOUGH_SEEDS))
    assert failure is not None, f"{name} was not found in {ENOUGH_SEEDS} seeds: {MUTATIONS[name].__doc__}"


def test_without_a_mutation_the_same_rules_hold() -> None:
    """The patches are gone when their context is left."""
    for mutation in MUTATIONS.values():
        with mutation():
            pass
    assert first_failure(range(50)) is None
