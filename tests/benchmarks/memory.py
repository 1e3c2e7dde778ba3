"""What memory costs: `make bench-memory`.

    python -m tests.benchmarks.memory [--parts turns,calls,sql,search,scopes] [--keys 1000000] [--vectors 200000]
                                      [--seconds 6] [--repetitions 3] [--json FILE]

A stack of its own, whose embedder is a server in this process that counts the texts it is sent.

    turns       A3x2, with three Bench calls a turn, and with a set and a get of Memory beside its one, at 16 in flight
    calls       set and get as tool calls, one run at a time, and set at 64 in flight
    sql         sql_exec and sql_query as tool calls, one run at a time
    search      so many vectors of 256 in one scope (memory_search.py)
    scopes      so many keys in scopes of 500 (memory_scopes.py)

Calls are timed by their runtime: the mean is that of its histogram, the percentiles are of ToolReturned.duration_ms,
which leaves out parts of a millisecond, so they are the bound below which the call was.

Goals: 80 % of A3x2's runs/s; a set under 4 ms at p50, under 60 ms at p99 at 64 in flight; a get under 1 ms at p50.
"""

import asyncio
import json
import statistics
import string
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.kafka import KafkaOptions, KafkaRanges
from loomlog.schemas.codec import local_codec, peek
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.services.cli.stack.liveness import read_responses
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.counting_embedder import CountingEmbedder
from tests.benchmarks.main import (
    WARM_UP_S,
    Stack,
    client,
    new_report,
    one_row,
    options_parser,
    own_stack,
    write_report,
)
from tests.benchmarks.memory_scopes import measure_scopes, print_scopes
from tests.benchmarks.memory_search import measure_search, print_search
from tests.benchmarks.projections import EVENTS, ends
from tests.benchmarks.workload import CONFIGURATION

PARTS = ("turns", "calls", "sql", "search", "scopes")
AGENT = "remembering"
AGENT_TEXT = """\
  remembering:
    provider: mock
    model: mock-a3x2-calls
    tools: [Bench, Memory]
    memory_scopes: [user]
    sql_scopes: [user]
    disable_context: true
    system_prompt: "You are measured."
"""
EMBEDDER_TEXT = """\
memory:
  embedder: {{ provider: ollama, model: counted, base_url: "{url}", dimensions: {dimensions} }}
"""
MEMORY = "Memory"
IN_FLIGHT, MANY_IN_FLIGHT = 16, 64
USERS = 16
"""Users of the runs, each with a scope of its own."""
BROKER_WARM_UP_S = 20.0
"""Load of each kind before turns are measured: until then the broker's compiler takes part of the machine."""
VALUE = {"colour": "red", "note": "the user owns a red kayak and paddles on Sundays, when it does not rain"}

Call = tuple[str, Mapping[str, Any]]
BENCH: Call = ("Bench", {})
# The # of a key becomes a hex digit.
SET: tuple[str, dict[str, Any]] = (MEMORY, {"op": "set", "scope": "user", "key": "notes/#", "value": VALUE})
GET: Call = (MEMORY, {"op": "get", "scope": "user", "key": "notes/#"})


def sql(op: str, statement: str, *args: Any) -> Call:
    return MEMORY, {"op": op, "scope": "user", "statement": statement, "args": args}


CREATE = sql("sql_exec", "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)")
INSERT = sql("sql_exec", "INSERT INTO notes (text) VALUES (?)", VALUE["note"])
SELECT = sql("sql_query", "SELECT text FROM notes WHERE id = ?", 1)


def main() -> int:
    """The exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--keys", type=int, default=1_000_000, help="0 leaves the scopes out")
    parser.add_argument("--vectors", type=int, default=200_000, help="0 leaves the search out")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is unknown; expected some of {', '.join(PARTS)}")
    report = new_report("memory")
    with CountingEmbedder() as embedder:
        memory = EMBEDDER_TEXT.format(url=embedder.url, dimensions=embedder.dimension)
        settings = {"LOOMLOG_RUNTIME_METRICS_PORT": "0"}
        with own_stack(CONFIGURATION + AGENT_TEXT + memory, **settings) as (stack, environment):
            if "turns" in parts:
                report["turns"] = measure_turns(stack, environment, options.seconds, options.repetitions)
            if "calls" in parts:
                report["calls"] = measure_calls(stack, environment, options.seconds)
            if "sql" in parts:
                report["sql"] = measure_sql(stack, environment, options.seconds)
            if "search" in parts and options.vectors:
                report["search"] = asyncio.run(measure_search(stack.postgres, options.vectors))
            if "scopes" in parts and options.keys:
                report["scopes"] = asyncio.run(measure_scopes(stack, environment, options.keys, embedder))
    print_report(report)
    write_report(report, options.json)
    return 0


def calling(environment: dict[str, str], calls: Sequence[Call], users: int) -> dict[str, str]:
    """The environment of a client whose runs make these calls in both of their turns."""
    return environment | {"BENCH_AGENT": AGENT, "BENCH_USERS": str(users), "BENCH_PROMPT": json.dumps(calls)}


# --- turns -----------------------------------------------------------------------------------------------------------


def measure_turns(stack: Stack, environment: dict[str, str], seconds: float, repetitions: int) -> dict[str, Any]:
    """A3x2 and A3x2 with memory, in turn; the medians of runs/s and of the ratio of the pairs."""
    environments = {
        "plain": environment | {"BENCH_USERS": str(USERS)},
        "three calls": calling(environment, [BENCH, BENCH, BENCH], USERS),
        "with memory": calling(environment, [BENCH, SET, GET], USERS),
    }
    rows: dict[str, list[float]] = {name: [] for name in environments}
    for one in environments.values():
        client("topic", stack, one, IN_FLIGHT, BROKER_WARM_UP_S, 1.0)
    for repetition in range(repetitions):
        for name, one in environments.items():
            row = one_row("topic", stack, one, IN_FLIGHT, seconds)
            rows[name].append(row["runs_per_s"])
            print(
                f"  {repetition + 1}/{repetitions} {name:11} {row['runs_per_s']:7.0f} runs/s  p50 {row['p50_ms']:6.1f} "
                f"ms  errors {row['errors']:.0f}",
                flush=True,
            )
    plain, calls, remembering = rows.values()
    ratios = [of / one for one, of in zip(plain, remembering, strict=True)]
    return {
        "in_flight": IN_FLIGHT,
        "plain_runs_per_s": statistics.median(plain),
        "three_calls_runs_per_s": statistics.median(calls),
        "with_memory_runs_per_s": statistics.median(remembering),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "ratio_to_three_calls": statistics.median([of / one for one, of in zip(calls, remembering, strict=True)]),
    }


# --- calls -----------------------------------------------------------------------------------------------------------


def measure_calls(stack: Stack, environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """Sets of many users, sets alone, and gets of keys that are there."""
    every_key = [(MEMORY, SET[1] | {"key": SET[1]["key"].replace("#", digit)}) for digit in string.hexdigits[:16]]
    client("topic", stack, calling(environment, every_key, USERS), USERS, 0.0, 0.5)
    return {
        "set_many": call_times(stack, calling(environment, [SET], USERS), MANY_IN_FLIGHT, seconds),
        "set": call_times(stack, calling(environment, [SET], USERS), 1, seconds),
        "get": call_times(stack, calling(environment, [GET], USERS), 1, seconds),
    }


def measure_sql(stack: Stack, environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """Statements on the database of one user, which has a table with rows."""
    client("topic", stack, calling(environment, [CREATE, INSERT], 1), 1, 0.0, 0.5)
    return {
        "exec": call_times(stack, calling(environment, [INSERT], 1), 1, seconds),
        "query": call_times(stack, calling(environment, [SELECT], 1), 1, seconds),
    }


def call_times(stack: Stack, environment: dict[str, str], in_flight: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of the calls of runs, all of which make the same call of Memory. SystemExit when one failed."""
    client("topic", stack, environment, in_flight, WARM_UP_S, 0.5)
    first, (count_before, sum_before) = asyncio.run(ends(stack)), asyncio.run(tool_seconds(stack, MEMORY))
    client("topic", stack, environment, in_flight, 0.0, seconds)
    last, (count, total) = asyncio.run(ends(stack)), asyncio.run(tool_seconds(stack, MEMORY))
    returned = asyncio.run(returned_calls(stack, first, last))
    if failed := [event for event in returned if event.is_error or '"value":null' in event.text]:
        raise SystemExit(f"{len(failed)} of {len(returned)} calls failed or returned nothing: {failed[0].text[:300]}")
    took = sorted(float(event.duration_ms) for event in returned)
    figures = {
        "in_flight": in_flight,
        "calls": len(took),
        "mean_ms": (total - sum_before) / max(1.0, count - count_before) * 1000,
        "p50_below_ms": percentile(took, 0.5) + 1,
        "p99_below_ms": percentile(took, 0.99) + 1,
    }
    print(f"  {json.loads(environment['BENCH_PROMPT'])[0][1]['op']}: {figures}", flush=True)
    return figures


async def returned_calls(stack: Stack, first: dict[int, int], last: dict[int, int]) -> list[ToolReturned]:
    """The tool calls that ended between two sets of offsets."""
    codec, events = local_codec(), list[ToolReturned]()
    schema_id = codec.schema_id_of(ToolReturned.SCHEMA)
    ranges = KafkaRanges(KafkaOptions(bootstrap=stack.kafka, client_id="memory-bench"))
    await ranges.start()
    for partition, end in last.items():
        async with await ranges.read(EVENTS, partition, first[partition], end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    if peek(record.value or b"").schema_id == schema_id:
                        event = codec.decode(record.value or b"").record
                        assert isinstance(event, ToolReturned)
                        events.append(event)
    await ranges.close()
    return events


async def tool_seconds(stack: Stack, tool: str) -> tuple[float, float]:
    """Number of the calls of a tool and the sum of their seconds, from the runtime's histogram."""
    lines = b"\n".join(await read_responses(stack.pids["runtime"])).decode().splitlines()

    def figure(suffix: str) -> float:
        name = f'loomlog_tool_call_seconds_{suffix}{{tool="{tool}"}}'
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    return figure("count"), figure("sum")


# --- the report ------------------------------------------------------------------------------------------------------


def print_report(report: dict[str, Any]) -> None:
    """The figures for people, with the goals."""
    print(f"\nMemory; {report['machine']}, {report['at']}")
    if turns := report.get("turns"):
        print(
            f"  A3x2 at {turns['in_flight']} in flight: {turns['plain_runs_per_s']:.0f} runs/s, with a set and a get a "
            f"turn {turns['with_memory_runs_per_s']:.0f}: {turns['ratio']:.2f} (goal 0.80)"
        )
        print(
            f"  with as many calls of Bench a turn {turns['three_calls_runs_per_s']:.0f} runs/s, memory itself keeps "
            f"{turns['ratio_to_three_calls']:.2f}"
        )
    if calls := report.get("calls"):
        print_calls("set", calls["set"], "goal of p50 4 ms")
        print_calls("set", calls["set_many"], "goal of p99 60 ms")
        print_calls("get", calls["get"], "goal of p50 1 ms")
    if statements := report.get("sql"):
        print_calls("sql_exec", statements["exec"], "no goal")
        print_calls("sql_query", statements["query"], "no goal")
    if search := report.get("search"):
        print_search(search)
    if scopes := report.get("scopes"):
        print_scopes(scopes)


def print_calls(name: str, figures: dict[str, Any], goal: str) -> None:
    print(
        f"  {name} as a tool call, {figures['in_flight']} in flight: mean {figures['mean_ms']:.2f} ms, p50 below "
        f"{figures['p50_below_ms']:.0f} ms, p99 below {figures['p99_below_ms']:.0f} ms of {figures['calls']} ({goal})"
    )


if __name__ == "__main__":
    sys.exit(main())
