"""Seeds: hundreds break nothing, each replays exactly, and what is broken is told shortly."""

import os
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

from tests.simulation.main import run_seeds, story
from tests.simulation.mutations import MUTATIONS
from tests.simulation.workers import first_of_many

SEEDS = 500
JOBS = 2
ROOT = Path(__file__).parents[2]
REPLAYED = range(8)
REQUIRED_FAULTS = (
    *("crash", "pause", "lost", "ack lost", "late", "gap", "two owners", "storm", "rebuild", "damage"),
    *("commit lost", "connection lost", "second projector", "checkpoint"),
)


def test_hundreds_of_seeds_break_nothing() -> None:
    failure = first_of_many(0, SEEDS, JOBS)
    assert failure is None, "\n".join(story(failure)) if failure else ""


def test_every_kind_of_fault_happens_and_the_load_is_worth_it() -> None:
    outcomes = list(run_seeds(range(100)))
    fired = " ".join(name for outcome in outcomes for name in outcome.fired)
    assert [kind for kind in REQUIRED_FAULTS if f"({kind})" not in fired] == []
    assert sum(outcome.events for outcome in outcomes) > 15 * len(outcomes)


def test_a_story_is_short_and_ends_with_what_is_broken() -> None:
    # Closed, because the clock and the sleep of the process are simulated until then.
    with MUTATIONS["silent_flusher"](), closing(run_seeds(range(200))) as outcomes:
        failed = (outcome for outcome in outcomes if outcome.violation is not None)
        stories = [story(outcome) for outcome in islice(failed, 3)]
    assert all(lines[-1].startswith("BROKEN") for lines in stories)
    shortest = min((lines[1 : lines.index("")] for lines in stories), key=len)
    assert len(shortest) <= 4, shortest


def test_a_seed_replays_exactly_whatever_the_process() -> None:
    def told(hash_seed: str) -> str:
        command = "from tests.simulation.main import run_seeds, story\n" + (
            f"for outcome in list(run_seeds(range({REPLAYED.start}, {REPLAYED.stop}))):\n"
            "    print('\\n'.join(story(outcome, whole=True)))\n"
        )
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    first = told("1")
    assert first.count("\n") > 300
    assert told("2") == first
