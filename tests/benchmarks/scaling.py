"""`make bench-scale`: how the figures change when there is more of something. Each curve is a file in docs/figures.

    python -m tests.benchmarks.scaling [--curves partitions,...] [--small] [--folder FOLDER]

    partitions    runs/s through the topic against partitions (1, 4, 8) and runtime processes (1, 2)
    in_flight     latency and runs/s over HTTP against runs in flight, 1 to 1,000
    streams       5,000 open streams of one api process: from an event to its frame, against streams
    parked        memory and idle CPU against parked runs (100, 1,000, 10,000)
    live          take-over of a partition against its live runs (10, 100, 1,000)
    history       take-over of a partition against its past (10,000 to 400,000 events)
    replay        events/s of rebuilt read models and of replays against the length of the log

Every curve has stacks of its own. One that fails is told, the others are measured and kept, and the exit code is 1; the
figures it had before stay as they were. `--small` measures little of everything into .loomlog/scaling-small, to see
that all of it works. The pictures are drawn by `python -m tests.benchmarks.plots`, docs/SCALE.md is written by
`python -m tests.benchmarks.scale_page`.
"""

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.curves import FULL, SMALL, Row, Sizes
from tests.benchmarks.curves_of_load import by_in_flight, by_parked, by_partitions, by_streams
from tests.benchmarks.curves_of_past import by_history, by_live_runs, by_replay
from tests.benchmarks.machine import machine
from tests.benchmarks.peers.main import commit

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
SMALL_FIGURES = ROOT / ".loomlog" / "scaling-small"

CURVES: dict[str, Callable[[Sizes], list[Row]]] = {
    "partitions": by_partitions,
    "in_flight": by_in_flight,
    "streams": by_streams,
    "parked": by_parked,
    "live": by_live_runs,
    "history": by_history,
    "replay": by_replay,
}


def main() -> int:
    """The exit code: 1 when a curve failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--curves", default=",".join(CURVES))
    parser.add_argument("--seconds", type=float, help="counted, for each row of load")
    parser.add_argument("--small", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--folder", type=Path, help="where the figures go")
    options = parser.parse_args()
    # So that a time limit outside (timeout, a CI job) leaves no stack behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sizes = SMALL if options.small else FULL
    if options.seconds:
        sizes = replace(sizes, seconds=options.seconds)
    failed = measure_all(chosen(options.curves), sizes, options.folder or (SMALL_FIGURES if options.small else FIGURES))
    if failed:
        print(f"\nfailed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def chosen(names: str) -> dict[str, Callable[[Sizes], list[Row]]]:
    """The curves of a list with commas. Raises SystemExit for one that does not exist."""
    expected = names.split(",")
    if unknown := set(expected) - set(CURVES):
        raise SystemExit(f"unknown curves {sorted(unknown)}; there are {list(CURVES)}")
    return {name: CURVES[name] for name in expected}


def measure_all(curves: dict[str, Callable[[Sizes], list[Row]]], sizes: Sizes, folder: Path) -> Sequence[str]:
    """Each curve into its file; the names of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, measure in curves.items():
        print(f"\n{name}", flush=True)
        began = time.monotonic()
        facts = machine(folder)
        try:
            rows = measure(sizes)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                raise  # we are told to stop; a command of ours that failed says so in words
            traceback.print_exc()
            failed.append(name)
            continue
        report = {
            "kind": f"scaling {name}",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "took_s": round(time.monotonic() - began),
            "machine": facts,
            "rows": rows,
        }
        (folder / f"scaling-{name}.json").write_text(json.dumps(report, indent=1) + "\n")
        print(f"  took {report['took_s']} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
