"""Every family keeps the contract of the kit."""

import pytest

from tests.services.families.contract import checks, loop_checks
from tests.services.families.contract.cases import CASES, Case

families = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
OF_THE_KIT = [case for case in CASES if case.name == "counter" or case.name.startswith("notebook")]
FAULTS = [
    (kind, by_topic, shared)
    for kind in ("dies before", "dies after", "unacknowledged")
    for by_topic in (False, True)
    for shared in (False, True)
]
FAULTS_OF_FAMILIES = [
    ("dies before", True, False),
    ("dies after", True, True),
    ("unacknowledged", False, True),
]
"""Each kind, both ways of a command, one owner and two: what else there is to it is the kit's."""
FAULTS_OF_CASES = [
    pytest.param(
        case, *fault, id=f"{case.name}-{fault[0]}-{'by topic' if fault[1] else 'in memory'}-{1 + fault[2]} owners"
    )
    for case in CASES
    for fault in (FAULTS if case in OF_THE_KIT else FAULTS_OF_FAMILIES)
]
RULE_CHECKS = (
    checks.snapshots_and_tails_are_the_full_fold,
    checks.states_round_trip,
    checks.events_round_trip,
    checks.rules_are_deterministic,
    checks.every_command_has_an_answer,
    checks.replies_follow_from_the_events_alone,
    checks.sends_follow_from_the_event,
    checks.items_follow_from_state_and_event,
    checks.timers_fire_once,
)
LOOP_CHECKS = (
    loop_checks.repeated_commands_have_one_decision,
    loop_checks.another_tenant_has_its_own_aggregates,
    loop_checks.misplaced_commands_are_dead_letters,
    loop_checks.rows_and_snapshots_continue_as_the_full_fold,
    loop_checks.items_are_those_of_the_full_fold,
    loop_checks.content_is_never_in_clear,
    loop_checks.content_is_never_in_clear_in_the_commands_topic,
    loop_checks.states_are_bounded,
    loop_checks.an_edited_row_is_not_used,
    loop_checks.checkpoints_wait_for_the_projector,
    loop_checks.a_newer_fold_ignores_older_states,
    loop_checks.a_timer_fires_once_and_not_before_its_time,
)


@families
@pytest.mark.parametrize("check", RULE_CHECKS, ids=lambda check: check.__name__)
def test_the_rules_keep(check, case: Case) -> None:
    check(case)


@families
@pytest.mark.parametrize("check", LOOP_CHECKS, ids=lambda check: check.__name__)
async def test_the_loop_keeps(check, case: Case) -> None:
    await check(case)


@pytest.mark.parametrize(("case", "kind", "by_topic", "shared"), FAULTS_OF_CASES)
async def test_a_fault_at_any_append_leaves_the_same(case: Case, kind: str, by_topic: bool, shared: bool) -> None:
    await loop_checks.any_fault_leaves_the_same(case, kind, shared=shared, by_topic=by_topic)
