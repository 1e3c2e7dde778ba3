"""The fold, and the properties a rebuild relies on."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.generated.stream_records import CostTally, ModelTally, RunTally, StatusTally, ToolTally
from loomlog.schemas.records import replace
from loomlog.services.insights.minute_windows import (
    CLOCK_SKEW_MS,
    DURATION_BOUNDS_MS,
    EMPTY,
    MAX_NAME_CHARACTERS,
    MAX_NAMES,
    MAX_TERMS,
    MINUTE_MS,
    OTHER,
    InvalidTally,
    MinuteTotals,
    Rate,
    TallyFilter,
    TallyOutcome,
    minute_of,
    minute_start_ms,
)
from tests.services.insights.given import NOW_MS, tally

HISTORY = 15


def admission() -> TallyFilter:
    return TallyFilter(history_minutes=HISTORY)


def outcomes(tallies: list[RunTally], now_ms: int = NOW_MS) -> list[TallyOutcome]:
    tally_filter = admission()
    return [tally_filter.classify(item, now_ms) for item in tallies]


# --- what counts -----------------------------------------------------------------------------------------------------


def test_a_tally_counts_once() -> None:
    assert outcomes([tally(), tally(), tally(offset=11)]) == [
        TallyOutcome.COUNTED,
        TallyOutcome.DUPLICATE,
        TallyOutcome.COUNTED,
    ]


def test_the_same_offset_of_another_partition_is_another_tally() -> None:
    assert outcomes([tally(partition=0), tally(partition=1)]) == [TallyOutcome.COUNTED, TallyOutcome.COUNTED]


def test_a_tally_of_a_fenced_owner_after_the_next_claim_is_stale() -> None:
    new_owner, old_owner_late = tally(term=20, offset=21), tally(term=5, offset=22)
    assert outcomes([new_owner, old_owner_late]) == [TallyOutcome.COUNTED, TallyOutcome.STALE]


def test_a_tally_of_a_former_owner_before_the_next_claim_counts_when_read_later() -> None:
    new_owner, old_owner_in_time = tally(term=20, offset=21), tally(term=5, offset=19)
    assert outcomes([new_owner, old_owner_in_time]) == [TallyOutcome.COUNTED, TallyOutcome.COUNTED]


def test_a_claim_between_two_others_fences_as_well() -> None:
    assert outcomes([tally(term=20, offset=40), tally(term=10, offset=11), tally(term=5, offset=15)]) == [
        TallyOutcome.COUNTED,
        TallyOutcome.COUNTED,
        TallyOutcome.STALE,
    ]


def test_a_claim_of_another_partition_makes_nothing_stale() -> None:
    assert outcomes([tally(partition=1, term=20, offset=21), tally(partition=0, term=5, offset=22)])[1] is (
        TallyOutcome.COUNTED
    )


def test_more_claims_than_are_remembered_forget_the_oldest() -> None:
    tally_filter = admission()
    for term in range(100, 100 + 2 * (MAX_TERMS + 5), 2):
        tally_filter.classify(tally(term=term, offset=term + 1), NOW_MS)
    assert len(tally_filter._terms[0]) == MAX_TERMS
    assert tally_filter.classify(tally(term=5, offset=10_000), NOW_MS) is TallyOutcome.STALE


def test_a_run_of_a_forgotten_minute_is_late() -> None:
    oldest_kept = minute_start_ms(NOW_MS) - HISTORY * MINUTE_MS
    assert outcomes([tally(ended_at_ms=oldest_kept), tally(offset=11, ended_at_ms=oldest_kept - 1)]) == [
        TallyOutcome.COUNTED,
        TallyOutcome.LATE,
    ]


def test_a_clock_that_is_set_back_restores_no_dropped_minute() -> None:
    tally_filter, old = admission(), tally(ended_at_ms=NOW_MS)
    assert tally_filter.classify(old, NOW_MS) is TallyOutcome.COUNTED
    tally_filter.classify(tally(offset=99), NOW_MS + (HISTORY + 2) * MINUTE_MS)
    assert tally_filter.classify(old, NOW_MS) is TallyOutcome.LATE


def test_a_run_from_the_future_is_early_and_one_within_the_skew_of_clocks_counts() -> None:
    assert outcomes(
        [tally(ended_at_ms=NOW_MS + CLOCK_SKEW_MS), tally(offset=11, ended_at_ms=NOW_MS + CLOCK_SKEW_MS + 1)]
    ) == [TallyOutcome.COUNTED, TallyOutcome.EARLY]


def test_more_tallies_in_a_minute_than_are_remembered_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.insights.minute_windows.MAX_TALLIES_PER_MINUTE", 2)
    assert outcomes([tally(offset=n) for n in (10, 11, 12)] + [tally(offset=10)]) == [
        TallyOutcome.COUNTED,
        TallyOutcome.COUNTED,
        TallyOutcome.OVERFLOW,
        TallyOutcome.DUPLICATE,
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": -1}, "partition is -1"),
        ({"partition": 1024}, "partition is 1024"),
        ({"term": -1}, "term is -1"),
        ({"term": 10, "offset": 10}, "term is 10 and offset 10"),
        ({"ended_at_ms": -5}, "ended_at_ms is -5"),
        ({"input_tokens": -1}, "count is negative"),
        ({"took_ms": -1}, "count is negative"),
        ({"tools": (ToolTally(name="Read", calls=1, errors=-1),)}, "count is negative"),
        ({"models": (ModelTally(provider="p", model="m", calls=-1, errors=0),)}, "count is negative"),
        ({"costs": (CostTally(currency="USD", micros=-1),)}, "count is negative"),
        ({"runs": 0}, "0 durations, 0 runs by status and 0 by agent"),
        ({"statuses": (StatusTally(status="completed", runs=2),)}, "1 durations, 2 runs by status and 1 by agent"),
        ({"agents": ()}, "1 durations, 1 runs by status and 0 by agent"),
    ],
)
def test_an_impossible_value_is_refused_and_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTally, match=message):
        admission().classify(tally(**changes), NOW_MS)


# --- what it adds ----------------------------------------------------------------------------------------------------


def test_a_failed_run_is_an_error_of_its_agent_and_a_cancelled_one_is_not() -> None:
    added = [minute_of(tally(status=status)) for status in ("completed", "failed", "cancelled")]
    total = added[0].plus(added[1]).plus(added[2])
    assert total.agents == {("acme", "writer"): Rate(3, 1)}
    assert total.statuses == {("completed",): 1, ("failed",): 1, ("cancelled",): 1}


def test_rows_of_one_name_are_summed() -> None:
    tools = (ToolTally(name="Read", calls=2, errors=1), ToolTally(name="Read", calls=1, errors=0))
    models = (
        ModelTally(provider="p", model="m", calls=3, errors=0),
        ModelTally(provider="p", model="m", calls=1, errors=1),
    )
    added = minute_of(tally(tools=tools, models=models))
    assert added.models == {("p", "m"): Rate(4, 1)}
    assert added.tools == {("Read",): Rate(3, 1)}


def test_all_runs_of_a_tally_are_in_the_minute_each_with_its_duration() -> None:
    added = minute_of(tally(runs=3, durations_ms=(5, 2_000, 2_000)))
    assert added.runs == added.durations.total == 3
    assert (added.durations.counts[0], max(added.durations.counts)) == (1, 2)


def test_two_currencies_are_never_added_to_each_other() -> None:
    both = minute_of(tally()).plus(minute_of(tally(costs=(CostTally(currency="EUR", micros=7),))))
    assert both.cost_micros == {("USD",): 300, ("EUR",): 7}


def test_names_beyond_the_bound_are_summed_as_other() -> None:
    total = EMPTY
    for number in range(MAX_NAMES + 3):
        total = total.plus(minute_of(tally(agent=f"a{number}")))
    assert len(total.agents) == MAX_NAMES + 1
    assert total.agents[(OTHER, OTHER)] == Rate(3, 0)
    assert total.runs == MAX_NAMES + 3


def test_a_long_name_is_truncated() -> None:
    ((_, agent),) = minute_of(tally(agent="x" * 5_000)).agents
    assert len(agent) == MAX_NAME_CHARACTERS


def test_percentiles_lie_in_the_bucket_of_the_true_value() -> None:
    total = EMPTY
    for took_ms in range(1, 1_001):
        total = total.plus(minute_of(tally(took_ms=took_ms)))
    p50, p95 = total.durations.percentile_ms(0.50), total.durations.percentile_ms(0.95)
    assert p50 == pytest.approx(500, rel=0.05)
    assert p95 == pytest.approx(950, rel=0.05)


def test_percentiles_without_runs_are_none_and_above_the_last_bound_that_bound() -> None:
    assert EMPTY.durations.percentile_ms(0.5) is None
    assert minute_of(tally(took_ms=NOW_MS)).durations.percentile_ms(0.95) == DURATION_BOUNDS_MS[-1]


# --- properties ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
TALLIES = st.builds(
    tally,
    partition=st.integers(0, 2),
    term=st.just(0),
    offset=st.integers(1, 30),
    runs=st.integers(1, 4),
    agent=NAMES,
    status=st.sampled_from(["completed", "failed", "cancelled"]),
    took_ms=st.integers(0, 10**7),
    ended_at_ms=st.integers(NOW_MS - 20 * MINUTE_MS, NOW_MS + 2 * CLOCK_SKEW_MS),
    input_tokens=st.integers(0, 1_000),
    costs=st.builds(CostTally, currency=st.sampled_from(["USD", "EUR"]), micros=st.integers(0, 1_000)).map(
        lambda cost: (cost,)
    ),
    models=st.lists(
        st.builds(ModelTally, provider=NAMES, model=NAMES, calls=st.integers(0, 5), errors=st.integers(0, 5)),
        max_size=3,
    ).map(tuple),
    tools=st.lists(st.builds(ToolTally, name=NAMES, calls=st.integers(0, 5), errors=st.integers(0, 5)), max_size=3).map(
        tuple
    ),
)


@st.composite
def logs(draw: st.DrawFn) -> list[RunTally]:
    """Tallies by the offset at which their last run ended, in a log of partitions with claims."""
    tallies: dict[tuple[int, int], RunTally] = {}
    for partition in range(draw(st.integers(1, 3))):
        term = before = 0
        for offset in range(1, draw(st.integers(2, 25))):
            match draw(st.sampled_from(["claim", "end", "zombie", "other"])):
                case "claim":
                    before, term = term, offset
                case "end":
                    tallies[partition, offset] = replace(draw(TALLIES), partition=partition, term=term, offset=offset)
                case "zombie" if before != term:
                    tallies[partition, offset] = replace(draw(TALLIES), partition=partition, term=before, offset=offset)
                case _:
                    pass
    return list(tallies.values())


def folded(
    tallies: list[RunTally], tally_filter: TallyFilter, now_ms: int = NOW_MS
) -> dict[tuple[int, int], MinuteTotals]:
    minutes: dict[tuple[int, int], MinuteTotals] = {}
    for item in tallies:
        if tally_filter.classify(item, now_ms) is TallyOutcome.COUNTED:
            cell = (item.partition, minute_start_ms(item.ended_at_ms))
            minutes[cell] = minutes.get(cell, EMPTY).plus(minute_of(item))
    return minutes


def knowing_all_claims(tallies: list[RunTally]) -> TallyFilter:
    tally_filter = admission()
    for item in tallies:
        tally_filter._record_term(item.partition, item.term)
    return tally_filter


@given(st.lists(TALLIES, max_size=8), st.lists(TALLIES, max_size=8), st.lists(TALLIES, max_size=8))
def test_adding_minutes_is_associative_and_commutative(a: list[RunTally], b: list[RunTally], c: list[RunTally]) -> None:
    def total(tallies: list[RunTally]) -> MinuteTotals:
        totals = EMPTY
        for item in tallies:
            totals = totals.plus(minute_of(item))
        return totals

    x, y, z = total(a), total(b), total(c)
    assert x.plus(y).plus(z) == x.plus(y.plus(z)) == total(a + b + c)
    assert x.plus(y) == y.plus(x)
    assert x.plus(EMPTY) == x


@settings(max_examples=200)
@given(logs(), st.randoms(use_true_random=False), st.integers(0, 40))
def test_reading_again_in_any_order_and_any_number_of_times_gives_the_same_minutes(
    tallies: list[RunTally], chance: Random, repeated: int
) -> None:
    again = tallies + tallies[:repeated]
    chance.shuffle(again)
    assert folded(again, knowing_all_claims(tallies)) == folded(tallies, knowing_all_claims(tallies))


@settings(max_examples=200)
@given(logs())
def test_exactly_the_tallies_that_the_term_rule_accepts_count(tallies: list[RunTally]) -> None:
    tally_filter = knowing_all_claims(tallies)
    claims = {(item.partition, item.term) for item in tallies}
    for item in tallies:
        fenced = any(item.term < term < item.offset for partition, term in claims if partition == item.partition)
        assert (tally_filter.classify(item, NOW_MS) is TallyOutcome.STALE) == fenced


@given(st.lists(TALLIES, max_size=40))
def test_every_run_of_a_tally_that_counts_is_in_one_minute_and_no_other_run_is(
    tallies: list[RunTally],
) -> None:
    tally_filter = admission()
    judged = [tally_filter.classify(item, NOW_MS) for item in tallies]
    runs = sum(
        len(item.durations_ms) for item, outcome in zip(tallies, judged, strict=True) if outcome is TallyOutcome.COUNTED
    )
    minutes = folded(tallies, admission())
    assert sum(minute.runs for minute in minutes.values()) == runs
    assert all(m.durations.total == m.runs == sum(m.statuses.values()) for m in minutes.values())
