"""Run many seeds, or tell the story of one.

    python -m tests.simulation.main --seeds 10000 [--first S] [--jobs N] [--json FILE]
    python -m tests.simulation.main --seed S --story [--whole]

The first failing seed ends it: its shortest story is printed, and the command that tells it again. Exit code 1 then.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Generator, Iterable
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.machine import machine
from tests.simulation.seeds import Outcome, simulate, simulated
from tests.simulation.shrink import shrunk
from tests.simulation.workers import first_of_many

COLLECT_EVERY_SEEDS = 25
"""Garbage is collected between seeds and not within them: a simulation is full of cycles that all end with it."""


def run_seeds(seeds: Iterable[int]) -> Generator[Outcome, None, None]:
    """The outcomes, one after the other, in this process, which is a simulated one until it is read or closed."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with simulated():
            for number, seed in enumerate(seeds, start=1):
                yield simulate(seed)
                if number % COLLECT_EVERY_SEEDS == 0:
                    gc.collect()
    finally:
        gc.enable()


def story(outcome: Outcome, *, whole: bool = False) -> list[str]:
    """The lines of a story: which faults it takes, what happened, what was broken."""
    lines: list[str] = []
    with simulated():
        without, best = (frozenset[str](), outcome) if whole or outcome.violation is None else shrunk(outcome)
        values = simulate(outcome.seed, without=without, tell=lines.append)
    assert values == best or whole, "a seed did not replay exactly; something is not simulated"
    head = [
        f"seed {outcome.seed}: {len(outcome.fired)} faults and {len(outcome.wishes)} wishes happened, these matter:",
        *(f"  {name}" for name in (*values.wishes, *values.fired)),
        "",
    ]
    violation = values.violation
    end = "nothing is broken" if violation is None else f"BROKEN ({violation.kind}): {violation.text}"
    return [*head, *lines, "", end]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.main", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--story", action="store_true", help="with --seed: tell it also when nothing is broken")
    parser.add_argument("--whole", action="store_true", help="with --seed: tell it with all its faults")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        outcome = next(iter(run_seeds([chosen.seed])))
        if chosen.story or outcome.violation is not None:
            print("\n".join(story(outcome, whole=chosen.whole)))
        else:
            print(f"seed {chosen.seed}: nothing is broken, {len(outcome.fired)} faults, {outcome.events} events")
        return 1 if outcome.violation is not None else 0
    return _many(chosen.first, chosen.seeds, chosen.jobs, chosen.json)


def _many(first: int, count: int, jobs: int, file: Path | None) -> int:
    began = time.monotonic()
    failure = first_of_many(first, count, jobs, say=lambda text: print(text, flush=True))
    took_s = time.monotonic() - began
    if file is not None:
        figures = {
            "kind": "simulation",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "first": first,
            "seeds": count,
            "processes": jobs,
            "seconds": round(took_s, 1),
            "broken_seed": None if failure is None else failure.seed,
        }
        file.write_text(json.dumps(figures, indent=1) + "\n")
    if failure is None:
        rate = count / took_s
        print(f"{count} seeds from {first}: nothing is broken ({took_s:.0f} s, {rate:.0f} seeds a second)")
        return 0
    print("\n".join(story(failure)))
    print(f"\nAgain: python -m tests.simulation.main --seed {failure.seed} --story   (--whole: with every fault)")
    return 1


if __name__ == "__main__":
    sys.exit(main())
