"""A run tells the limits it meets once, and ends at one that forbids its next call."""

from loomlog.schemas.generated.run_events import LimitReached, RunFailed, RunRefused
from loomlog.schemas.generated.values import LimitNotice
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import BudgetExceeded
from loomlog.services.core.run.state import Ended
from tests.services.core.run.given import NOW, Run, answered, begun, calls, kinds, parked, returned, start

SOFT = LimitNotice(scope="user", scope_id="alice", severity="soft", used=18, limit=10, message="soft")
HARD = LimitNotice(scope="user", scope_id="alice", severity="hard", used=18, limit=10, message="no more")
WIDER = LimitNotice(scope="tenant", scope_id="acme", severity="soft", used=50, limit=50, message="wide")


def over(turn: int = 1, attempt: int = 1) -> BudgetExceeded:
    return BudgetExceeded(at_ms=NOW, turn=turn, attempt=attempt, notice=HARD)


def test_a_soft_limit_is_told_after_the_answer_that_reached_it_and_the_run_goes_on() -> None:
    run = begun()
    events = run.give(answered(run.state, "done", notices=(SOFT,)))
    assert kinds(events) == ["ModelReplied", "LimitReached", "RunCompleted"]
    assert isinstance(events[1], LimitReached)
    assert events[1].notice == SOFT


def test_each_scope_and_severity_is_told_once() -> None:
    run = begun()
    run.give(answered(run.state, "", *calls("A"), notices=(SOFT, WIDER)))
    run.give(returned(run.state, 0))
    later = replace(SOFT, used=99)
    assert kinds(run.give(answered(run.state, "done", notices=(later, WIDER)))) == ["ModelReplied", "RunCompleted"]


def test_a_call_that_may_not_be_made_ends_the_run() -> None:
    run = begun()
    events = run.give(over())
    assert kinds(events) == ["ModelCallFailed", "LimitReached", "RunFailed"]
    assert isinstance(events[-1], RunFailed)
    assert events[-1].code == "token_limit_exceeded"
    assert isinstance(run.state, Ended)


def test_a_refusal_of_another_attempt_changes_nothing() -> None:
    assert begun().give(over(attempt=2)) == []
    assert parked().give(over()) == []


def test_a_run_does_not_begin_when_nothing_is_left() -> None:
    events = Run().give(replace(start(), exhausted_limit=HARD))
    assert kinds(events) == ["RunRefused"]
    refusal = events[0]
    assert isinstance(refusal, RunRefused)
    assert (refusal.code, refusal.limit) == ("token_limit_exceeded", HARD)


def test_what_is_wrong_with_the_request_is_said_before_the_limit() -> None:
    order = start()
    command = replace(order.command, prompt="", segments=())
    refusal = Run().give(replace(order, command=command, exhausted_limit=HARD))[0]
    assert isinstance(refusal, RunRefused)
    assert refusal.code == "bad_request"
