"""The folds of families, as the projection of entities takes them."""

import pytest

from docs.examples.counter.counter import FAMILY, Counter
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.projections.engine.entity_fold import FoldFailed
from loomlog.projections.entities import plain_seal
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.run_events import RunParked
from loomlog.services.families.entity_folds import entity_folds, entity_model, entity_seals

FOLD = entity_folds([FAMILY])["counter"]


def test_a_fold_begins_with_the_initial_state_and_gives_what_a_row_has():
    state = FOLD.evolve(FOLD.initial("counter:acme/a", 1), CounterIncremented(by=2, value=2), 500)
    summary = FOLD.summary(state)
    assert (summary.created_at_ms, summary.updated_at_ms, summary.due_ms, summary.is_over) == (500, 500, 0, False)
    assert FOLD.decode(summary.state) == state
    assert state.state == Counter(2)


def test_an_event_of_another_family_is_refused():
    with pytest.raises(FoldFailed, match=r"loom\.run\.events\.RunParked is no event of the family counter"):
        FOLD.evolve(FOLD.initial("counter:acme/a", 1), RunParked(since_turn=1), 500)


def test_bytes_that_are_no_state_are_refused():
    with pytest.raises(FoldFailed):
        FOLD.decode(b"{}")


def test_the_seals_are_those_of_the_installations_keys():
    assert entity_seals(None) == (plain_seal,)
    current, previous = entity_seals(SecretKey(keys=(b"a" * 32, b"b" * 32)))
    assert current(b"row") == entity_seals(SecretKey(keys=(b"a" * 32,)))[0](b"row")
    assert previous(b"row") == entity_seals(SecretKey(keys=(b"b" * 32,)))[0](b"row")
    assert len({seal(b"row") for seal in (current, previous, plain_seal)}) == 3


def test_the_model_has_the_families_of_the_process():
    assert "counter" not in entity_model(None).folds
