"""Tallies to test with: every field has an unremarkable value, a test names the ones it is about."""

from dataclasses import replace

from schemas.stream_records import RunTally

NOW_MS = 1_800_000_030_000
"""Half a minute into a minute."""

PLAIN = RunTally(
    partition=0,
    term=5,
    offset=10,
    run_id="r_1",
    tenant="acme",
    agent="writer",
    provider="mock",
    model="m1",
    status="completed",
    started_at_ms=NOW_MS - 2_000,
    ended_at_ms=NOW_MS,
    turns=2,
    input_tokens=100,
    output_tokens=20,
    cost_micros=300,
    currency="USD",
    model_errors=0,
)


def tally(**changes: object) -> RunTally:
    return replace(PLAIN, **changes)  # type: ignore[arg-type]  # a wrong field name or type fails in the test at once
