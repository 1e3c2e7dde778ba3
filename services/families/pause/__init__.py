"""The family of pauses wider than a run (decision 16): one aggregate of the whole installation.

One aggregate, so that one order holds for all entries; every process has it in memory.

    api.py, handlers.py   the operations
    start_paused.py       the pause that a process starts with

Before: handlers.py and start_paused.py send commands. After: every runtime applies the pauses to its live runs, the api
refuses new runs.
"""

from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.services.core.families import Rules, StateFiles, installation_aggregate, installation_family
from loomlog.services.families.pause.api import OPERATIONS
from loomlog.services.families.pause.decide import decide
from loomlog.services.families.pause.state import PauseTable, evolve

FAMILY = installation_family(
    name="pause",
    summary="The pauses of an installation that are wider than a run.",
    rules=Rules(state=PauseTable, initial=lambda aggregate: PauseTable(), decide=decide, evolve=evolve, version=1),
    # The section "pauses": in the file of a tenant the wider ones become pauses of that tenant.
    state_files=StateFiles.SECTION,
    commands={
        SetPause: ("set", "Pause an agent, a tenant or everything."),
        LiftPause: ("lift", "Lift a pause."),
    },
    operations=OPERATIONS,
    services="loomlog.services.families.pause.services",
    is_of_starts=True,
)
PAUSES = installation_aggregate(FAMILY.name)
"""Id of the aggregate."""
