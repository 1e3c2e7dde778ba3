"""Approvals in a process: opened once.

Before: services/families/opening.py. After: handlers.py.
"""

from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.services.families.approvals import policy_of
from loomlog.services.families.approvals.handlers import PolicyHandlers
from loomlog.services.families.approvals.run_handlers import ApprovalHandlers
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.ports.approval_calls import ApprovalCalls
from loomlog.services.families.ports.approval_rules import TenantRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalOptions:
    """What the configuration says of approvals."""

    secrets: SecretRegistry = NO_SECRETS
    """Which variables may sign what rules of tenants send."""


def read_options(loaded: ProcessConfiguration) -> ApprovalOptions:
    """Return the options of a process."""
    return ApprovalOptions(secrets=loaded.secret_registry)


def open_family(context: FamilyContext) -> FamilyServices:
    """Open approvals."""
    replicas = context.parts.replicas
    context.provide(TenantRules(of_tenant=lambda tenant: replicas.state(policy_of(tenant))))
    handlers = PolicyHandlers(context, context.options(ApprovalOptions).secrets).by_operation()
    calls = context.find(ApprovalCalls)
    of_runs = {} if calls is None else ApprovalHandlers(calls, context.reads).by_operation()
    return FamilyServices(handlers={**handlers, **of_runs})
