"""The family of approvals: the rules of each tenant for the tool calls of its runs (decision 68).

A tenant has one aggregate, whose versions are its events; every process has the rules in force in memory, because each
start of a run pins them. The calls that wait for people are events of their runs, not of this family: its operations
read and send to them.

    state.py, decide.py   the rules of the aggregate; items.py: a row for each version
    api.py                the operations
    handlers.py           those on policies; run_handlers.py: those on calls of runs
    services.py           opens them in a process

Before: requests. After: services/runtime/models/approval_policies.py pins the rules.
"""

from loomlog.schemas.generated.approvals_commands import SetPolicy
from loomlog.services.core.families import (
    Audit,
    Erasure,
    Family,
    Lifecycle,
    Reads,
    Rebuild,
    Rules,
    StateFiles,
    aggregate_id,
    inner_commands,
)
from loomlog.services.families.approvals.api import OPERATIONS
from loomlog.services.families.approvals.decide import decide
from loomlog.services.families.approvals.items import items
from loomlog.services.families.approvals.state import TenantPolicy, evolve

NAME, AGGREGATE = "approvals", "policy"
_command = inner_commands(lambda command: AGGREGATE)


def policy_of(tenant: str) -> str:
    """Return the full id of the aggregate with a tenant's rules."""
    return aggregate_id(NAME, tenant, AGGREGATE)


FAMILY = Family(
    name=NAME,
    summary="The rules of a tenant for tool calls, and the calls that wait for approval.",
    rules=Rules(state=TenantPolicy, initial=lambda aggregate: TenantPolicy(), decide=decide, evolve=evolve, version=1),
    lifecycle=Lifecycle(
        state_files=StateFiles.EVENTS, erasure=Erasure.NOTHING, audit=Audit.WHOLE, rebuild=Rebuild.EVENTS
    ),
    commands=(_command(SetPolicy, "set", "Put rules in force."),),
    reads=Reads.REPLICATED,
    of_starts=lambda tenant: (policy_of(tenant),),
    items=items,
    operations=OPERATIONS,
    services="loomlog.services.families.approvals.services",
)
