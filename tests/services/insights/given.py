"""Tallies for tests: every field has a plain value, and a test names the fields that matter to it."""

from loomlog.schemas.generated.stream_records import AgentTally, CostTally, ModelTally, RunTally, StatusTally, ToolTally
from loomlog.schemas.records import replace

NOW_MS = 1_800_000_030_000
"""Half a minute into a minute."""

PLAIN = RunTally(
    partition=0,
    term=5,
    offset=10,
    ended_at_ms=NOW_MS,
    durations_ms=(2_000,),
    statuses=(StatusTally(status="completed", runs=1),),
    agents=(AgentTally(tenant="acme", agent="writer", runs=1, failed=0),),
    models=(ModelTally(provider="mock", model="m1", calls=2, errors=0),),
    tools=(),
    input_tokens=100,
    output_tokens=20,
    costs=(CostTally(currency="USD", micros=300),),
)


def tally(
    *,
    runs: int = 1,
    status: str = "completed",
    agent: str = "writer",
    took_ms: int = 2_000,
    tools: tuple[ToolTally, ...] = (),
    **changes: object,
) -> RunTally:
    """A tally of `runs` equal runs; `changes` are fields of the record."""
    equal_runs = replace(
        PLAIN,
        durations_ms=(took_ms,) * runs,
        statuses=(StatusTally(status=status, runs=runs),),
        agents=(AgentTally(tenant="acme", agent=agent, runs=runs, failed=runs if status == "failed" else 0),),
        tools=tools,
    )
    return replace(equal_runs, **changes)  # type: ignore[arg-type]  # a wrong field name or type fails in the test at once
