"""The rules of tenants for tool calls, which starts of runs pin.

Before: services/runtime/models/approval_policies.py. After: services/families/approvals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class RulesInForce(Protocol):
    """The rules of a tenant at one time."""

    @property
    def version(self) -> int:
        """The number of the version; 0: none were ever set."""
        ...

    @property
    def text(self) -> str:
        """The rules as JSON."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRules:
    """The rules of all tenants, as this process has read them."""

    of_tenant: Callable[[str], RulesInForce]
