"""The family of acts: who did what, an aggregate each (decision 71).

    state.py, decide.py   the rules: begun once, ended once
    recording.py          what the dispatch carries out is recorded
    api.py, handlers.py   the list of acts, and what reads it

Before: services/application/dispatch.py. After: projections/acts.py.
"""

from loomlog.schemas.generated.act_commands import BeginAct, EndAct, NoteRefusals
from loomlog.services.core.families import (
    Audit,
    Erasure,
    Family,
    Lifecycle,
    Rebuild,
    Rules,
    StateFiles,
    inner_commands,
)
from loomlog.services.families.act.api import OPERATIONS
from loomlog.services.families.act.decide import decide
from loomlog.services.families.act.state import FAMILY_NAME, VERSION, Act, evolve, initial, is_over, next_timer_ms

_command = inner_commands(lambda command: str(command.act_id))
FAMILY = Family(
    name=FAMILY_NAME,
    summary="An administrative act: who asked for what, and how it has ended.",
    rules=Rules(
        state=Act,
        initial=initial,
        decide=decide,
        evolve=evolve,
        is_over=is_over,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    # Left out of state files: a file can be edited, and a restore must not make acts that were none.
    lifecycle=Lifecycle(
        state_files=StateFiles.LEFT_OUT, erasure=Erasure.KEYS, audit=Audit.WHOLE, rebuild=Rebuild.EVENTS
    ),
    commands=(
        _command(BeginAct, "begin", "Record an act before it is carried out."),
        _command(EndAct, "end", "Record how an act has ended."),
        _command(NoteRefusals, "note_refusals", "Record acts that were refused before they began."),
    ),
    # Of the tenant, and not of the caller: erasing a person does not erase what an operator did.
    content_subject=lambda command: "",
    operations=OPERATIONS,
    services="loomlog.services.families.act.services",
)
