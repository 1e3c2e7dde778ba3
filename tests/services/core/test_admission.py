"""Who goes next, and who is turned away."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.core.admission import USER_FULL, AdmissionController, AdmissionLimits, Slot

ADA, BOB, EVE = (
    Slot(tenant="acme", user_id="ada"),
    Slot(tenant="acme", user_id="bob"),
    Slot(tenant="globex", user_id="eve"),
)


def full(runs: int = 1, queue: int = 100, **more: int) -> AdmissionController:
    """As many inside as may be, of somebody else."""
    made = AdmissionController(AdmissionLimits(runs=runs, queue=queue, **more))  # type: ignore[arg-type]  # numbers only here
    for number in range(runs):
        made.admit(f"old{number}", Slot(tenant="old", user_id=f"old{number}"))
    return made


def order_of(made: AdmissionController) -> list[str]:
    """Who goes in, one after the other, each leaving before the next."""
    actual = []
    for run_id in list(made.active):
        made.release(run_id)
    while run_id := made.admit_next():
        actual.append(run_id)
        made.release(run_id)
    return actual


def test_tenants_take_turns_and_within_one_its_users_and_within_one_the_oldest() -> None:
    made = full()
    for number in range(3):
        made.enqueue(f"ada{number}", ADA)
    for number in range(2):
        made.enqueue(f"bob{number}", BOB)
        made.enqueue(f"eve{number}", EVE)
    assert order_of(made) == ["ada0", "eve0", "bob0", "eve1", "ada1", "bob1", "ada2"]
    assert made.waiting == {}


def test_nobody_passes_those_who_wait() -> None:
    made = full()
    assert not made.has_capacity(ADA)
    made.enqueue("ada", ADA)
    made.release("old0")
    assert not made.has_capacity(EVE)
    assert made.admit_next() == "ada"


def test_a_user_who_has_all_he_may_have_is_refused_at_once_and_keeps_nobody_out() -> None:
    made = AdmissionController(AdmissionLimits(runs=10, queue=10, per_user=1))
    made.admit("ada0", ADA)
    assert not made.has_capacity(ADA)
    assert made.has_capacity(BOB)
    refusal = made.enqueue("ada1", ADA)
    assert refusal is not None
    assert (refusal.code, refusal.cap) == (USER_FULL, 1)
    assert made.enqueue("bob0", BOB) is None
    assert (made.admit_next(), made.admit_next()) == ("bob0", "")
    made.release("ada0")
    assert made.enqueue("ada1", ADA) is None
    assert made.admit_next() == "ada1"


def test_users_of_the_same_name_in_two_tenants_are_two() -> None:
    made = AdmissionController(AdmissionLimits(runs=10, queue=10, per_user=1))
    made.admit("one", ADA)
    assert made.has_capacity(Slot(tenant="globex", user_id="ada"))


def test_a_tenant_that_is_alone_has_all_places() -> None:
    made = AdmissionController(AdmissionLimits(runs=4, queue=4))
    for number in range(4):
        assert made.has_capacity(ADA)
        made.admit(f"ada{number}", ADA)
    assert [made.enqueue(f"bob{number}", BOB) is None for number in range(5)] == [True] * 4 + [False]


def test_runs_that_are_parked_count_for_their_user_and_hold_no_place() -> None:
    made = AdmissionController(AdmissionLimits(runs=1, queue=10, per_user=2))
    for run_id in ("one", "two"):
        made.admit(run_id, ADA)
        made.rest(run_id, ADA)
    assert made.has_capacity(BOB)
    refusal = made.enqueue("three", ADA)
    assert refusal is not None
    assert (refusal.code, refusal.cap) == (USER_FULL, 2)
    made.admit("two", ADA)  # it goes on at once
    assert not made.has_capacity(ADA)
    made.release("two")
    assert made.has_capacity(ADA)
    made.release("one")
    assert not made.idle


def test_a_tenant_has_its_share_of_the_places_and_of_the_queue() -> None:
    made = AdmissionController(AdmissionLimits(runs=4, queue=4))
    made.admit("eve", EVE)
    made.release("eve")
    for number in range(3):
        made.admit(f"ada{number}", ADA)
    assert not made.has_capacity(BOB), "three quarters are the share of a tenant"
    assert [made.enqueue(f"bob{number}", BOB) is None for number in range(4)] == [True, True, True, False]
    assert made.enqueue("eve0", EVE) is None
    assert (made.admit_next(), made.admit_next()) == ("eve0", "")
    made.release("ada0")
    assert (made.admit_next(), made.admit_next()) == ("bob0", "")


def test_a_full_provider_keeps_out_only_its_own_runs() -> None:
    made = AdmissionController(AdmissionLimits(runs=10, queue=10, providers={"slow": 1}, provider_queue=1))
    slow = Slot(tenant="acme", user_id="ada", provider="slow")
    made.admit("one", slow)
    assert made.enqueue("two", slow) is None
    actual = made.enqueue("three", slow)
    assert actual is not None
    assert (actual.code, actual.about, actual.cap) == ("provider_concurrency_exhausted", "slow", 1)
    made.enqueue("quick", ADA)
    assert (made.admit_next(), made.admit_next()) == ("quick", "")
    made.release("one")
    assert made.admit_next() == "two"


@pytest.mark.parametrize(
    ("bounds", "code", "about", "cap"),
    [
        (AdmissionLimits(runs=1, queue=0), "backpressure", "", 1),
        (AdmissionLimits(runs=1, queue=0, per_user=1), "per_user_quota_exhausted", "ada", 1),
        (AdmissionLimits(runs=9, queue=0, per_user=1), "per_user_quota_exhausted", "ada", 1),
        (AdmissionLimits(runs=9, queue=0, providers={"": 1}), "provider_concurrency_exhausted", "", 1),
    ],
)
def test_who_finds_the_queue_full_is_turned_away_with_the_reason(
    bounds: AdmissionLimits, code: str, about: str, cap: int
) -> None:
    made = AdmissionController(bounds)
    made.admit("one", ADA)
    actual = made.enqueue("two", ADA)
    assert actual is not None
    assert (actual.code, actual.about, actual.cap) == (code, about, cap)
    assert made.waiting == {}


def test_a_run_that_goes_on_is_inside_again_past_the_bounds() -> None:
    made = full(runs=1)
    made.admit("resumed", ADA)
    assert len(made.active) == 2
    made.release("old0")
    made.enqueue("new", BOB)
    assert made.admit_next() == ""
    made.release("resumed")
    assert made.admit_next() == "new"


def test_entering_or_leaving_twice_counts_once() -> None:
    made = AdmissionController(AdmissionLimits(runs=2, queue=2, per_user=1))
    made.admit("one", ADA)
    made.admit("one", ADA)
    assert made.release("one")
    assert not made.release("one")
    assert made.has_capacity(ADA)


MOVES = st.lists(st.tuples(st.sampled_from(["ask", "leave", "give up"]), st.integers(0, 11)), max_size=80)


@given(MOVES, st.integers(1, 4), st.integers(0, 3))
def test_whatever_happens_nobody_is_lost_and_no_bound_is_passed(
    moves: list[tuple[str, int]], runs: int, per_user: int
) -> None:
    made = AdmissionController(
        AdmissionLimits(runs=runs, queue=5, per_user=per_user, providers={"p0": 1}, provider_queue=2)
    )
    places = [Slot(tenant=f"t{n % 2}", user_id=f"u{n % 3}", provider=f"p{n % 4}") for n in range(12)]
    for tenant in ("t0", "t1"):
        made._places.meet(tenant)
    for number, (move, n) in enumerate(moves):
        inside, waiting = list(made.active), list(made.waiting)
        if move == "ask":
            if made.has_capacity(places[n]):
                made.admit(f"r{number}", places[n])
            else:
                made.enqueue(f"r{number}", places[n])
        elif move == "leave" and inside:
            made.release(inside[n % len(inside)])
        elif move == "give up" and waiting:
            made.withdraw(waiting[n % len(waiting)])
        while made.admit_next():
            pass
        assert len(made.active) <= runs
        assert len(made.waiting) <= 5
        assert not set(made.active) & set(made.waiting)
        users = Counter((p.tenant, p.user_id) for p in made.active.values())
        assert not per_user or all(count <= per_user for count in users.values())
        assert sum(p.provider == "p0" for p in made.active.values()) <= 1
        # Whoever waits has a reason to.
        assert all(not AdmissionController.has_capacity(_alone(made), place) for place in made.waiting.values())


def _alone(made: AdmissionController) -> AdmissionController:
    """The same without a queue."""
    copy = AdmissionController(made.limits)
    for run_id, place in made.active.items():
        copy.admit(run_id, place)
    for tenant in ("t0", "t1"):
        copy._places.meet(tenant)
    return copy
