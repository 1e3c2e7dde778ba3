"""docs/RELIABILITY.md from the results of campaigns: every figure on it was measured, none is written by hand.

    python -m tests.chaos.main --minutes 10 --session 3 --write docs/RELIABILITY.md     measure, then write
    python -m tests.chaos.reliability RESULT.json ... > docs/RELIABILITY.md             write what was measured

Before: main, or a file it wrote.  After: a person.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]

HEAD = """\
# Reliability

What is left after everything was killed. Written by the command below from what it measured; do not edit it.

    python -m tests.chaos.main --minutes {minutes} --session {session:g} --write docs/RELIABILITY.md

Real processes under load (three kinds of runs: a tenth of a second, one to two seconds, five to fifteen) are killed,
stopped and lied to in random order at random moments. Then a checker that shares no code with the services reads the
topics raw and compares commands, events, the effects that outsiders saw, and the rows in Postgres. What each fault is:
`tests/chaos/faults.py`; what is checked: `tests/chaos/checker.py`.

"""
NOT_COVERED = """
## What is not covered

* Everything runs on one machine: no network partitions, no lost or delayed packets between hosts, no loss of a disk.
* `kill -9` is not a power cut: the page cache survives it, so what was fsynced is not told from what was not.
* Kafka's own brokers only; Redpanda was not struck.
* A clock jumps within Python's `time`; the kernel's clock and those of broker and Postgres stay right.
* The models are scripts behind real sockets; real providers fail in more ways.
* Figures are those of this machine under this load. Percentiles of few strikes are close to the maximum.
"""


def page(results: Sequence[Result], beside: str = "") -> str:
    """The page as Markdown. `results` are those of one command, in the order of their columns.

    `beside` are the sections of other commands' figures (tests/figures.py).
    """
    assert results, "a page needs at least one result"
    minutes = max(1, round(sum(result["took_s"] for result in results) / 60))
    parts = [HEAD.format(minutes=minutes, session=results[0]["session_s"])]
    parts += [_conditions(results), "\n## Verdict\n\n", _table(results, GOALS)]
    parts += ["\n## Figures\n\n", _table(results, FIGURES)]
    parts += [
        "\n## How long it stood still\n\n",
        STOOD_STILL,
        _pauses(results),
        _violations(results),
        beside,
        NOT_COVERED,
    ]
    return "".join(parts)


def _conditions(results: Sequence[Result]) -> str:
    machine = results[0]["machine"]
    lines = [
        f"Measured {results[-1]['at']} on {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gb']} GB, {machine['system']}; Python {machine['python']}, Kafka {machine['kafka']}, "
        f"Postgres {machine['postgres']}. Load, brokers, Postgres and all services share these cores, "
        f"with others when the load before the start is not near 0; it was {machine['load']:g}.",
        "",
    ]
    lines += [
        f"* {shape(result)}: {len(result['seeds'])} rounds of {result['runs_each_round']} runs, "
        f"{result['in_flight']} at once, in {result['took_s']} s; seeds {', '.join(map(str, result['seeds']))}"
        for result in results
    ]
    return "\n".join(lines) + "\n"


def shape(result: Result) -> str:
    return "one broker" if result["brokers"] == 1 else "three brokers"


def _spread(values: Mapping[str, int]) -> str:
    if not values.get("count"):
        return "-"
    return f"p50 {values['p50']} ms, p99 {values['p99']} ms, max {values['max']} ms (of {values['count']})"


def _refused(result: Result) -> str:
    return _spread(result["refused_ms"]) if result["brokers"] == 3 else "does not apply"


def _goal(name: str) -> Callable[[Result], str]:
    return lambda result: f"**{result['counts'][name]}**"


def _count(name: str) -> Callable[[Result], str]:
    return lambda result: f"{result['counts'][name]:,}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


GOALS: Mapping[str, Callable[[Result], str]] = {
    "accepted and lost (goal 0)": _goal("lost"),
    "done twice silently (goal 0)": _goal("doubled"),
    "stuck (goal 0)": _goal("stuck"),
    "violations of any kind": lambda result: f"**{result['violations_in_all']}**",
    "take-over after kill -9 by a standby: claimed again": lambda result: _spread(result["claimed_ms"]["standby"]),
    "by a standby: first event of the next owner, where a call was open (goal p99 < 500 ms)": lambda result: _spread(
        result["taken_over_ms"]["standby"]
    ),
    "take-over after kill -9 by the group, session {session:g} s: claimed again": lambda result: _spread(
        result["claimed_ms"]["group"]
    ),
    "by the group: first event of the next owner, where a call was open (goal p99 < 4 s at 3 s)": lambda result: (
        _spread(result["taken_over_ms"]["group"])
    ),
    "a write without a quorum is refused with 503 after": _refused,
}
FIGURES: Mapping[str, Callable[[Result], str]] = {
    "faults": lambda result: f"{sum(result['counts']['strikes'].values())}",
    "runs": _count("runs"),
    "of them cancelled on request": _count("cancelled"),
    "commands": _count("commands"),
    "of them sent more than once": _count("repeated_commands"),
    "events accepted": _count("events"),
    "claims of partitions": lambda result: _counts(result["counts"]["claims"]),
    "stale records, ignored by every reader": _count("stale"),
    "tool calls whose effect was recorded as done": _count("recorded_effects"),
    "effects that happened, counted by their victims": _count("effects"),
    "outcomes unknown, and visible as such": _count("unknown_outcomes"),
    "of them with their effect": _count("unknown_with_effect"),
    "tool calls repeated because they may be": _count("repeated_tool_calls"),
    "model calls lost with their owner and made again": _count("interrupted_model_calls"),
    "dead letters": _count("dead_letters"),
    "clients met": lambda result: _counts(result["clients_met"]),
    "processes that ended by themselves": lambda result: _counts(result["ended_by_themselves"]),
}
STOOD_STILL = """\
From the strike until a reader of the log saw the partition go on; for owners, until the next owner's first event on a
partition of theirs, which comes late where all runs of a partition wait for a slow call, or where none is at work:
whether it was taken at once is what "claimed again" says. What was struck is up again after the second figure.

"""


def _table(results: Sequence[Result], lines: Mapping[str, Callable[[Result], str]]) -> str:
    session = results[0]["session_s"]
    rows = [[name.format(session=session), *(cell(result) for result in results)] for name, cell in lines.items()]
    return _markdown(["", *(shape(result) for result in results)], rows)


def _pauses(results: Sequence[Result]) -> str:
    targets = dict.fromkeys(target for result in results for target in sorted(result["counts"]["strikes"]))
    rows = []
    for target in targets:
        cells = []
        for result in results:
            times = result["counts"]["strikes"].get(target, 0)
            still, again = result["stood_still_ms"].get(target, {}), result["up_again_ms"].get(target, {})
            cells += [f"{times} x {_short(still)}; {_short(again)}" if times else "-"]
        rows.append([target, *cells])
    return _markdown(["struck", *(f"{shape(result)}: p50 / max; up again" for result in results)], rows)


def _short(values: Mapping[str, int]) -> str:
    return f"{values['p50']} / {values['max']} ms" if values.get("count") else "-"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _violations(results: Sequence[Result]) -> str:
    found = [
        f"* {shape(result)}, {violation['kind']}: {violation['text']}\n"
        for result in results
        for violation in result["violations"]
    ]
    return "".join(["\n## Violations\n\n", *found]) if found else ""


def main() -> int:
    """Writes the page of the named result files to standard output."""
    results = [result for name in sys.argv[1:] for result in json.loads(Path(name).read_text())]
    sys.stdout.write(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
