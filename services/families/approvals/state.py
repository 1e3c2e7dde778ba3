"""The rules of a tenant: the version in force.

Before: decide.py has an event, or a checkpoint a state. After: services/runtime/models/approval_policies.py.
"""

from loomlog.schemas.generated.approvals_events import PolicySet
from loomlog.schemas.records import Value, copy_as


class TenantPolicy(Value, frozen=True, kw_only=True):
    """The rules in force; version 0: none were ever set."""

    version: int = 0
    text: str = ""
    sha256: str = ""
    by: str = ""
    at_ms: int = 0


def evolve(policy: TenantPolicy, event: PolicySet, at_ms: int) -> TenantPolicy:
    """Return the rules after an event."""
    return copy_as(TenantPolicy, event)
