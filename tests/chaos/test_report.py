from collections import Counter
from dataclasses import replace

from tests.chaos.campaign import Order, Outcome
from tests.chaos.checker import Verdict, check
from tests.chaos.evidence import Sighting, Strike
from tests.chaos.report import SHOWN_VIOLATIONS, report
from tests.chaos.story_book import good


def outcome(verdict: Verdict, met: Counter[str] | None = None) -> Outcome:
    order = Order(seed=7, runs=1, rounds=1, targets=("broker",))
    return Outcome(order=order, seeds=(7,), took_s=1.0, verdict=verdict, met=met or Counter(), own_ends=Counter())


def test_the_table_has_figures_pauses_and_what_clients_met() -> None:
    log = good()
    strikes = (Strike(target="broker", process="kafka", at_s=1.0, back_s=3.0),)
    sightings = (
        Sighting(partition=0, first=0, last=2, at_s=0.5),
        Sighting(partition=0, first=3, last=8, at_s=3.25),
    )
    verdict = check(replace(log.evidence(), strikes=strikes, sightings=sightings))
    text = report(outcome(verdict, met=Counter({"http: 503": 2})))
    for line in (
        "seeds                      7",
        "faults                     broker 1",
        "lost                       0",
        "broker: stood still        p50 2250 ms, p99 2250 ms, max 2250 ms (1 figures)",
        "broker: up again           p50 2000 ms, p99 2000 ms, max 2000 ms (1 figures)",
        "clients met                http: 503 2",
        "refused without quorum     no figure",
        "standby: claimed           no figure",
        "group: first event         no figure",
        "ended by themselves        nothing",
        "violations                 0",
    ):
        assert line in text.splitlines()


def test_violations_are_named_up_to_a_bound() -> None:
    log = good()
    log.effects += [f"nobody:{number} r" for number in range(SHOWN_VIOLATIONS + 5)]
    text = report(outcome(check(log.evidence())))
    assert text.count("  effect without intent: ") == SHOWN_VIOLATIONS
    assert text.endswith("  and 5 more")
