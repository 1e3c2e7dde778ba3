"""`make chaos`: kill anything in the middle of many runs, and prove that nothing was lost or done twice.

    python -m tests.chaos.main [--runs 200] [--rounds 1] [--targets runtime,api,projector,broker,...]
                               [--effect unsafe|idempotent] [--in-flight 24] [--seed N] [--keep]

Every round starts that many runs and strikes every target once, in random order at random moments; all rounds hit the
same stack, whose log grows. Exit 1 on any violation. `make chaos RUNS=500 ROUNDS=3` sets the first two.

Before: the command line.  After: campaign, report.
"""

import argparse
import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.campaign import campaign
from tests.chaos.faults import TARGETS
from tests.chaos.load import IN_FLIGHT
from tests.chaos.report import report

RUNS, ROUNDS = 200, 1


def main() -> int:
    """The exit code: 0 when there was no violation, 1 otherwise."""
    options = _options()
    # Each reconnect to a killed broker would be a line.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="loomlog-chaos-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    began = time.monotonic()
    keep = options.keep
    try:
        outcome = asyncio.run(
            campaign(
                folder,
                runs=options.runs,
                rounds=options.rounds,
                targets=options.targets.split(","),
                seed=options.seed,
                say=lambda line: print(line, flush=True),
                effect=options.effect,
                in_flight=options.in_flight,
            )
        )
        keep = keep or bool(outcome.verdict.violations or outcome.own_ends)
    except BaseException:
        keep = True
        raise
    finally:
        if keep:
            print(f"logs and data are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(report(outcome))
    print(f"{time.monotonic() - began:.0f} s in all")
    return 1 if outcome.verdict.violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.main", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=int(os.environ.get("RUNS") or RUNS), help="runs of each round")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS") or ROUNDS))
    parser.add_argument("--targets", default=",".join(TARGETS), help="what is struck (default: %(default)s)")
    parser.add_argument("--effect", choices=("unsafe", "idempotent"), default="unsafe", help="of the ledger's calls")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="runs at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="draws order and moments")
    parser.add_argument("--keep", action="store_true", help="keep logs and data also when all is well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
