"""Who may take one more of a bounded resource, and who is next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.core.shares import PRINCIPAL, TENANT, TOTAL, Holder, ShareExhausted, ShareLimits, Shares

ADA, BOB, CAT = (Holder(tenant="acme", principal=name) for name in ("ada", "bob", "cat"))
EVE = Holder(tenant="globex", principal="eve")


def shares_of(total: int, per_tenant: int = 0, per_principal: int = 0) -> Shares:
    return Shares("slots", ShareLimits.of(total, per_tenant=per_tenant, per_principal=per_principal))


def taken(shares: Shares, holder: Holder) -> int:
    """How many a holder gets that asks until it is refused."""
    count = 0
    while not shares.exhausted_bound(holder):
        shares.take(holder)
        count += 1
    return count


@pytest.mark.parametrize(
    ("total", "per_tenant", "per_principal"),
    [(1, 1, 1), (2, 1, 1), (3, 2, 2), (4, 3, 2), (16, 12, 8), (1_000, 750, 500)],
)
def test_the_usual_shares_leave_something_for_others(total: int, per_tenant: int, per_principal: int) -> None:
    assert ShareLimits.of(total) == ShareLimits(total=total, per_tenant=per_tenant, per_principal=per_principal)


def test_a_principal_a_tenant_and_all_are_bounded_and_the_refusal_says_which() -> None:
    shares = shares_of(16)
    assert (taken(shares, ADA), taken(shares, BOB), taken(shares, CAT)) == (8, 4, 0)
    for holder, bound, held, limit in ((ADA, PRINCIPAL, 8, 8), (CAT, TENANT, 12, 12)):
        with pytest.raises(ShareExhausted, match=f"has {held} slots .* its share is {limit}") as info:
            shares.take(holder)
        assert (info.value.bound, info.value.is_own, info.value.held, info.value.limit) == (bound, True, held, limit)
    assert taken(shares, EVE) == 2
    with pytest.raises(ShareExhausted, match="all 16 slots") as refused:
        shares.take(EVE)
    assert (refused.value.bound, refused.value.is_own) == (TOTAL, False)
    assert "acme" not in str(refused.value), "and says nothing about others"


def test_however_many_are_greedy_one_that_holds_nothing_finds_something() -> None:
    shares = shares_of(64)
    got = [taken(shares, Holder(tenant=f"t{number}", principal="p")) for number in range(6)]
    assert got == [32, 16, 8, 4, 2, 1]


def test_what_is_given_back_can_be_taken_again_and_nothing_is_kept_of_who_left() -> None:
    shares = shares_of(4)
    shares.take(ADA)
    shares.release(ADA)
    assert (shares.in_use, shares.held_by("acme"), shares.holders()) == (0, 0, [])
    with pytest.raises(AssertionError, match="holds none"):
        shares.release(ADA)


def test_who_waits_at_the_own_share_keeps_nobody_else_out() -> None:
    shares = shares_of(4)
    assert (taken(shares, ADA), taken(shares, BOB)) == (2, 1)
    tickets = {shares.wait(holder): holder for holder in (ADA, BOB, ADA, EVE)}
    assert tickets[shares.next() or 0] == EVE
    assert shares.next() is None
    shares.release(BOB)
    assert shares.next() is None, "the last one is for a tenant that has fewer"
    shares.release(ADA)
    assert tickets[shares.next() or 0] == ADA
    assert (shares.waiting, shares.in_use) == (2, 3)


def test_a_ticket_is_withdrawn_once() -> None:
    shares = shares_of(1)
    shares.take(ADA)
    ticket = shares.wait(EVE)
    assert shares.withdraw(ticket)
    assert not shares.withdraw(ticket)
    shares.release(ADA)
    assert (shares.next(), shares.waiting) == (None, 0)


def test_what_is_held_for_a_moment_is_used_up_by_busy_tenants_in_turn() -> None:
    shares = Shares("calls", ShareLimits.in_turn(8))
    shares.meet(EVE.tenant)
    assert (taken(shares, ADA), taken(shares, EVE), taken(shares, Holder(tenant="third", principal="p"))) == (6, 2, 0)
    for total, share in ((1, 1), (2, 2), (3, 3), (4, 3)):
        small = Shares("calls", ShareLimits.in_turn(total))
        small.meet(EVE.tenant)
        assert taken(small, ADA) == share


def test_a_tenant_that_is_alone_has_all_of_what_is_held_for_a_moment_until_another_comes() -> None:
    shares = Shares("calls", ShareLimits.in_turn(8))
    assert taken(shares, ADA) == 8
    first, second = shares.wait(ADA), shares.wait(EVE)
    shares.release(ADA)
    assert shares.next() == second, "the share of a tenant is six from now on"
    for _ in range(2):
        shares.release(ADA)
    assert shares.next() is first


HOLDERS = st.builds(Holder, tenant=st.sampled_from("abc"), principal=st.sampled_from("xy"))
STEPS = st.lists(st.tuples(st.sampled_from(["take", "release", "wait", "withdraw"]), HOLDERS), max_size=60)


@given(st.integers(1, 12), STEPS)
def test_no_order_of_steps_passes_a_bound_or_leaves_one_free_that_may_be_taken(
    total: int, steps: list[tuple[str, Holder]]
) -> None:
    shares = shares_of(total)
    held: list[Holder] = []
    waiting: dict[int, Holder] = {}
    for step, holder in steps:
        if step == "take" and not shares.exhausted_bound(holder):
            shares.take(holder)
            held.append(holder)
        elif step == "release" and holder in held:
            held.remove(holder)
            shares.release(holder)
        elif step == "wait":
            waiting[shares.wait(holder)] = holder
        elif step == "withdraw" and waiting:
            ticket = next(iter(waiting))
            del waiting[ticket]
            assert shares.withdraw(ticket)
        while (ticket_served := shares.next()) is not None:
            held.append(waiting.pop(ticket_served))
        limits = shares.limits
        assert shares.in_use == len(held) <= limits.total
        assert all(sum(one.tenant == name for one in held) <= limits.per_tenant for name in "abc")
        assert all(held.count(one) <= limits.per_principal for one in held)
        assert all(shares.exhausted_bound(one) for one in waiting.values())
