"""Who goes next, and who is turned away."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.core.admission import Admission, Bounds, Place

ADA, BOB, EVE = (
    Place(tenant="acme", user_id="ada"),
    Place(tenant="acme", user_id="bob"),
    Place(tenant="globex", user_id="eve"),
)


def full(runs: int = 1, queue: int = 100, **more: int) -> Admission:
    """As many inside as may be, of somebody else."""
    made = Admission(Bounds(runs=runs, queue=queue, **more))  # type: ignore[arg-type]  # numbers only here
    for number in range(runs):
        made.enter(f"old{number}", Place(tenant="old", user_id=f"old{number}"))
    return made


def order_of(made: Admission) -> list[str]:
    """Who goes in, one after the other, each leaving before the next."""
    found = []
    for run_id in list(made.inside):
        made.leave(run_id)
    while run_id := made.next():
        found.append(run_id)
        made.leave(run_id)
    return found


def test_tenants_take_turns_and_within_one_its_users_and_within_one_the_oldest() -> None:
    made = full()
    for number in range(3):
        made.queue(f"ada{number}", ADA)
    for number in range(2):
        made.queue(f"bob{number}", BOB)
        made.queue(f"eve{number}", EVE)
    assert order_of(made) == ["ada0", "eve0", "bob0", "eve1", "ada1", "bob1", "ada2"]
    assert made.waiting == {}


def test_nobody_passes_those_who_wait() -> None:
    made = full()
    assert not made.has_room(ADA)
    made.queue("ada", ADA)
    made.leave("old0")
    assert not made.has_room(EVE)
    assert made.next() == "ada"


def test_a_user_who_has_all_he_may_have_waits_without_keeping_others_out() -> None:
    made = Admission(Bounds(runs=10, queue=10, per_user=1))
    made.enter("ada0", ADA)
    assert not made.has_room(ADA)
    assert made.has_room(BOB)
    made.queue("ada1", ADA)
    made.queue("bob0", BOB)
    assert (made.next(), made.next()) == ("bob0", "")
    made.leave("ada0")
    assert made.next() == "ada1"


def test_users_of_the_same_name_in_two_tenants_are_two() -> None:
    made = Admission(Bounds(runs=10, queue=10, per_user=1))
    made.enter("one", ADA)
    assert made.has_room(Place(tenant="globex", user_id="ada"))


def test_a_full_provider_keeps_out_only_its_own_runs() -> None:
    made = Admission(Bounds(runs=10, queue=10, providers={"slow": 1}, provider_queue=1))
    slow = Place(tenant="acme", user_id="ada", provider="slow")
    made.enter("one", slow)
    assert made.queue("two", slow) is None
    found = made.queue("three", slow)
    assert found is not None
    assert (found.code, found.about, found.cap) == ("provider_concurrency_exhausted", "slow", 1)
    made.queue("quick", ADA)
    assert (made.next(), made.next()) == ("quick", "")
    made.leave("one")
    assert made.next() == "two"


@pytest.mark.parametrize(
    ("bounds", "code", "about", "cap"),
    [
        (Bounds(runs=1, queue=0), "backpressure", "", 1),
        (Bounds(runs=1, queue=0, per_user=1), "per_user_quota_exhausted", "ada", 1),
        (Bounds(runs=9, queue=0, per_user=1), "per_user_quota_exhausted", "ada", 1),
        (Bounds(runs=9, queue=0, providers={"": 1}), "provider_concurrency_exhausted", "", 1),
    ],
)
def test_who_finds_the_queue_full_is_turned_away_with_the_reason(
    bounds: Bounds, code: str, about: str, cap: int
) -> None:
    made = Admission(bounds)
    made.enter("one", ADA)
    found = made.queue("two", ADA)
    assert found is not None
    assert (found.code, found.about, found.cap) == (code, about, cap)
    assert made.waiting == {}


def test_a_run_that_goes_on_is_inside_again_past_the_bounds() -> None:
    made = full(runs=1)
    made.enter("resumed", ADA)
    assert len(made.inside) == 2
    made.leave("old0")
    made.queue("new", BOB)
    assert made.next() == ""
    made.leave("resumed")
    assert made.next() == "new"


def test_entering_or_leaving_twice_counts_once() -> None:
    made = Admission(Bounds(runs=2, queue=2, per_user=1))
    made.enter("one", ADA)
    made.enter("one", ADA)
    assert made.leave("one")
    assert not made.leave("one")
    assert made.has_room(ADA)


MOVES = st.lists(st.tuples(st.sampled_from(["ask", "leave", "give up"]), st.integers(0, 11)), max_size=80)


@given(MOVES, st.integers(1, 4), st.integers(0, 3))
def test_whatever_happens_nobody_is_lost_and_no_bound_is_passed(
    moves: list[tuple[str, int]], runs: int, per_user: int
) -> None:
    made = Admission(Bounds(runs=runs, queue=5, per_user=per_user, providers={"p0": 1}, provider_queue=2))
    places = [Place(tenant=f"t{n % 2}", user_id=f"u{n % 3}", provider=f"p{n % 4}") for n in range(12)]
    for number, (move, n) in enumerate(moves):
        inside, waiting = list(made.inside), list(made.waiting)
        if move == "ask":
            if made.has_room(places[n]):
                made.enter(f"r{number}", places[n])
            else:
                made.queue(f"r{number}", places[n])
        elif move == "leave" and inside:
            made.leave(inside[n % len(inside)])
        elif move == "give up" and waiting:
            made.give_up(waiting[n % len(waiting)])
        while made.next():
            pass
        assert len(made.inside) <= runs
        assert len(made.waiting) <= 5
        assert not set(made.inside) & set(made.waiting)
        users = Counter((p.tenant, p.user_id) for p in made.inside.values())
        assert not per_user or all(count <= per_user for count in users.values())
        assert sum(p.provider == "p0" for p in made.inside.values()) <= 1
        # Whoever waits has a reason to.
        assert all(not Admission.has_room(_alone(made), place) for place in made.waiting.values())


def _alone(made: Admission) -> Admission:
    """The same without a queue."""
    copy = Admission(made.bounds)
    for run_id, place in made.inside.items():
        copy.enter(run_id, place)
    return copy
