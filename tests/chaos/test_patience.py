from dataclasses import replace

from tests.chaos.checker import check
from tests.chaos.evidence import Evidence, Promise, Sighting, Strike
from tests.chaos.patience import STUCK_S, Open, left_alone_s
from tests.chaos.story_book import Log, good, until_the_call

FOR_EVER_S = 10_000.0


def strike(at_s: float, back_s: float) -> Strike:
    return Strike(target="broker", process="kafka", at_s=at_s, back_s=back_s)


def seen(log: Log, *moments: tuple[int, float]) -> Evidence:
    """The log as a reader saw it: up to that many records at that moment."""
    sightings, first = [], 0
    for until, at_s in moments:
        sightings.append(Sighting(partition=0, first=first, last=until - 1, at_s=at_s))
        first = until
    return replace(log.evidence(), sightings=sightings)


def stuck(evidence: Evidence) -> list[str]:
    return [violation.text for violation in check(evidence).violations if violation.kind == "stuck"]


def test_a_run_is_left_alone_from_its_beginning_to_its_end() -> None:
    assert left_alone_s(Open(10.0, 12.0), (), FOR_EVER_S) == 2.0


def test_a_fault_interrupts_and_only_what_comes_after_it_counts() -> None:
    assert left_alone_s(Open(10.0, 50.0), (strike(15.0, 45.0),), FOR_EVER_S) == 5.0
    assert left_alone_s(Open(10.0, 52.0), (strike(15.0, 45.0),), FOR_EVER_S) == 7.0
    assert left_alone_s(Open(10.0, 30.0), (strike(15.0, 45.0),), FOR_EVER_S) == 5.0


def test_faults_may_overlap_and_come_in_any_order() -> None:
    faults = (strike(30.0, 32.0), strike(15.0, 40.0), strike(12.0, 13.0))
    assert left_alone_s(Open(10.0, 47.0), faults, FOR_EVER_S) == 7.0


def test_faults_before_and_after_a_run_are_none_of_its_own() -> None:
    assert left_alone_s(Open(10.0, 20.0), (strike(1.0, 5.0), strike(25.0, 30.0)), FOR_EVER_S) == 10.0


def test_a_run_without_an_end_is_open_until_the_last_look() -> None:
    assert left_alone_s(Open(10.0), (), 25.0) == 15.0


def test_a_run_that_ends_in_time_is_not_stuck() -> None:
    log = good()
    assert stuck(seen(log, (3, 10.0), (len(log.events), 10.0 + STUCK_S))) == []


def test_a_run_that_ended_only_much_later_is_stuck() -> None:
    log = good()
    actual = stuck(seen(log, (3, 10.0), (len(log.events), 11.0 + STUCK_S)))
    assert [text.partition(" and ")[0] for text in actual] == ["r_one: was left alone for 46 s"]


def test_a_run_that_never_ended_is_stuck() -> None:
    log = Log()
    until_the_call(log)
    place = len(log.events)
    log.claim("runtime-2")
    assert len(stuck(seen(log, (place, 10.0), (len(log.events), 11.0 + STUCK_S)))) == 1


def test_a_command_that_waited_long_for_its_run_is_stuck() -> None:
    log = good()
    evidence = seen(log, (len(log.events), 100.0))
    for promise in (Promise(sender="topic", name="k1", partition=0, offset=0), Promise(sender="http", name="key")):
        run_id = "" if promise.sender == "topic" else "r_one"
        for at_s, count in ((100.0 - STUCK_S, 0), (99.0 - STUCK_S, 1)):
            options = replace(promise, run_id=run_id, at_s=at_s)
            assert len(stuck(replace(evidence, promises=(options,)))) == count
