"""Planned stops of both owners under load, on a real broker: whatever was under way ends where it began."""

import pytest

from tests.chaos.campaign import Order
from tests.chaos.report import report
from tests.chaos.short import short_campaign

RUNS = 80
TARGETS = ("planned", "planned")
SEED = 7
RUN_TIMEOUT_S = 60.0
TIMEOUT_S = 150.0

pytestmark = pytest.mark.stack


async def test_a_rolling_restart_under_load_repeats_no_model_call_and_leaves_no_outcome_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order = Order(seed=SEED, runs=RUNS, rounds=1, targets=TARGETS, run_timeout_s=RUN_TIMEOUT_S)
    outcome = await short_campaign(order, caplog, timeout_s=TIMEOUT_S)
    text, figures = report(outcome), outcome.verdict.figures
    assert not outcome.verdict.violations, text
    assert figures.strikes == {"planned": 2}, text
    assert figures.claims["assigned"] > 8, text  # partitions moved: four at first, and when each of the two came back
    assert figures.interrupted_model_calls == 0, text
    assert figures.unknown_outcomes == 0, text
    assert figures.repeated_tool_calls == 0, text
