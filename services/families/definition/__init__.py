"""The family of definitions (decision 37): agents, skills, volumes and seven further kinds, as versions in the log.

An aggregate is a line: the versions of one name of one kind. Every process has all lines in memory, so a start resolves
its agent without asking anybody. Its routes have the form that existing clients know.

    state.py, decide.py   the rules
    items.py              the rows of versions and judgements
    apply.py              several definitions at once
    table.py              what resolves to what, in every process
    api.py                the operations: kind_api.py, query_api.py, evaluation_api.py, volume_api.py
    handlers.py           carries them out; operations.py, batches.py, evaluations.py, volumes.py, queries.py do
    services.py           opens all of it in a process

Before: services/application/dispatch.py. After: the runtime resolves agents, skills and volumes.
"""

from typing import Any

from loomlog.schemas.generated.definition_commands import (
    AnswerStage,
    ApplyDefinitions,
    DefineVersion,
    DeleteLine,
    ForkVersion,
    ObserveStatic,
    PromoteVersion,
    RetireVersion,
    RollBack,
    SettleStage,
    StageVersion,
    SubmitJudgement,
)
from loomlog.services.core.families import WHOLE_HISTORY, Family, Reads, Rules, inner_commands
from loomlog.services.families.definition.apply import Batch, sends
from loomlog.services.families.definition.decide import decide as decide_definition
from loomlog.services.families.definition.decide import next_timer_ms
from loomlog.services.families.definition.items import items as definition_items
from loomlog.services.families.definition.state import VERSION, Line, evolve, initial, line_id

_command = inner_commands(lambda command: line_id(command.kind, command.name))


def _subject(command: Any) -> str | None:
    """Return the user of a judged run; None for what operators write, which is of no user."""
    return command.user_id if isinstance(command, SubmitJudgement) else None


FAMILY = Family(
    name="definition",
    summary="The definitions of an installation: agents, skills, volumes and others, with all their versions.",
    rules=Rules(
        state=Line | Batch,
        initial=initial,
        decide=decide_definition,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(DefineVersion, "create", "Make a version of a definition."),
        _command(ForkVersion, "fork", "Make a version from an earlier one."),
        _command(PromoteVersion, "promote", "Make a version the active one."),
        _command(RollBack, "rollback", "Make the version active that was so before."),
        _command(RetireVersion, "retire", "Retire a version, or restore it."),
        _command(DeleteLine, "delete", "Delete a definition."),
        _command(ObserveStatic, "observe", "Tell what a configuration file says."),
        _command(SubmitJudgement, "judge", "Judge a run."),
        _command(ApplyDefinitions, "apply", "Make several definitions active at once."),
        _command(StageVersion, "stage", "Make a version that waits for a batch."),
        _command(AnswerStage, "answer", "Tell a batch whether a version is staged."),
        _command(SettleStage, "settle", "End a stage."),
    ),
    content_subject=_subject,
    reads=Reads.REPLICATED,
    sends=sends,
    items=definition_items,
    api="loomlog.services.families.definition.api",
    start_check="loomlog.services.families.definition.files",
    services="loomlog.services.families.definition.services",
)
