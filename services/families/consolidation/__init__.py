"""The family of consolidation: how far the conversations of a scope are in its memory, and what waits to be learnt.

An aggregate is a target: one for each scope, beside its entries. The consolidator, a run, takes the lease, reads the
chats that have settled since the watermark and the pending entries, writes facts, and moves the watermark only with
them in the log. The target's timer starts it.

    state.py, decide.py   the rules
    items.py              the rows of pending entries and targets
    chats.py              settled chats and their dialogue
    api.py                the operations of the consolidator: ops of the tool Memory
    handlers.py           carries them out over operations.py, which banks dialogue too
    facts.py              what agents add: facts to be learnt, or stored as they are
    services.py           opens all of it in a process

Before: the Memory tool, compaction. After: connectors/configuration/presets/memory.yaml has the consolidator.
"""

from loomlog.schemas.generated.consolidation_commands import (
    AckPending,
    AdvanceTarget,
    BankPending,
    DropTarget,
    LeaseTarget,
    NoteSettledChat,
    ReleaseTarget,
)
from loomlog.services.core.families import WHOLE_HISTORY, Family, Rules, inner_commands
from loomlog.services.families.consolidation.api import OPERATIONS
from loomlog.services.families.consolidation.decide import decide as decide_consolidation
from loomlog.services.families.consolidation.decide import sends as consolidation_sends
from loomlog.services.families.consolidation.items import items as consolidation_items
from loomlog.services.families.consolidation.state import FAMILY_NAME, VERSION, Target, evolve, initial, next_timer_ms
from loomlog.services.families.memory.author import aggregate_name, content_subject

_command = inner_commands(lambda command: aggregate_name(command.scope, command.scope_id))


FAMILY = Family(
    name=FAMILY_NAME,
    summary="The consolidation of the memory of a scope: its watermark, its lease and its pending entries.",
    rules=Rules(
        state=Target,
        initial=initial,
        decide=decide_consolidation,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(LeaseTarget, "lease", "Take the lease of a target."),
        _command(AdvanceTarget, "advance", "Move the watermark of a target."),
        _command(ReleaseTarget, "release", "Give the lease back."),
        _command(NoteSettledChat, "settled", "Say that a chat has settled."),
        _command(BankPending, "bank", "Keep dialogue for the consolidator."),
        _command(AckPending, "ack", "Remove pending entries."),
        _command(DropTarget, "drop", "Remove all pending entries, and what else there is to do."),
    ),
    content_subject=content_subject,
    sends=consolidation_sends,
    items=consolidation_items,
    operations=OPERATIONS,
    services="loomlog.services.families.consolidation.services",
)
