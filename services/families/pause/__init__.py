"""The family of pauses wider than a run (decision 16): one aggregate of the whole installation.

One aggregate, so that one order holds for all entries; every process has it in memory. Its routes are those of
services/api/pause_endpoints.py, which existing clients know, so no transport makes any from the declaration.

Before: services/application/admin/pauses.py and services/runtime/run/start_paused.py send commands. After: every
runtime applies the pauses to its live runs, the api refuses new runs.
"""

from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.families import (
    INSTALLATION,
    Audit,
    Command,
    Erasure,
    Family,
    Lifecycle,
    Reads,
    Rebuild,
    Rules,
    StateFiles,
    aggregate_id,
)
from loomlog.services.families.pause.decide import decide
from loomlog.services.families.pause.state import PauseTable, evolve

FAMILY = Family(
    name="pause",
    summary="The pauses of an installation that are wider than a run.",
    rules=Rules(state=PauseTable, initial=lambda aggregate: PauseTable(), decide=decide, evolve=evolve, version=1),
    lifecycle=Lifecycle(
        # The section "pauses": in the file of a tenant the wider ones become pauses of that tenant.
        state_files=StateFiles.SECTION,
        erasure=Erasure.NOTHING,
        audit=Audit.WHOLE,
        rebuild=Rebuild.EVENTS,
    ),
    commands=(
        Command(
            record=SetPause,
            verb="set",
            summary="Pause an agent, a tenant or everything.",
            aggregate=lambda command: INSTALLATION,
            scope=ADMIN,
            in_tool=False,
            in_transports=False,
        ),
        Command(
            record=LiftPause,
            verb="lift",
            summary="Lift a pause.",
            aggregate=lambda command: INSTALLATION,
            scope=ADMIN,
            in_tool=False,
            in_transports=False,
        ),
    ),
    reads=Reads.REPLICATED,
)
PAUSES = aggregate_id(FAMILY.name, "", INSTALLATION)
"""Id of the aggregate."""
