"""`make bench-original`: the same requests to us and to a running server of the original, in turns, and the ratios.

    python -m tests.benchmarks.original [--original HOST:PORT] [--in-flight 1,16,64] [--seconds 5] [--repetitions 2]
                                        [--json FILE]

Without --original ours alone is measured. The other server has to be up with the agents of workload.py on its mock
provider without latency (its configuration files are read by both), a Postgres of its own, and the token in
ORIGINAL_TOKEN. Both get the same bodies from the same clients, one after the other, with nothing else running; a ratio
is ours divided by theirs within a repetition, and what is printed is their median.

    writes    a run with agent_id and user_id: Memory.set, Channel.publish, end; the script of the original's own load
    one turn  a run of one model turn with the same ids
    put, get  keys of memory over HTTP
"""

import os
import statistics
import sys
from dataclasses import replace
from typing import Any

from tests.benchmarks.main import Stack, client, new_report, options_parser, own_stack, write_report
from tests.benchmarks.workload import CONFIGURATION

WARM_UP_S = 30.0
ROW_WARM_UP_S = 1.0
ROWS = ("writes", "one turn", "put", "get")


def main() -> int:
    """The exit code: 0 when every row was measured."""
    parser = options_parser(__doc__)
    parser.add_argument("--original", default="", help="address of a running server of the original")
    parser.add_argument("--in-flight", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args()
    report = new_report("original")
    with own_stack(CONFIGURATION) as ours:
        sides = {"ours": ours}
        if options.original:
            theirs = {**ours[1], "LOOMLOG_AUTH_TOKEN": os.environ.get("ORIGINAL_TOKEN", "")}
            sides["original"] = (replace(ours[0], api=options.original), theirs)
        for stack, of_side in sides.values():
            client("writes", stack, of_side, 16, WARM_UP_S, 1.0)
        report["rows"] = [
            measured(sides, name, in_flight, options.seconds, options.repetitions)
            for in_flight in map(int, options.in_flight.split(","))
            for name in ROWS
        ]
    write_report(report, options.json)
    return 0


def measured(
    sides: dict[str, tuple[Stack, dict[str, str]]], name: str, in_flight: int, seconds: float, repetitions: int
) -> dict[str, Any]:
    """A row: what each side did in each repetition, and the ratio. Printed as well."""
    taken: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for repetition in range(repetitions):
        order = list(sides) if repetition % 2 == 0 else list(reversed(sides))
        for side in order:
            stack, environment = sides[side]
            taken[side].append(client(name, stack, environment, in_flight, ROW_WARM_UP_S, seconds))
    pairs = zip(taken["ours"], taken.get("original", ()), strict=False)
    ratios = [ours["runs_per_s"] / theirs["runs_per_s"] for ours, theirs in pairs if theirs["runs_per_s"]]
    row = {"row": name, "in_flight": in_flight, "taken": taken, "ratio": statistics.median(ratios) if ratios else None}
    cells = "  ".join(
        f"{side} {_of(rows, 'runs_per_s'):7.0f}/s {_of(rows, 'p50_ms'):7.1f} ms" for side, rows in taken.items()
    )
    print(f"{name:9} C={in_flight:<4} {cells}" + (f"  {row['ratio']:.2f}" if ratios else ""), flush=True)
    return row


def _of(rows: list[dict[str, Any]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
