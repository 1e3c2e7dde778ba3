"""Who is tried again, after how long, and when a turn has failed (runtime parity 1.8)."""

from dataclasses import dataclass

import pytest

from loomlog.connectors.errors import TRANSIENT_KINDS
from loomlog.schemas.generated.run_events import ModelCallFailed, ModelCallRequested, RunFailed
from loomlog.schemas.records import replace
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ModelFailed
from loomlog.services.core.run.state import AwaitingModel
from tests.services.core.run.given import DEFINITION, NOW, Run, answered, at_tools, begun, erred, recover, returned

SECOND = 1_000
MINUTE = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed call of a turn."""

    kind: str = "overloaded"
    transient: bool = True
    asked_ms: int = 0
    waits_for_rate_limits: bool = True


def waits(retry_attempts: int, *failures: Failure) -> list[int]:
    """The wait after each failure in turn; -1 at the end when the last one failed the run."""
    run = begun(replace(DEFINITION, retry_attempts=retry_attempts))
    at_ms = NOW
    actual: list[int] = []
    for failure in failures:
        assert isinstance(run.state, AwaitingModel), "the run ended too early"
        at_ms = max(at_ms, run.state.not_before_ms)
        events = run.give(_erred(run, failure, at_ms))
        assert isinstance(events[0], ModelCallFailed)
        if isinstance(events[1], RunFailed):
            actual.append(-1)
        else:
            assert isinstance(events[1], ModelCallRequested)
            actual.append(events[1].not_before_ms - at_ms)
    return actual


def _erred(run: Run, failure: Failure, at_ms: int) -> ModelFailed:
    return erred(
        run.state,
        failure.kind,
        transient=failure.transient,
        at_ms=at_ms,
        retry_after_ms=failure.asked_ms,
        retries_rate_limits=failure.waits_for_rate_limits,
    )


LIMITED = Failure("rate_limited")
MOCK_LIMITED = Failure("rate_limited", waits_for_rate_limits=False)
NO_PLACE = Failure(PROVIDER_FULL, asked_ms=5_000)
MOCK_NO_PLACE = Failure(PROVIDER_FULL, asked_ms=5_000, waits_for_rate_limits=False)
STALE = Failure("stale")
BUSY = Failure("overloaded")
MOCK_BUSY = Failure("overloaded", waits_for_rate_limits=False)


@pytest.mark.parametrize(
    ("retry_attempts", "failures", "expected"),
    [
        pytest.param(0, [BUSY], [-1], id="no retries by default"),
        pytest.param(2, [BUSY] * 3, [100, 300, -1], id="as many retries as the definition says"),
        pytest.param(5, [BUSY] * 6, [100, 300, 900, 2_700, 8_100, -1], id="three times longer each time"),
        pytest.param(99, [BUSY] * 6, [100, 300, 900, 2_700, 8_100, -1], id="never more than five"),
        pytest.param(5, [Failure("invalid", transient=False)], [-1], id="a permanent failure is not retried"),
        pytest.param(2, [Failure(asked_ms=5_000), BUSY], [5_000, 300], id="a longer wait that is asked for is kept"),
        pytest.param(2, [Failure(asked_ms=50), BUSY], [100, 300], id="a shorter wait is not"),
        pytest.param(5, [Failure(asked_ms=6 * MINUTE)], [-1], id="nobody waits longer than five minutes"),
        pytest.param(5, [Failure(asked_ms=3 * MINUTE)] * 2, [180_000, -1], id="all waits of a turn together"),
        pytest.param(0, [LIMITED], [10 * SECOND], id="a rate limit is waited for without retries too"),
        pytest.param(0, [NO_PLACE] * 5, [5_000] * 4 + [-1], id="a place of the provider is waited for likewise"),
        pytest.param(0, [MOCK_NO_PLACE], [5_000], id="whatever the provider is"),
        pytest.param(0, [LIMITED] * 5, [10_000, 20_000, 40_000, 60_000, -1], id="five rate limits fail the turn"),
        pytest.param(
            0, [Failure("rate_limited", asked_ms=3_000)] * 2, [3_000, 3_000], id="the provider's own wait comes first"
        ),
        pytest.param(0, [Failure("rate_limited", asked_ms=300_000)], [300_000], id="exactly five minutes is allowed"),
        pytest.param(0, [Failure("rate_limited", asked_ms=300_001)], [-1], id="more is not"),
        pytest.param(
            0,
            [Failure("rate_limited", asked_ms=100_000)] * 4,
            [100_000, 100_000, 100_000, -1],
            id="five minutes for all rate limits of a turn",
        ),
        pytest.param(1, [LIMITED, BUSY, LIMITED], [10_000, 100, 20_000], id="rate limits do not use up retries"),
        pytest.param(1, [BUSY, LIMITED, BUSY], [100, 10_000, -1], id="nor retries rate limits"),
        pytest.param(0, [MOCK_LIMITED], [-1], id="a driver that does not wait fails at once"),
        pytest.param(2, [MOCK_LIMITED] * 3, [100, 300, -1], id="or uses its retries"),
        pytest.param(2, [MOCK_LIMITED, MOCK_BUSY, MOCK_BUSY], [100, 300, -1], id="counted together with others"),
        pytest.param(0, [STALE], [0], id="a connection that was closed meanwhile is no try of the run's"),
        pytest.param(0, [STALE, STALE], [0, -1], id="the second in a row is"),
        pytest.param(2, [STALE, BUSY, BUSY], [0, 300, -1], id="with retries it is one of them"),
        pytest.param(0, [Failure("rate_limited", transient=False)], [-1], id="a permanent rate limit is permanent"),
    ],
)
def test_waits_of_a_turn(retry_attempts: int, failures: list[Failure], expected: list[int]) -> None:
    assert waits(retry_attempts, *failures) == expected


@pytest.mark.parametrize("kind", sorted(TRANSIENT_KINDS - {"rate_limited", PROVIDER_FULL, "stale"}))
def test_whatever_a_provider_does_uses_up_retries(kind: str) -> None:
    assert waits(2, *[Failure(kind)] * 3) == [100, 300, -1]


def test_a_new_turn_begins_with_all_its_retries() -> None:
    run = at_tools("A", definition=replace(DEFINITION, retry_attempts=1))
    run.give(returned(run.state, 0))
    for _ in range(2):
        assert isinstance(run.give(erred(run.state, "overloaded", transient=True))[1], ModelCallRequested)
        assert isinstance(run.state, AwaitingModel)
        run.give(answered(run.state, "", *at_tools("A").state.requested_calls))  # type: ignore[union-attr]  # it awaits tools
        run.give(returned(run.state, 0))


def test_a_wait_that_a_lost_owner_began_goes_on_and_is_not_counted_twice() -> None:
    run = begun()
    run.give(erred(run.state, "rate_limited", transient=True, retry_after_ms=100_000))
    assert isinstance(run.state, AwaitingModel)
    due = run.state.not_before_ms
    for after in (1_000, 2_000, 99_000):
        run.give(recover(at_ms=NOW + after))
        assert isinstance(run.state, AwaitingModel)
        assert (run.state.not_before_ms, run.state.waited_ms) == (due, 100_000)
    events = run.give(erred(run.state, "rate_limited", transient=True, at_ms=due, retry_after_ms=200_000))
    assert isinstance(events[1], ModelCallRequested)


def test_lost_owners_do_not_use_up_retries() -> None:
    run = begun(replace(DEFINITION, retry_attempts=1))
    for _ in range(3):
        run.give(recover())
    assert isinstance(run.give(erred(run.state, "overloaded", transient=True))[1], ModelCallRequested)
    assert isinstance(run.give(erred(run.state, "overloaded", transient=True))[1], RunFailed)


def test_the_bounds_agree_with_one_another() -> None:
    assert len(limits.RETRY_BACKOFF_MS) >= limits.RETRY_ATTEMPTS_MAX
    assert len(limits.RATE_LIMIT_BACKOFF_MS) >= limits.RATE_LIMIT_ATTEMPTS - 1
    assert sum(limits.RATE_LIMIT_BACKOFF_MS) <= limits.RETRY_WAIT_MAX_MS


def test_a_run_that_never_gets_a_place_ends_with_the_code_clients_know_and_lost_no_iteration() -> None:
    run = begun(replace(DEFINITION, max_iterations=1))
    for _ in range(limits.RATE_LIMIT_ATTEMPTS):
        assert isinstance(run.state, AwaitingModel)
        events = run.give(_erred(run, NO_PLACE, max(NOW, run.state.not_before_ms)))
        assert isinstance(events[0], ModelCallFailed)
        assert not events[0].takes_iteration
    assert isinstance(events[-1], RunFailed)
    assert events[-1].code == "provider_concurrency_exhausted"
