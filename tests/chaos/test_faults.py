import pytest

from tests.chaos.faults import CLUSTER_TARGETS, LONGEST_AFTER_S, TARGETS, plan, targets_of


def test_every_target_is_struck_in_the_middle_of_the_runs() -> None:
    for seed in range(50):
        faults = plan(seed, 200, TARGETS)
        assert sorted(fault.target for fault in faults) == sorted(TARGETS)
        moments = [fault.at_run for fault in faults]
        assert moments == sorted(moments)
        assert moments[0] >= 20
        assert moments[-1] <= 180
        assert all(0 <= fault.after_s <= LONGEST_AFTER_S for fault in faults)
        assert all(0 <= fault.draw < 1 for fault in faults)


def test_a_seed_gives_its_plan_again_and_another_gives_another() -> None:
    assert plan(1, 200, TARGETS) == plan(1, 200, TARGETS)
    assert len({tuple(fault.target for fault in plan(seed, 200, TARGETS)) for seed in range(20)}) > 10


def test_an_unknown_target_names_itself() -> None:
    with pytest.raises(AssertionError, match="printer"):
        plan(1, 200, ("api", "printer"))


def test_a_cluster_can_be_struck_in_more_ways() -> None:
    assert targets_of(1) == TARGETS
    assert targets_of(3) == TARGETS + CLUSTER_TARGETS
    assert len(plan(1, 200, targets_of(3), brokers=3)) == len(TARGETS) + len(CLUSTER_TARGETS)
    with pytest.raises(AssertionError, match="two-lost"):
        plan(1, 200, ("two-lost",), brokers=1)
