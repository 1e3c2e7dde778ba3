"""Calls and policies for tests of approvals."""

from typing import Any

from loomlog.schemas.approval_policy import parse_policy
from loomlog.services.core.approvals.evaluation import CallFacts, CompiledPolicy, Verdict


def policy(*rules: dict[str, Any]) -> CompiledPolicy:
    """Return a policy with these rules; those without a name or an outcome get `rule` and deny."""
    named = [{"name": f"rule-{number}", "then": "deny", **rule} for number, rule in enumerate(rules)]
    return CompiledPolicy(parse_policy({"rules": named}))


def call(tool: str = "pay", arguments: Any = None, **facts: Any) -> CallFacts:
    known: dict[str, Any] = {"agents": ("cashier",), "tenant": "shop", "user": "ann", "totals": {}, "spent_micros": 0}
    return CallFacts(tool=tool, arguments={} if arguments is None else arguments, **{**known, **facts})


def outcome(rules: CompiledPolicy, asked: CallFacts) -> str:
    verdict: Verdict = rules.verdict(asked)
    return verdict.outcome
