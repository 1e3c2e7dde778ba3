"""The short form of `make chaos`: one kill -9 of each process in the middle of 200 runs, judged from the log."""

import pytest

from tests.chaos.campaign import Order
from tests.chaos.report import report
from tests.chaos.short import short_campaign

RUNS = 200
TARGETS = ("runtime", "api", "projector", "broker", "zombie")
SEED = 4
RUN_TIMEOUT_S = 60.0
"""A run that is stuck is let go and named by the checker, before the test's own time is up."""
TIMEOUT_S = 180.0
"""It takes a minute, ten seconds of that for the start of the stack."""

pytestmark = pytest.mark.stack


async def test_whatever_is_killed_in_the_middle_of_200_runs_none_is_lost_and_nothing_happens_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order = Order(seed=SEED, runs=RUNS, rounds=1, targets=TARGETS, run_timeout_s=RUN_TIMEOUT_S)
    outcome = await short_campaign(order, caplog, timeout_s=TIMEOUT_S)
    text, figures = report(outcome), outcome.verdict.figures
    print(text)
    assert not outcome.verdict.violations, text
    assert figures.strikes == dict.fromkeys(TARGETS, 1), text
    assert figures.runs >= RUNS, text
    assert figures.ruled_calls["allow"], text
    assert figures.ruled_calls["deny"], text
    assert figures.notes, text
    # The strikes hit work: calls were lost with their owners, and a zombie wrote what nobody believed.
    assert figures.interrupted_model_calls, text
    assert figures.unknown_outcomes, text
    assert figures.stale, text
