import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.campaign import Order, Outcome
from tests.chaos.checker import check
from tests.chaos.evidence import Probe, Sighting, Strike
from tests.chaos.reliability import page
from tests.chaos.result import Machine, percentiles, result_of
from tests.chaos.story_book import Log, good, to_its_end, until_the_call

MACHINE = Machine(
    processor="Z80", cores=2, memory_gb=64, system="Linux 6.1", python="3.11.7", kafka="4.1.1", postgres="18", load=0.1
)


def result(
    log: Log | None = None, *, brokers: int = 3, spoil: bool = False, reason: str = "assigned"
) -> dict[str, Any]:
    """Of a campaign in which an owner was killed once and taken over, and a write was refused."""
    options = log or Log()
    if log is None:
        until_the_call(options)
        claim = options.claim("runtime-2", reason)
        to_its_end(options, outcome="outcome_unknown")
    if spoil:
        options.effects *= 2
    evidence = replace(
        options.evidence(),
        strikes=(Strike(target="runtime", process="runtime-1", at_s=10.0, back_s=12.0),),
        sightings=(
            Sighting(partition=0, first=0, last=claim - 1, at_s=9.9),
            Sighting(partition=0, first=claim, last=claim, at_s=11.0),
            Sighting(partition=0, first=claim + 1, last=len(options.events) - 1, at_s=11.5),
        )
        if log is None
        else (),
        probes=(Probe(status=503, code="log_unavailable", took_s=5.0),),
    )
    order = Order(seed=7, runs=200, rounds=2, targets=("runtime",), brokers=brokers, session_s=3.0)
    outcome = Outcome(
        order=order,
        seeds=(7, 8),
        took_s=61.0,
        verdict=check(evidence),
        met=Counter({"http: 503": 2}),
        own_ends=Counter(),
    )
    return result_of(outcome, MACHINE)


@pytest.mark.parametrize(
    ("values", "p50", "p99", "longest"),
    [([5.0], 5, 5, 5), ([1.0, 2.0], 1, 2, 2), ([float(n) for n in range(100, 0, -1)], 50, 99, 100)],
)
def test_percentiles_are_values_that_were_measured(values: list[float], p50: int, p99: int, longest: int) -> None:
    assert percentiles(values) == {"count": len(values), "p50": p50, "p99": p99, "max": longest}


def test_without_values_there_are_no_percentiles() -> None:
    assert percentiles([]) == {"count": 0}


def test_a_result_survives_a_file() -> None:
    actual = result()
    assert json.loads(json.dumps(actual)) == actual


def test_a_take_over_is_told_by_its_claim_and_by_its_first_event() -> None:
    actual = result()
    assert actual["claimed_ms"]["group"] == {"count": 1, "p50": 1000, "p99": 1000, "max": 1000}
    assert actual["taken_over_ms"]["group"] == {"count": 1, "p50": 1500, "p99": 1500, "max": 1500}
    assert actual["claimed_ms"]["standby"] == actual["taken_over_ms"]["standby"] == {"count": 0}
    assert actual["refused_ms"]["p99"] == 5000


def test_this_machine_knows_itself() -> None:
    machine = Machine.this()
    assert machine.cores > 0
    assert machine.memory_gb > 0
    assert machine.processor
    assert machine.kafka.split(".")[0] == "4"


def test_the_page_names_every_violation() -> None:
    text = page([result(spoil=True)])
    assert "| done twice silently (goal 0) | **1** |" in text
    assert "* three brokers, doubled effect: r_one:1.0: its effect happened 2 times" in text


def test_without_a_take_over_there_is_a_dash() -> None:
    assert "claimed again | - |" in page([result(good())])
