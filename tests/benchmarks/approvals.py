"""What rules cost: the verdict of policies of 1,000 rules about one call, and reading such a policy.

    indexed    1,000 rules for 50 tools: a call is compared with the 20 for its tool
    wildcard   1,000 rules for every tool, of which the last one matches: the worst that a policy can be
    sums       as indexed, and each rule adds up an argument over the calls of the run

Goal: under 1 ms a call at p99, of a policy of 1,000 rules. Pure: no broker and no database.

Before: `make bench-tools`. After: services/core/approvals/evaluation.py.
"""

import json
import time
from typing import Any

from loomlog.schemas.approval_policy import decode_policy, policy_text
from loomlog.services.core.approvals.evaluation import CallFacts, CompiledPolicy
from tests.benchmarks.closed_loop import percentile

RULES, TOOLS, CALLS = 1_000, 50, 2_000
GOAL_MS = 1.0
METERS = 100


def rules(kind: str) -> list[dict[str, Any]]:
    """The rules of a case."""
    made = []
    for number in range(RULES):
        last = number == RULES - 1
        condition: dict[str, Any] = {"argument": "$.order.amount", "greater_than": 5 if last else 1_000_000 + number}
        if kind == "sums":
            condition = {"sum": "$.order.amount", "of": [f"tool-{number % METERS}"], "greater_than": 10**6}
        tools = ["*"] if kind == "wildcard" else [f"tool-{number % TOOLS}"]
        made.append({"name": f"rule-{number}", "then": "deny", "tools": tools, "when": [condition]})
    return made


def measure(kind: str) -> tuple[float, float, float]:
    """Return milliseconds: of reading the policy, and p50 and p99 of a verdict with its amounts."""
    text = policy_text(decode_policy(json.dumps({"rules": rules(kind)})))
    began = time.thread_time()
    policy = CompiledPolicy(decode_policy(text))
    read_ms = (time.thread_time() - began) * 1_000
    times = []
    for number in range(CALLS):
        call = CallFacts(
            tool=f"tool-{number % TOOLS}",
            arguments={"order": {"amount": 7, "lines": [1, 2, 3]}},
            agents=("helper",),
            tenant="acme",
            user="ann",
            totals={},
            spent_micros=0,
        )
        began = time.thread_time()
        policy.verdict(call)
        policy.amounts(call.tool, call.arguments)
        times.append((time.thread_time() - began) * 1_000)
    times.sort()
    return read_ms, percentile(times, 0.5), percentile(times, 0.99)


def main() -> None:
    print(f"{RULES:,} rules, {CALLS:,} calls; goal: under {GOAL_MS:g} ms at p99")
    for kind in ("indexed", "sums", "wildcard"):
        read_ms, middle, high = measure(kind)
        met = "met" if high < GOAL_MS else "not met"
        print(f"{kind:10} read {read_ms:7.2f} ms   verdict p50 {middle:7.4f} ms   p99 {high:7.4f} ms   {met}")


if __name__ == "__main__":
    main()
