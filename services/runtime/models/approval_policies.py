"""The policies that a new run is pinned to, in the order of trust: of the file, of its tenant, of its agent.

Those of a parent come before them (services/core/run/subagents/children.py). A run keeps its policies by hash, whatever
is in force later.

Before: agent_definitions.py resolves an agent. After: RunStarted has them, in its definition.
"""

from collections.abc import Callable
from functools import lru_cache

from loomlog.connectors.configuration.approvals_block import ApprovalsBlock
from loomlog.schemas.approval_policy import PolicyError, decode_policy, policy_sha256, reads_tree_cost
from loomlog.schemas.generated.values import ApprovalPolicy
from loomlog.services.families.ports.approval_rules import RulesInForce

FILE, TENANT, AGENT = "file", "tenant", "agent"
NO_RULES = '{"rules":[]}'


class ApprovalPolicies:
    """The policies in force. `of_tenant`, once it is set, returns the rules of a tenant."""

    def __init__(self, of_file: ApprovalsBlock) -> None:
        self._file = _pin(FILE, of_file.text)
        self.of_tenant: Callable[[str], RulesInForce] | None = None
        self._pin = lru_cache(maxsize=1_000)(_pin)

    def for_run(self, tenant: str, agent: ApprovalsBlock) -> tuple[ApprovalPolicy, ...]:
        """Return the policies of a run of that tenant and agent; none of them is without rules."""
        policy = None if self.of_tenant is None else self.of_tenant(tenant)
        if not (self._file or agent.rules or (policy is not None and policy.version)):
            return ()
        of_tenant = () if policy is None else self._pin(TENANT, policy.text, policy.version)
        return (*self._file, *of_tenant, *self._pin(AGENT, agent.text))


def _pin(source: str, text: str, version: int = 0) -> tuple[ApprovalPolicy, ...]:
    """Return the policy; none for a text without rules."""
    if text in ("", NO_RULES):
        return ()
    return (
        ApprovalPolicy(
            source=source,
            version=version,
            sha256=policy_sha256(text),
            text=text,
            reads_tree_cost=_reads_tree_cost(text),
        ),
    )


def _reads_tree_cost(text: str) -> bool:
    try:
        return reads_tree_cost(decode_policy(text))
    except PolicyError:
        return False  # written by a later version of this program: every call of the run is denied


def with_policies_in_force(
    pinned: tuple[ApprovalPolicy, ...], current: tuple[ApprovalPolicy, ...]
) -> tuple[ApprovalPolicy, ...]:
    """Return the policies of a fork: those in force now, and those of its origin that are not among them, so that a
    fork of an old run evades no rule.
    """
    known = {policy.sha256 for policy in current}
    return (*current, *(policy for policy in pinned if policy.sha256 not in known))
