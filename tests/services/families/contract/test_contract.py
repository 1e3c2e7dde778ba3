"""Every family keeps the contract of the kit."""

import pytest

from tests.services.families.contract import loop_checks
from tests.services.families.contract.cases import CASES, Case

families = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
LOOP_CHECKS = (
    loop_checks.repeated_commands_have_one_decision,
    loop_checks.another_tenant_has_its_own_aggregates,
    loop_checks.misplaced_commands_are_dead_letters,
    loop_checks.rows_and_snapshots_continue_as_the_full_fold,
    loop_checks.content_is_never_in_clear,
    loop_checks.states_are_bounded,
    loop_checks.a_newer_fold_ignores_older_states,
    loop_checks.a_timer_fires_once_and_not_before_its_time,
)


@families
@pytest.mark.parametrize("check", LOOP_CHECKS, ids=lambda check: check.__name__)
async def test_the_loop_keeps(check, case: Case) -> None:
    await check(case)


@families
@pytest.mark.parametrize("kind", ["dies before", "dies after", "unacknowledged"])
@pytest.mark.parametrize("by_topic", [False, True], ids=["in memory", "by topic"])
@pytest.mark.parametrize("shared", [False, True], ids=["one owner", "two owners"])
async def test_a_fault_at_any_append_leaves_the_same(case: Case, shared: bool, by_topic: bool, kind: str) -> None:
    await loop_checks.any_fault_leaves_the_same(case, kind, shared=shared, by_topic=by_topic)
