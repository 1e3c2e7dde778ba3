"""The run an order is for: enough to see whether its caller may give it, and to address it.

A process learns it of every run it starts or orders, and keeps it while the run is under way
(services/application/streaming/event_hub.py). An order to such a run asks the read models nothing: whose a run is never
changes, and whether it still runs its owner decides. That is 3.5 ms of an order's 10 on an idle machine, and orders are
carried out also while the read models are away.

Before: start.py and services/application/queries/runs.py learn it. After: control.py.
"""

from dataclasses import dataclass

from loomlog.projections.runs import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTarget:
    """A run that was under way when the hub last heard of it. Shaped like the columns of a RunRow it stands for."""

    run_id: str
    tenant: str
    user_id: str
    agent_id: str
    status: str = "running"
    last_offset: int = -1
    """The events that answer an order lie after it; nothing is known of those before."""

    @classmethod
    def from_row(cls, row: RunRow) -> "RunTarget":
        """From the row of a run under way."""
        return cls(run_id=row.run_id, tenant=row.tenant, user_id=row.user_id, agent_id=row.agent_id)


CommandTarget = RunRow | RunTarget
"""The run of an order, as the read models have it or as this process remembers it."""
