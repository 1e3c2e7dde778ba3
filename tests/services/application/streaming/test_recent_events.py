from loomlog.services.application.limits import ITEM_OVERHEAD_BYTES
from loomlog.services.application.streaming.recent_events import RecentEvents


def add(ring: RecentEvents, run_id: str, name: str, *, now: float = 0.0, size: int = 100) -> None:
    ring.add(run_id, (0, name.ljust(size).encode()), now)


def names(ring: RecentEvents, run_id: str) -> list[str]:
    return [kept[1].decode().strip() for kept in ring.of_run(run_id)]


def test_items_come_back_by_run_in_the_order_they_came() -> None:
    ring = RecentEvents()
    for run_id, name in (("r_1", "a"), ("r_2", "b"), ("r_1", "c")):
        add(ring, run_id, name)
    assert names(ring, "r_1") == ["a", "c"]
    assert names(ring, "r_2") == ["b"]
    assert names(ring, "r_3") == []


def test_the_oldest_goes_first_when_there_are_too_many_bytes() -> None:
    ring = RecentEvents(max_bytes=3 * (100 + ITEM_OVERHEAD_BYTES))
    for number in range(5):
        add(ring, f"r_{number % 2}", str(number))
    assert names(ring, "r_0") == ["2", "4"]
    assert names(ring, "r_1") == ["3"]
    assert len(ring) == 3
    assert ring.bytes == 3 * (100 + ITEM_OVERHEAD_BYTES)


def test_an_item_larger_than_the_ring_leaves_it_empty_and_not_broken() -> None:
    ring = RecentEvents(max_bytes=1_000)
    add(ring, "r_1", "a")
    add(ring, "r_1", "huge", size=10_000)
    assert (names(ring, "r_1"), ring.bytes, len(ring)) == ([], 0, 0)
    add(ring, "r_1", "b")
    assert names(ring, "r_1") == ["b"]


def test_what_is_too_old_goes() -> None:
    ring = RecentEvents(age_s=10.0)
    add(ring, "r_1", "old", now=0.0)
    add(ring, "r_1", "new", now=5.0)
    ring.drop_expired(10.0)
    assert names(ring, "r_1") == ["old", "new"]
    ring.drop_expired(10.1)
    assert names(ring, "r_1") == ["new"]
    ring.drop_expired(100.0)
    assert (len(ring), ring.bytes) == (0, 0)


def test_a_run_whose_items_are_gone_leaves_nothing_behind() -> None:
    ring = RecentEvents(age_s=1.0)
    for number in range(100):
        add(ring, f"r_{number}", "x", now=0.0)
    ring.drop_expired(2.0)
    assert not ring._runs


def test_what_was_given_out_does_not_change_with_the_ring() -> None:
    ring = RecentEvents()
    add(ring, "r_1", "a")
    kepts = ring.of_run("r_1")
    add(ring, "r_1", "b")
    assert len(kepts) == 1
