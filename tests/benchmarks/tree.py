"""How fast a tree of runs is: `python -m tests.benchmarks.tree [--widths 31 31] [--json FILE]`.

One run that asks for 31 sub-agents, each of which asks for 31 more (993 runs, all of one partition), against a stack of
its own with the mock provider and no latency. Told are the seconds from the request to the end of the root, runs a
second, and how long a run of another partition takes meanwhile: a tree must not starve others.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median

import httpx

from tests.benchmarks.main import new_report, options_parser, own_stack, write_report
from tests.benchmarks.workload import CONFIGURATION

AGENT = """\
  branch: { provider: mock, model: mock-tree, tools: [Agent] }
"""
BESIDE_EVERY_S = 0.1
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds of the whole tree, and milliseconds of single runs beside it and on a quiet stack."""

    runs: int
    took_s: float
    runs_per_s: float
    beside_ms_p50: float
    beside_ms_max: float
    quiet_ms_p50: float


def main() -> int:
    """The exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[31, 31])
    options = parser.parse_args()
    report = new_report("tree") | {"widths": options.widths}
    with own_stack(CONFIGURATION + AGENT) as (stack, _):
        figures = asyncio.run(measure(stack.api, options.widths))
    report |= asdict(figures)
    print(json.dumps(report, indent=2))
    write_report(report, options.json)
    return 0


async def measure(address: str, widths: list[int]) -> Figures:
    """One tree, with single runs beside it; and single runs alone, before it."""
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=PATIENCE_S) as client:
        quiet = [await single(client) for _ in range(30)]
        began = time.monotonic()
        tree = asyncio.create_task(run(client, "branch", " ".join(["tree", "branch", *map(str, widths)])))
        beside: list[float] = []
        while not tree.done():
            beside.append(await single(client))
            await asyncio.sleep(BESIDE_EVERY_S)
        root = await tree
        took_s = time.monotonic() - began
        runs = await counted(client, root)
    return Figures(
        runs=runs,
        took_s=round(took_s, 2),
        runs_per_s=round(runs / took_s, 1),
        beside_ms_p50=round(1000 * median(beside), 1),
        beside_ms_max=round(1000 * max(beside), 1),
        quiet_ms_p50=round(1000 * median(quiet), 1),
    )


async def single(client: httpx.AsyncClient) -> float:
    """Seconds of one run without children: `branch` answers a prompt that is no tree at once."""
    began = time.monotonic()
    await run(client, "branch", "go")
    return time.monotonic() - began


async def run(client: httpx.AsyncClient, agent: str, prompt: str) -> str:
    """The run's id once it is over."""
    answer = await client.post("/v1/runs:batch", json={"spawns": [{"agent": agent, "prompt": prompt}]})
    answer.raise_for_status()
    [result] = answer.json()["results"]
    assert result["status"] == "completed", result
    return str(result["run_id"])


async def counted(client: httpx.AsyncClient, root: str) -> int:
    """Runs of the tree in the read models, all of them completed."""
    total, cursor = 0, ""
    while True:
        page = (await client.get("/v1/runs", params={"root_run_id": root, "limit": 500, "cursor": cursor})).json()
        assert {row["status"] for row in page["runs"]} <= {"completed"}, "a run of the tree is not completed"
        total += len(page["runs"])
        cursor = page["next"] or ""
        if not cursor:
            return total


if __name__ == "__main__":
    sys.exit(main())
