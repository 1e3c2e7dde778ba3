"""The strategy of the group: even, with few moves, and everybody knows of everybody."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.kafka.assignment import BalancedAssignor, balance
from loomlog.connectors.protocols import MemberAssignment

CLUSTER: Any = SimpleNamespace(partitions_for_topic=lambda topic: {0, 1, 2, 3})


def member(life: str, held: tuple[int, ...] = (), *, stands_by: bool = True, spares: int = 0) -> BalancedAssignor:
    made = BalancedAssignor(life, is_standby=stands_by, address=f"host:1/{life}", spares=spares)
    made.get_held_partitions = lambda: held
    return made


def rebalanced(members: dict[str, BalancedAssignor]) -> dict[str, list[int]]:
    """A whole rebalance led by the first; the partitions of each by its id in the group."""
    leader = next(iter(members.values()))
    found = leader.assign(CLUSTER, {name: one.metadata(["commands"]) for name, one in members.items()})
    for name, one in members.items():
        one.on_assignment(found[name])
    return {name: assignment.assignment[0][1] for name, assignment in found.items()}


@given(
    st.integers(0, 40),
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.integers(0, 45)), min_size=1, max_size=6
    ),
)
def test_every_partition_has_one_owner_and_nobody_has_two_more_than_another(
    count: int, held: dict[str, frozenset[int]]
) -> None:
    found = balance(range(count), held)
    assert sorted(number for part in found.values() for number in part) == list(range(count))
    sizes = [len(part) for part in found.values()]
    assert set(found) == set(held)
    assert max(sizes) - min(sizes) <= 1


def test_nothing_moves_when_nobody_comes_or_goes() -> None:
    held = {"x": frozenset({0, 3, 5}), "y": frozenset({1, 2, 4})}
    assert balance(range(6), held) == {"x": [0, 3, 5], "y": [1, 2, 4]}


def test_what_a_standby_has_claimed_stays_with_it_as_far_as_its_share_goes() -> None:
    held = {"standby": frozenset({0, 1, 4}), "other": frozenset({2, 5}), "new": frozenset({3})}
    assert balance(range(6), held) == {"standby": [0, 1], "other": [2, 5], "new": [3, 4]}
    assert balance(range(5), {"a": frozenset({3, 4}), "b": frozenset({0, 1, 2})}) == {"a": [3, 4], "b": [0, 1, 2]}


def test_everybody_is_told_the_share_of_everybody() -> None:
    members = {"m1": member("one", (2, 3)), "m2": member("two", (0, 1), stands_by=False)}
    assert rebalanced(members) == {"m1": [2, 3], "m2": [0, 1]}
    shares = {
        "one": MemberAssignment(partitions=frozenset({2, 3}), is_standby=True, address="host:1/one", member_id="m1"),
        "two": MemberAssignment(partitions=frozenset({0, 1}), is_standby=False, address="host:1/two", member_id="m2"),
    }
    for one in members.values():
        assert one.latest_assignments() == shares


def test_a_member_says_what_it_holds_at_the_time_of_the_rebalance() -> None:
    held: list[int] = []
    one = BalancedAssignor("one", is_standby=True)
    one.get_held_partitions = lambda: held
    held.append(7)
    assert json.loads(one.metadata(["commands"]).user_data)["held"] == [7]


# --- spares ----------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 40),
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.integers(0, 45)), min_size=1, max_size=6
    ),
    st.integers(0, 8),
)
def test_spares_get_nothing_and_at_least_one_member_is_active(
    count: int, held: dict[str, frozenset[int]], spares: int
) -> None:
    parts = balance(range(count), held, spares=spares)
    assert set(parts) == set(held)
    assert sorted(number for part in parts.values() for number in part) == list(range(count))
    active = max(1, len(held) - spares)
    sizes = sorted((len(part) for part in parts.values()), reverse=True)
    assert not any(sizes[active:])
    assert sizes[0] - sizes[active - 1] <= 1


def test_the_members_that_hold_most_stay_active() -> None:
    nothing = frozenset[int]()
    assert balance(range(4), {"a": nothing, "b": frozenset({0, 1, 2, 3})}, spares=1) == {"a": [], "b": [0, 1, 2, 3]}
    held = {"back": nothing, "took-over": frozenset({2, 3}), "other": frozenset({0, 1})}
    assert balance(range(4), held, spares=1) == {"back": [], "took-over": [2, 3], "other": [0, 1]}


def test_a_lone_member_owns_everything_however_many_spares_are_wanted() -> None:
    assert balance(range(3), {"a": frozenset()}, spares=2) == {"a": [0, 1, 2]}


def test_groups_with_the_same_members_choose_the_same_spare() -> None:
    one = {"m1": member("x", spares=1), "m2": member("y", spares=1)}
    other = {"m1": member("y", spares=1), "m2": member("x", spares=1)}
    assert rebalanced(one) == {"m1": [0, 1, 2, 3], "m2": []}
    assert rebalanced(other) == {"m1": [], "m2": [0, 1, 2, 3]}


def test_more_spares_than_members_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert rebalanced({"m1": member("x", spares=2), "m2": member("y", spares=2)}) == {"m1": [0, 1, 2, 3], "m2": []}
    assert "LOOMLOG_SPARES is 2, but the group of commands has only 2 members: one owns all partitions" in caplog.text
    caplog.clear()
    rebalanced({"m1": member("x", spares=2)})
    assert not caplog.records, "the first of a group that is starting is alone"


def test_a_member_of_the_version_before_has_no_address() -> None:
    one = member("one")
    metadata = one.metadata(["commands"])
    fields = json.loads(metadata.user_data)
    del fields["address"]
    metadata.user_data = json.dumps(fields).encode()
    one.on_assignment(one.assign(CLUSTER, {"m1": metadata})["m1"])
    assert one.latest_assignments()["one"].address == ""
