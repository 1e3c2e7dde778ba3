"""The policies that a run is pinned to: of the file, its tenant and its agent; a fork or a child evades none."""

from loomlog.connectors.configuration.approvals_block import ApprovalsBlock
from loomlog.schemas.approval_policy import policy_sha256
from loomlog.schemas.generated.values import AgentDefinition, ApprovalPolicy
from loomlog.schemas.records import replace
from loomlog.services.core.run.subagents.children import inherit_approvals
from loomlog.services.families.approvals.state import TenantPolicy
from loomlog.services.runtime.models.approval_policies import ApprovalPolicies, with_policies_in_force

NO_BLOCK = ApprovalsBlock()


def block(name: str) -> ApprovalsBlock:
    return ApprovalsBlock(rules=({"name": name, "then": "deny"},))


def in_force(*, file: ApprovalsBlock = NO_BLOCK, tenant: TenantPolicy | None = None) -> ApprovalPolicies:
    policies = ApprovalPolicies(file)
    if tenant is not None:
        policies.of_tenant = lambda name: tenant if name == "acme" else TenantPolicy()
    return policies


def policy(name: str) -> ApprovalPolicy:
    text = block(name).text
    return ApprovalPolicy(source="agent", sha256=policy_sha256(text), text=text)


def test_a_run_has_the_rules_of_the_file_its_tenant_and_its_agent_in_that_order() -> None:
    tenant = TenantPolicy(version=3, text=block("tenants").text)
    policies = in_force(file=block("files"), tenant=tenant)
    pinned = policies.for_run("acme", block("agents"))
    assert [(one.source, one.version) for one in pinned] == [("file", 0), ("tenant", 3), ("agent", 0)]
    assert all(one.sha256 == policy_sha256(one.text) for one in pinned)
    assert [one.source for one in policies.for_run("globex", NO_BLOCK)] == ["file"]


def test_without_rules_nothing_is_pinned() -> None:
    assert in_force().for_run("acme", NO_BLOCK) == ()
    assert in_force(tenant=TenantPolicy(version=2, text='{"rules":[]}')).for_run("acme", NO_BLOCK) == ()


def test_a_fork_has_the_rules_of_today_and_those_of_its_origin_once() -> None:
    old, both, new = policy("old"), policy("both"), policy("new")
    assert with_policies_in_force((old, both), (new, both)) == (new, both, old)


def test_a_child_has_the_rules_of_its_parents_first_also_those_that_it_has_itself() -> None:
    own, shared = policy("own"), policy("shared")
    root = AgentDefinition(name="root", provider="p", model="m", approvals=(shared,))
    parent = replace(root, name="parent", approvals=inherit_approvals((), root))
    (theirs, mine) = inherit_approvals((shared, own), parent)
    assert (theirs.sha256, theirs.is_inherited, theirs.agents) == (shared.sha256, True, ("parent", "root"))
    assert mine == own
