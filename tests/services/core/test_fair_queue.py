"""Who goes next among those that wait."""

from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.core.fair_queue import FairQueue


def emptied(queue: FairQueue) -> list[int]:
    actual = []
    while (ticket := queue.next()) is not None:
        actual.append(ticket)
    return actual


def test_tenants_take_turns_and_within_one_its_users_and_within_one_the_oldest() -> None:
    queue = FairQueue()
    for ticket in (1, 2, 3):
        queue.join(ticket, "acme", "ada")
    queue.join(4, "acme", "bob")
    queue.join(5, "globex", "eve")
    assert emptied(queue) == [1, 5, 4, 2, 3]


def test_a_tenant_that_comes_again_waits_behind_those_that_wait() -> None:
    queue = FairQueue()
    queue.join(1, "acme", "ada")
    queue.join(2, "globex", "eve")
    assert queue.next() == 1
    queue.join(3, "acme", "ada")
    assert emptied(queue) == [2, 3]


def test_who_has_left_is_not_called_and_leaves_once() -> None:
    queue = FairQueue()
    queue.join(1, "acme", "ada")
    queue.join(2, "acme", "bob")
    assert queue.leave(1)
    assert not queue.leave(1)
    assert (len(queue), emptied(queue), len(queue)) == (1, [2], 0)


WAITING = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.booleans()), max_size=30)


@given(WAITING)
def test_everybody_who_stays_is_called_once_and_nobody_is_passed_by_twice(waiting: list[tuple[str, str, bool]]) -> None:
    queue = FairQueue()
    for ticket, (tenant, user, _) in enumerate(waiting):
        queue.join(ticket, tenant, user)
    for ticket, (_, _, stays) in enumerate(waiting):
        if not stays:
            queue.leave(ticket)
    called = emptied(queue)
    assert sorted(called) == [ticket for ticket, (_, _, stays) in enumerate(waiting) if stays]
    tenants = [waiting[ticket][0] for ticket in called]
    for number, tenant in enumerate(tenants[:-1]):
        # The same tenant twice in a row only when no other has anybody left.
        assert tenants[number + 1] != tenant or set(tenants[number + 1 :]) == {tenant}


def test_who_may_not_go_keeps_nobody_else() -> None:
    queue: FairQueue[int] = FairQueue()
    for ticket, tenant, user in ((1, "acme", "a"), (2, "acme", "a"), (3, "acme", "b"), (4, "zeta", "z")):
        queue.join(ticket, tenant, user)
    assert queue.next(lambda ticket: ticket != 1) == 2
    assert queue.next(user_may=lambda tenant, user: tenant != "zeta") == 3, "and user b is next in acme"
    assert queue.next(lambda ticket: False) is None
    assert (len(queue), queue.next(), queue.next(), queue.next()) == (2, 4, 1, None)
