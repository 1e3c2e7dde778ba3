"""`make chaos`: kill anything in the middle of many runs, and prove that nothing was lost or done twice.

    python -m tests.chaos.main [--minutes 10] [--brokers 1|3] [--runs 200] [--rounds 1] [--targets runtime,api,...]
                               [--session 1.0] [--no-standby] [--effect unsafe|idempotent] [--in-flight 24] [--seed N]
                               [--keep] [--json FILE] [--write docs/RELIABILITY.md]

Every round starts that many runs (more while faults last) and strikes every target, in random order at random moments;
all rounds hit the same stack, whose log grows. With --minutes there are as many rounds as fit; without --brokers half
of the time then goes to one broker and half to a cluster of three. Exit 1 on any violation.

`make chaos MINUTES=10`, `make chaos RUNS=500 ROUNDS=3`.

Before: the command line.  After: campaign, report, result, reliability.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import SESSION_S, Order, Outcome, campaign
from tests.chaos.faults import targets_of
from tests.chaos.load import IN_FLIGHT
from tests.chaos.reliability import page
from tests.chaos.report import report
from tests.chaos.result import Machine, result_of

RUNS, ROUNDS = 200, 1


def main() -> int:
    """The exit code: 0 when there was no violation, 1 otherwise."""
    options = _options()
    # Each reconnect to a killed broker would be a line.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    machine = Machine.this()
    shapes = [options.brokers] if options.brokers else [1, 3] if options.minutes else [1]
    results, failed = [], False
    for brokers in shapes:
        outcome = _campaign(options, brokers, options.minutes / len(shapes))
        print(report(outcome), flush=True)
        failed |= bool(outcome.verdict.violations)
        results.append(result_of(outcome, machine))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    if options.write:
        options.write.write_text(page(results))
    return 1 if failed else 0


def _campaign(options: argparse.Namespace, brokers: int, minutes: float) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="loomlog-chaos-"))
    print(f"seed {options.seed}, {brokers} broker(s), in {folder}", flush=True)
    order = Order(
        seed=options.seed,
        runs=options.runs,
        rounds=options.rounds,
        targets=options.targets.split(",") if options.targets else targets_of(brokers),
        brokers=brokers,
        minutes=minutes,
        session_s=options.session,
        standby=options.standby,
        effect=options.effect,
        in_flight=options.in_flight,
    )
    keep = options.keep
    try:
        outcome = asyncio.run(campaign(folder, order, say=lambda line: print(line, flush=True)))
        keep = keep or bool(outcome.verdict.violations or outcome.own_ends)
    except BaseException:
        keep = True
        raise
    finally:
        if keep:
            print(f"logs and data are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.main", description=(__doc__ or "").split("\n", 1)[0])
    values = os.environ.get
    parser.add_argument("--minutes", type=float, default=float(values("MINUTES") or 0), help="instead of rounds")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=0, help="one broker, or a cluster")
    parser.add_argument("--runs", type=int, default=int(values("RUNS") or RUNS), help="runs of each round")
    parser.add_argument("--rounds", type=int, default=int(values("ROUNDS") or ROUNDS))
    parser.add_argument("--targets", default="", help="what is struck (default: everything there is)")
    parser.add_argument("--session", type=float, default=SESSION_S, help="seconds until a silent owner is given up")
    parser.add_argument(
        "--no-standby", dest="standby", action="store_false", help="killed owners are noticed by the group alone"
    )
    parser.add_argument("--effect", choices=("unsafe", "idempotent"), default="unsafe", help="of the ledger's calls")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="runs at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="draws order and moments")
    parser.add_argument("--keep", action="store_true", help="keep logs and data also when all is well")
    parser.add_argument("--json", type=Path, help="file for the result, for programs")
    parser.add_argument("--write", type=Path, help="file for the result as a page, docs/RELIABILITY.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
