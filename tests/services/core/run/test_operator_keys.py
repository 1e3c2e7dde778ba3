"""Runs that may not spend the operator's provider keys: stamped once, and a call without a key ends them."""

from typing import Any

import pytest

from loomlog.schemas.generated.run_events import RunFailed, RunStarted
from loomlog.schemas.generated.values import AgentDefinition, ModelChoice
from loomlog.services.core.run.commands import Alternative
from loomlog.services.core.run.turns.fallback import OPERATOR_KEY_RESTRICTED
from tests.services.core.run.given import Run, begun, erred, kinds, start
from tests.services.core.run.lifecycle.test_fork import forked, origin

ELSEWHERE = ModelChoice(provider="other", model="small")


@pytest.mark.parametrize("restricted", [True, False])
def test_a_run_keeps_what_its_order_says(restricted: bool) -> None:
    run = Run()
    started, *_ = run.give(start(operator_key_restricted=restricted, credentials=("ACME_API_KEY",)))
    assert isinstance(started, RunStarted)
    assert started.options.operator_key_restricted is restricted
    assert run.live.facts.options.operator_key_restricted is restricted
    assert run.live.facts.options.credentials == ("ACME_API_KEY",)


def test_a_fork_is_what_its_own_order_says_and_not_what_its_origin_was() -> None:
    assert not forked(origin(begun(operator_key_restricted=True)), "else").live.facts.options.operator_key_restricted
    assert forked(origin(begun()), "else", operator_key_restricted=True).live.facts.options.operator_key_restricted


def test_a_call_that_may_not_be_made_ends_the_run_although_it_could_go_elsewhere_and_retry() -> None:
    both: dict[str, Any] = {"candidates": (ModelChoice(provider="acme", model="large"), ELSEWHERE)}
    run = begun(
        AgentDefinition(name="h", provider="acme", model="large", retry_attempts=3, fallback_on_error=True, **both)
    )
    others = (Alternative(choice=ELSEWHERE, sees_images=True),)
    events = run.give(erred(run.state, OPERATOR_KEY_RESTRICTED, alternatives=others))
    assert kinds(events) == ["ModelCallFailed", "RunFailed"]
    failed = events[-1]
    assert isinstance(failed, RunFailed)
    assert failed.code == "operator_key_restricted"
